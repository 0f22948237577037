"""Every answer is as the service's own schema has it, whatever is sent."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import NPY, npy, until

pytest.importorskip("schemathesis", reason="needs the packages for development")
pytestmark = pytest.mark.filterwarnings(
    "default"
)  # the service runs in this process, where they would be errors


def attack(client, novel, *options):
    """Let schemathesis send whatever it can think of; its report, empty where it found nothing."""
    client.post("/observe", content=npy(novel), headers=NPY)
    until(lambda: client.get("/groups").json())
    # what the schema allows may still be no image of the model; events never end
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
    command += [f"{client.base_url}/openapi.json", "--exclude-path", "/events", "--no-color", "--seed", "1"]
    command += ["--exclude-checks", "positive_data_acceptance", "--request-timeout", "60", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout[-8000:] + done.stderr[-2000:]


def test_no_answer_is_undocumented(client, novel):
    assert not attack(client, novel, "--phases", "fuzzing", "--max-examples", "2")


@pytest.mark.slow
def test_no_answer_is_undocumented_at_length(client, novel):
    assert not attack(
        client, novel, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "100"
    )

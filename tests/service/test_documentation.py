"""What docs/service.md says is done, as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def blocks(kind, client):
    text = PAGE.read_text(encoding="utf-8").replace("http://127.0.0.1:8787", str(client.base_url).rstrip("/"))
    return re.findall(rf"^```{kind}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore:.*held-out scores cannot mark")
def test_the_examples_for_curl_and_python_work_as_they_stand(client, novel, tmp_path):
    Image.fromarray(novel[0]).save(tmp_path / "digit.png")
    np.savez(tmp_path / "digits.npz", x=novel)
    curl = blocks("sh", client)
    assert len(curl) == 1
    script = curl[0].replace("curl -s", "curl -sS --fail-with-body")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"repeated": false' in done.stdout
    assert "odd taken in from 6 images" in done.stdout
    assert "accepts 99 %" in done.stdout
    (python,) = blocks("python", client)
    done = subprocess.run(
        [sys.executable, "-c", python], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(novel)


def test_every_address_that_the_page_names_is_in_the_schema(client):
    named = set(re.findall(r"`(?:GET|POST|PUT|DELETE)? ?(/[a-z]+(?:/\{\w+\}|/[a-z]+)*)`", PAGE.read_text()))
    known = {re.sub(r"\{\w+\}", "{}", path) for path in client.get("/openapi.json").json()["paths"]}
    beside = {"/docs", "/infer", "/merge", "/split", "/unlearn"}
    assert named - beside
    for path in named - beside:
        assert re.sub(r"\{\w+\}", "{}", path) in known, path

"""`shels serve` and `shels rule` from the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from shels.cli.app import app


def shels(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def model(learner, tmp_path):
    learner.save(tmp_path / "m")
    return tmp_path / "m"


def test_the_accepted_share_is_shown_and_set_as_a_version(model):
    before = json.loads(shels("rule", model, "--json").stdout)
    assert (before["accept"], before["version"]) == (0.95, None)
    after = json.loads(shels("rule", model, "--accept", "0.9", "--json").stdout)
    assert (after["accept"], after["version"]) == (0.9, 2)
    assert all(after["thresholds"][name] >= limit for name, limit in before["thresholds"].items())
    assert "90.0" in shels("rule", model).stdout
    assert shels("revise", model, "rollback", "1").exit_code == 0
    assert json.loads(shels("rule", model, "--json").stdout)["accept"] == 0.95
    refused = shels("rule", model, "--accept", "1")
    assert refused.exit_code != 0


@pytest.mark.filterwarnings("ignore:.*held-out scores cannot mark")
def test_rule_and_inspect_say_the_same_of_false_alarms_and_when_they_were_measured(model):
    def lines(command, *names):
        rows = shels(command, model).stdout.splitlines()
        return [row.removeprefix(name).strip() for name in names for row in rows if row.startswith(name)]

    trained = lines("rule", "expected")
    assert trained == lines("inspect", "expected")
    assert trained[0].endswith("of the held-out scores at training")
    changed = json.loads(shels("rule", model, "--accept", "0.999", "--json").stdout)
    assert changed["measured_at"] == "rule-set"
    said = lines("rule", "expected", "doubt")
    assert said == lines("inspect", "expected", "doubt")
    assert said[0].startswith(f"{100 * changed['false_alarms']:.1f}")
    assert said[0].endswith("of the held-out scores when the rule was set")
    assert said[1].startswith("60 held-out scores can mark 98.4 %, not 99.9 %")


def test_a_service_starts_says_where_it_is_and_ends_when_told(model):
    command = [sys.executable, "-m", "shels", "serve", str(model), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
        with urllib.request.urlopen(f"{address}v2/health/ready", timeout=30) as answer:
            assert json.load(answer) == {"ready": True}
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 1
        assert "another run is using it" in second.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGTERM)


def test_off_this_machine_tokens_are_needed_and_made(model, tmp_path):
    refused = shels("serve", model, "--host", "0.0.0.0")
    assert refused.exit_code != 0
    made = shels("serve", model, "--new-token", "judge", "--name", "camera", "--tokens", tmp_path / "tokens")
    assert made.exit_code == 0
    token = made.stdout.splitlines()[-1]
    assert len(token) > 40
    assert token not in (tmp_path / "tokens").read_text()
    assert (
        shels("serve", model, "--new-token", "boss", "--name", "x", "--tokens", tmp_path / "t").exit_code != 0
    )

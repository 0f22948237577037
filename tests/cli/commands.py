"""Commands as a user types them, for all tests of the command line."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from shels.cli.app import app


def shels(*args, columns=None, answers=None):
    env = None if columns is None else {"COLUMNS": str(columns)}
    return CliRunner().invoke(app, [str(arg) for arg in args], env=env, input=answers)


def done(*args, answers=None):
    """Return the JSON document of a command that must succeed."""
    result = shels(*args, "--json", answers=answers)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def fails(code, *args):
    """Return the one line on standard error of a command that must leave with this code.

    What `train` chose may stand before it.
    """
    result = shels(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.endswith("trained from scratch")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


def contents(model):
    """Return every file of a model, by its path."""
    return {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}

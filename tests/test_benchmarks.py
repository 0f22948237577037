"""Benchmarks run by one command each: they start, with the names that the library has today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
BENCHMARKS = [path for path in FILES if '__name__ == "__main__"' in path.read_text("utf-8")]


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_says_what_it_takes(path):
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"usage: {path.name}" in done.stdout


def test_what_is_no_benchmark_is_used_by_one():
    for part in set(FILES) - set(BENCHMARKS):
        assert any(f"from {part.stem} import" in path.read_text("utf-8") for path in BENCHMARKS), part

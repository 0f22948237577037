"""What glibc keeps of memory that is free; each in a process of its own, for it stays as it was set."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc alone"
)
_HEAPS = """
import ctypes, sys, threading
from pathlib import Path
from shels.service.memory import have_few_heaps

glibc = ctypes.CDLL(None)
glibc.malloc.restype = glibc.fopen.restype = ctypes.c_void_p
have_few_heaps()
together = threading.Barrier(12)

def work():
    together.wait()
    glibc.malloc(100_000)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(12)]
for each in threads:
    each.start()
for each in threads:
    each.join()
file = ctypes.c_void_p(glibc.fopen(sys.argv[1].encode(), b"w"))
glibc.malloc_info(0, file)
glibc.fclose(file)
print(Path(sys.argv[1]).read_text().count("<heap nr"))
"""
_SCATTERED = """
import ctypes
from pathlib import Path
from shels.service.memory import give_back

def used():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kept = []
for _ in range(800):
    passing, staying = ctypes.create_string_buffer(100_000), ctypes.create_string_buffer(1_000)
    ctypes.memset(passing, 1, 100_000)
    kept.append((passing, staying))
full = used()
kept = [staying for _, staying in kept]
free = used()
give_back()
print(full - free, full - used())
"""


def _said(program, *arguments, **variables):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, env=inherited | variables, capture_output=True, text=True, check=True
    ).stdout


def test_threads_share_a_few_heaps_unless_the_environment_says_otherwise(tmp_path):
    path = str(tmp_path / "heaps.xml")
    assert int(_said(_HEAPS, path)) <= 2
    assert int(_said(_HEAPS, path, MALLOC_ARENA_MAX="5")) == 5


def test_what_is_free_between_what_is_used_goes_back_to_the_system():
    before, after = map(int, _said(_SCATTERED).split())
    assert before < 20_000_000
    assert after > 60_000_000

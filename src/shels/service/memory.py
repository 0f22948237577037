"""What glibc keeps of memory that is free: by itself up to eight heaps a processor, shared out among threads.

Models, features of images and requests come and go in all of them, and what is free in one is of no use in
another. On other systems nothing is done.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

_ARENA_MAX = -8  # as malloc.h has it
_HEAPS = 2


def have_few_heaps() -> None:
    """Have all threads share a few heaps; to be said before there are many threads.

    The environment's MALLOC_ARENA_MAX has the last word.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Give back to the system what is free; the interpreter is not held meanwhile."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

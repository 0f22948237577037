"""Warnings of the library as notes for whoever made the change, thread by thread."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_HERE = threading.local()


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect what is warned of in this thread, once `install` was called."""
    found: list[str] = []
    _HERE.notes = found
    try:
        yield found
    finally:
        _HERE.notes = None


def install() -> None:
    """Let every warning be collected where somebody collects, and be shown as before elsewhere.

    For a process of its own: `warnings.catch_warnings` would take those of other threads too.
    """
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        notes = getattr(_HERE, "notes", None)
        if notes is None:
            before(message, category, *where, **more)
        else:
            notes.append(str(message))

    warnings.filterwarnings("always", category=UserWarning, module=r"shels\.")
    warnings.showwarning = show

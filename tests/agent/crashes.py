"""What a directory looks like at every moment at which a program may be killed: one run shows all of them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

_CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree")
_HALF_WRITTEN = re.compile(r"\.[0-9a-f]{8}$")
_watching = []  # the one under way, since a hook stays for good


class Moments:
    """Copies of a directory, taken before each thing that is done to the file system and before each fsync.

    What is half written under a name of its own is copied once for each kind of it. Of a log that has
    just grown there is a copy with its last line cut off too.
    """

    def __init__(self, directory: Path, to: Path):
        self.directory = directory
        self.to = to
        self.copies = []
        self.operations = 0
        self._seen = set()
        self._busy = False

    def take(self, cut_log=False):
        if self._busy or not self.directory.exists():
            return
        self._busy = True
        try:
            self.operations += 1
            self._copy(self.directory)
            if cut_log:
                log = (self.directory / "events.jsonl").read_bytes()
                self._copy(self.directory, log[: (len(log) + log.rfind(b"\n", 0, -1)) // 2])
        finally:
            self._busy = False

    def _copy(self, directory, log=None):
        state, half_written = _state(directory, log)
        if not {state, *half_written} <= self._seen:
            self._seen |= {state, *half_written}
            self.copies.append(self.to / f"{len(self.copies):03d}")
            shutil.copytree(directory, self.copies[-1])
            if log is not None:
                (self.copies[-1] / "events.jsonl").write_bytes(log)


def _state(directory, log):
    """Return what tells one moment from another: the content, and the kinds of what is half written."""
    digest, half_written = hashlib.sha256(log or b""), set()
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        if any(part.startswith(".") for part in inside.parts[:-1]):
            continue  # in a version that is being written
        if _HALF_WRITTEN.search(path.name):
            half_written.add(re.sub("[0-9a-f]{4,}", "", str(inside)))
            continue
        digest.update(str(inside).encode())
        if path.is_file() and (log is None or inside.name != "events.jsonl"):
            digest.update(path.read_bytes())
    return digest.hexdigest(), half_written


def _watch(event, arguments):
    if not _watching:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in _CHANGING:
        _watching[0].take()


@contextmanager
def moments(directory, to):
    """Give the moments of what happens to a directory meanwhile."""
    if not getattr(sys, "_shels_watch", False):
        sys._shels_watch = True
        sys.addaudithook(_watch)
    found, fsync = Moments(directory, to), os.fsync

    def watched(descriptor):
        written = Path(f"/proc/self/fd/{descriptor}").resolve().name
        found.take(cut_log=written == "events.jsonl")
        fsync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", watched)
        _watching.append(found)
        try:
            yield found
        finally:
            _watching.clear()
    found.take()

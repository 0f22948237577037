"""A service started for a measurement, what is sent to it, and how much of the processor who uses."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

Array = np.ndarray[Any, Any]
_TICK = os.sysconf("SC_CLK_TCK")


def npy(images: Array) -> bytes:
    """Write images as an .npy file."""
    file = io.BytesIO()
    np.save(file, images)
    return file.getvalue()


def digits() -> tuple[Array, Array]:
    """Give known and novel digits: (n, 8, 8) each."""
    from shels.data.sources import load_named  # noqa: PLC0415
    from shels.data.splits import draw_classes, split_data  # noqa: PLC0415
    from shels.demo import KNOWN_COUNT  # noqa: PLC0415

    data = load_named("digits")
    split = draw_classes(data.train.classes, KNOWN_COUNT, 0)
    _, known, new = split_data(data, split)
    novel = np.concatenate([new.inputs[:, 0].numpy(), data.train.only(split.novel).inputs[:, 0].numpy()])
    return known.inputs[:, 0].numpy(), novel


def brighter(images: Array) -> Array:
    """Give images that differ from these by one grey level, for equal ones count once where one learns."""
    found: Array = images + (images < 255).astype(images.dtype)
    return found


def form(images: Array) -> bytes:
    """Write images as a form of PNG files, with the boundary "shels"."""
    from PIL import Image  # noqa: PLC0415

    parts = []
    for place, image in enumerate(images):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        head = f'Content-Disposition: form-data; name="files"; filename="{place}.png"'
        parts.append(f"--shels\r\n{head}\r\nContent-Type: image/png\r\n\r\n".encode() + file.getvalue())
    return b"\r\n".join([*parts, b"--shels--\r\n"])


@dataclass(frozen=True)
class Served:
    """A service that runs. folder: for what is sent to it."""

    port: int
    process: subprocess.Popen[str]
    home: Path
    folder: Path

    def at_rest(self, most: float = 30.0) -> None:
        """Wait until the service and what works for it use no processor for a while: all is grouped."""
        end, used = time.monotonic() + most, -1.0
        while time.monotonic() < end and self._used() > used + 0.1:
            used = self._used()
            time.sleep(6)

    def _used(self) -> float:
        return sum(map(processor_seconds, [self.process.pid, *_children(self.process.pid)]))

    def written(self, name: str, images: list[Array], kind: str = "npy") -> list[str]:
        """Write what is to be sent into files, and give their paths. kind: npy, or form of PNG files."""
        paths = [self.folder / f"{name}-{place}.{kind}" for place in range(len(images))]
        for path, each in zip(paths, images, strict=True):
            path.write_bytes(npy(each) if kind == "npy" else form(each))
        return list(map(str, paths))


@contextlib.contextmanager
def served(given: Path | None, log: Path) -> Iterator[Served]:
    """Serve a copy of a home, or of one that is trained here."""
    with tempfile.TemporaryDirectory(prefix="shels-bench-") as folder:
        home = Path(folder) / "home"
        if given is not None:
            shutil.copytree(given, home)
        else:
            from shels.runtime import finished  # noqa: PLC0415
            from shels.service.demonstration import preparing  # noqa: PLC0415

            finished(preparing(home))
        command = [sys.executable, "-m", "shels", "serve", str(home), "--port", "0", "--device", "cpu"]
        with log.open("w") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, text=True)  # noqa: S603
            try:
                yield Served(_port(log, process), process, home, Path(folder))
            finally:
                process.terminate()
                process.wait(20)


def _port(log: Path, process: subprocess.Popen[str]) -> int:
    while process.poll() is None:
        text = log.read_text()
        if "http://127.0.0.1:" in text:
            return int(text.partition("http://127.0.0.1:")[2].partition("/")[0])
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {log.read_text()}")


def script(name: str, *arguments: object) -> subprocess.Popen[str]:
    """Start one of the scripts beside this file."""
    path = Path(__file__).with_name(f"{name}.py")
    command = [sys.executable, str(path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


def said(process: subprocess.Popen[str]) -> str:
    """Wait for a script, and give what it printed."""
    text, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
    return text


def memory(process: int) -> float:
    """Tell how much memory a process holds, in MiB."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def processor_seconds(process: int | str = "self", *, children: bool = False) -> float:
    """Tell how much processor time a process has used; children: that of those that have ended, too."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / _TICK


def _of_all() -> float:
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / _TICK


def _children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children")
    return list(map(int, found.read_text().split())) if found.exists() else []


class Strangers:
    """Watches how much of one processor others used, for their work makes every figure worse."""

    def __init__(self, service: int) -> None:
        self._ours: list[int | str] = ["self", service, *_children(service)]
        self.share = 0.0

    def __enter__(self) -> Self:
        self._began, self._before = time.monotonic(), self._used()
        return self

    def __exit__(self, *error: object) -> None:
        self.share = max(0.0, (self._used() - self._before) / (time.monotonic() - self._began))

    def _used(self) -> float:
        return _of_all() - sum(processor_seconds(each, children=True) for each in self._ours)

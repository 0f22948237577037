"""The batches of CIFAR-10, binary or pickled, from a folder or straight from the archive."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from shels.data.decoding import MOST_BYTES, decoding, read_bounded
from shels.errors import DataError

Batch: TypeAlias = tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]

PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS  # a label, then the red, green and blue planes


@dataclass(frozen=True)
class Kind:
    """One of the two forms in which CIFAR-10 is distributed."""

    archive: str
    folder: str
    batches: tuple[str, ...]


_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARY = Kind("cifar-10-binary.tar.gz", "cifar-10-batches-bin", tuple(f"{name}.bin" for name in _BATCHES))
PYTHON = Kind("cifar-10-python.tar.gz", "cifar-10-batches-py", _BATCHES)


def read_batches(files: Sequence[Path]) -> list[Batch]:
    """Return the five training batches and the test batch: pixels (n, 3, 32, 32) and labels (n,).

    files: the six batches, or the one archive.
    """
    kind = BINARY if files[0].name in (BINARY.archive, *BINARY.batches) else PYTHON
    parse = _binary if kind is BINARY else _pickled
    if len(files) > 1:
        return [parse(read_bounded(file), str(file)) for file in files]
    members = _archive_members(files[0], kind)
    return [parse(members[name], f"{files[0]}: {name}") for name in kind.batches]


def _archive_members(path: Path, kind: Kind) -> dict[str, bytes]:
    """Return the batches in an archive, read in one pass and never written to disk."""
    found: dict[str, bytes] = {}
    with decoding(path, "is not a whole archive"), tarfile.open(path, "r|gz") as archive:
        for member in archive:
            if archive.offset > MOST_BYTES:
                raise ValueError(f"it unpacks to more than {MOST_BYTES} bytes")
            name = Path(member.name).name
            content = archive.extractfile(member) if name in kind.batches else None
            if content is not None:
                found[name] = content.read()
    missing = [name for name in kind.batches if name not in found]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}; fetch it again")
    return found


def _binary(content: bytes, name: str) -> Batch:
    if not content or len(content) % RECORD:
        raise DataError(
            f"{name} is damaged: its length must be a multiple of {RECORD}, got {len(content)}; fetch it anew"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _pickled(content: bytes, name: str) -> Batch:
    fault = "was refused: a batch may hold arrays and nothing else"
    with decoding(name, fault, f"use the binary version, {BINARY.archive}"):
        batch = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    pairs = batch.items() if isinstance(batch, dict) else ()
    named = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in pairs}
    pixels: Any = named.get("data")
    labels: Any = named.get("labels")
    shaped = isinstance(pixels, np.ndarray) and pixels.shape[1:] == (PIXELS,) and pixels.dtype == np.uint8
    whole = isinstance(labels, list) and all(isinstance(label, int) and 0 <= label < 10 for label in labels)
    if not (shaped and whole and len(pixels) == len(labels) > 0):
        raise DataError(f"{name} must hold `data` (n, {PIXELS}) as uint8 and n `labels` 0-9; fetch it again")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels)


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can build arrays and plain containers, and call nothing else."""

    # The function that numpy pickles an array by, under the names that old and new numpy gave it.
    _rebuild = np.zeros(0).__reduce__()[0]
    _admitted: dict[tuple[str, str], Any] = {  # noqa: RUF012 - never changed
        ("numpy.core.multiarray", "_reconstruct"): _rebuild,
        ("numpy._core.multiarray", "_reconstruct"): _rebuild,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._admitted:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self._admitted[module, name]

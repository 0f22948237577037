"""The directory that a training writes to: checked before, resumed from, never harmed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shels.errors import ModelFileError
from shels.files import check_writable

if TYPE_CHECKING:
    from shels.learner.learner import Learner
    from shels.training import Progress


class Target:
    """Where a model goes, with the checkpoint of the training that is to give it."""

    def __init__(self, directory: Path, *, force: bool) -> None:
        self.directory = directory
        self.force = force
        self.resumed_from: int | None = None
        self._last: int | None = None

    @property
    def checkpoint(self) -> Path:
        """The file that an unfinished training leaves."""
        return self.directory / "checkpoint.safetensors"

    def check(self) -> None:
        """Raise unless a model can be saved here; nothing is changed."""
        if (self.directory / "model.json").exists() and not self.force:
            raise ModelFileError(
                f"{self.directory} already holds a finished model; choose another --out, or replace it "
                "with --force"
            )
        from shels.learner import storage  # noqa: PLC0415

        storage.check_target(self.directory)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Make the directory and make sure that it can be written to.

        A directory made here is removed again if nothing was put into it.
        """
        new = not self.directory.exists()
        try:
            check_writable(self.directory)
            self._drop_leftover()
            yield
        finally:
            if new:
                with suppress(OSError):  # it holds something
                    self.directory.rmdir()

    def note(self, now: Progress) -> None:
        """Note what of a training is safe by now, and where it was resumed."""
        if now.resumed:
            self.resumed_from = now.step
        if now.resumed or now.check is not None:
            self._last = now.step

    def save(self, learner: Learner) -> None:
        """Save the model and delete the checkpoint, which has served."""
        learner.save(self.directory)
        self.checkpoint.unlink(missing_ok=True)

    def how_to_go_on(self) -> str:
        """Return what the same command will do after an interruption."""
        if self._last is None:
            return "nothing was trained long enough to keep; the same command starts again"
        return f"the same command goes on from step {self._last}"

    def _drop_leftover(self) -> None:
        """Delete a checkpoint that is older than the model, so of the training that gave it."""
        model = self.directory / "model.json"
        with suppress(FileNotFoundError):
            if self.checkpoint.stat().st_mtime_ns <= model.stat().st_mtime_ns:
                self.checkpoint.unlink()

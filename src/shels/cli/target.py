"""The directory that a training writes to: checked before, resumed from, never harmed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shels.errors import ModelFileError

if TYPE_CHECKING:
    from shels.learner import Learner
    from shels.training import Progress


class Target:
    """Where a model goes, with the checkpoint of the training that is to give it."""

    def __init__(self, directory: Path, *, force: bool) -> None:
        self.directory = directory
        self.force = force
        self.resumed_from: int | None = None
        self._announce: Callable[[int], None] | None = None

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
        from shels import storage  # noqa: PLC0415

        storage.check_target(self.directory)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Make the directory, make sure that it can be written to, and note where training resumes.

        A directory made here is removed again if nothing was put into it.
        """
        new = not self.directory.exists()
        try:
            self._try_writing()
            self._drop_leftover()
            self.resumed_from = self._step()
            yield
        finally:
            if new:
                with suppress(OSError):  # it holds something
                    self.directory.rmdir()

    def on_resume(self, announce: Callable[[int], None]) -> None:
        """Call `announce` with the step, once, when the training has really taken up its checkpoint."""
        self._announce = announce

    def announce(self) -> None:
        """Say that the training was resumed, if it was and nobody said so yet."""
        if self._announce is not None and self.resumed_from is not None:
            self._announce(self.resumed_from)
        self._announce = None

    def watching(self, progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a watcher that announces the resumption before it passes anything on."""

        def watch(now: Progress) -> None:
            self.announce()
            progress(now)

        return watch

    def save(self, learner: Learner) -> None:
        """Save the model and delete the checkpoint, which has served."""
        learner.save(self.directory)
        self.checkpoint.unlink(missing_ok=True)

    def how_to_go_on(self) -> str:
        """Return what the same command will do after an interruption."""
        step = self._step()
        if step is None:
            return "nothing was trained long enough to keep; the same command starts again"
        return f"the same command goes on from step {step}"

    def _try_writing(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.directory) as file:
                file.write(b"written")
        except OSError as error:
            raise ModelFileError(
                f"{self.directory} cannot be written to ({error.strerror}); choose another --out"
            ) from error

    def _step(self) -> int | None:
        """Return how far the checkpoint is, or None where there is none."""
        from shels.files import read_metadata  # noqa: PLC0415

        if not self.checkpoint.exists():
            return None
        try:
            return int(json.loads(read_metadata(self.checkpoint)["facts"])["step"])
        except (ModelFileError, KeyError, ValueError, TypeError) as error:
            raise ModelFileError(
                f"{self.checkpoint} cannot be resumed from ({error}); delete it to start afresh"
            ) from error

    def _drop_leftover(self) -> None:
        """Delete a checkpoint that is older than the model, so of the training that gave it."""
        model = self.directory / "model.json"
        with suppress(FileNotFoundError):
            if self.checkpoint.stat().st_mtime_ns <= model.stat().st_mtime_ns:
                self.checkpoint.unlink()

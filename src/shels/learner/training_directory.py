"""The directory that a training writes to: checked before, resumed from, never harmed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.errors import ModelFileError, TrainingError
from shels.files import check_writable
from shels.learner import storage
from shels.learner.learner import Learner, learning
from shels.learner.versions import is_home
from shels.runtime import mapped, to_end

if TYPE_CHECKING:
    import torch

    from shels.config import Settings
    from shels.data.samples import Samples
    from shels.training import Progress

CHECKPOINT = "checkpoint.safetensors"


def load_learner(directory: Path, device: str = "auto") -> Learner:
    """Load the learner in a directory; a training that was cut off there is told from no model."""
    unfinished = (directory / CHECKPOINT).is_file() and not (directory / "model.json").exists()
    if unfinished and not is_home(directory):
        raise ModelFileError(
            f"{directory} holds a training that was cut off; run the same `shels train` command again"
        )
    return Learner.load(directory, device)


class TrainingDirectory:
    """Where a model goes, with the checkpoint of the training that is to give it.

    force: whether a finished model, or the checkpoint of another training, may be replaced.
    resumed_from: the step at which an earlier training was taken up. safe_step: the last that is on disk.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path
        self.force = force
        self.checkpoint = path / CHECKPOINT
        self.resumed_from: int | None = None
        self.safe_step: int | None = None

    def check(self) -> None:
        """Raise unless a model can be saved here; nothing is changed."""
        if (self.path / "model.json").exists() and not self.force:
            raise ModelFileError(
                f"{self.path} already holds a finished model; choose another --out, or replace it "
                "with --force"
            )
        storage.check_target(self.path)

    def training(
        self,
        samples: Samples,
        settings: Settings,
        *,
        seed: int,
        device: str | torch.device = "auto",
        validation: Samples | None = None,
    ) -> Generator[Progress, None, Learner]:
        """Train a learner and save it here; cut off at any moment, the same call goes on from there.

        validation: samples that are held out, instead of some of the samples.
        """
        work = partial(self._saving, samples, settings, seed, device, validation)
        try:
            return (yield from work())
        except ModelFileError:
            own = self.safe_step is not None  # then what failed is the saving, and the training is kept
            if not self.force or own or not self.checkpoint.exists():
                raise
            self.checkpoint.unlink()  # of another training
            return (yield from work())

    train = to_end(training)

    def _saving(
        self,
        samples: Samples,
        settings: Settings,
        seed: int,
        device: str | torch.device,
        validation: Samples | None,
    ) -> Generator[Progress, None, Learner]:
        with self._ready():
            try:
                where: dict[str, Any] = {"device": device, "checkpoint": self.checkpoint}
                work = learning(samples, settings, seed=seed, validation=validation, **where)
                learner = yield from mapped(work, self._noted)
                learner.save(self.path)
            except TrainingError:
                self.checkpoint.unlink(missing_ok=True)  # there is nothing in it worth going on from
                raise
            self.checkpoint.unlink(missing_ok=True)
        return learner

    def _noted(self, now: Progress) -> Progress:
        if now.resumed:
            self.resumed_from = now.step
        if now.resumed or now.check is not None:
            self.safe_step = now.step
        return now

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Make sure that the directory can be written to; one made here and left empty is removed again."""
        new = not self.path.exists()
        try:
            check_writable(self.path)
            with suppress(FileNotFoundError):  # a checkpoint older than the model gave that
                if self.checkpoint.stat().st_mtime_ns <= (self.path / "model.json").stat().st_mtime_ns:
                    self.checkpoint.unlink()
            yield
        finally:
            if new:
                with suppress(OSError):  # it holds something
                    self.path.rmdir()

r"""A home: where a model lives with its history, whole at every moment, whatever ends the program.

    HOME/events.jsonl     what happened, one JSON object a line; only ever added to
    HOME/models/0001/ …   versions, each a model directory; once there, never changed or deleted
    HOME/current          the text "0001\n": the version in use
    HOME/novel/           novel samples that wait to be learned, one safetensors file a batch
    HOME/novel/batch.json the batch under way, so that a run that was cut off goes on in the middle of it
    HOME/pending.json     the change under way, so that it is finished or undone as a whole
    HOME/.lock            held by the one run that may change the rest

Every step of a change leaves the old state or the new one; what is half written has a name of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.agent import adoption
from shels.agent.event_log import EventLog
from shels.agent.journal import Pending
from shels.errors import ModelFileError
from shels.files import check_writable, locked, read_metadata, read_tensors, to_bytes, unharmed, write_whole
from shels.learner import versions as on_disk

if TYPE_CHECKING:
    from torch import Tensor

    from shels.learner.learner import Learner

_LONGEST_NAME = 100  # of a file, to stay below what file systems take
_PENDING = "pending.json"


class Home:
    """A model's versions, the pointer to the one in use, the log of events and the novel samples kept.

    What changes versions or novel samples holds the lock meanwhile; whoever makes several such changes in a
    row holds it over all of them. Reading needs no lock, and neither does `record`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = EventLog(directory / "events.jsonl")
        self._locked = False

    @property
    def exists(self) -> bool:
        """Whether the directory is a home already; a plain model is not one."""
        return on_disk.is_home(self.directory)

    @property
    def version(self) -> int:
        """The number of the version in use."""
        return on_disk.read_current(self.directory)

    def versions(self) -> list[int]:
        """Return the numbers of all versions, in order; after a rollback, later ones are still there."""
        return on_disk.versions(self.directory)

    def begin(self, learner: Learner) -> int:
        """Make a home in a new or empty directory, with this learner as its first version.

        The number is 1, or more where an earlier beginning was cut off after its version was in place.
        """
        adoption.check_beginning(self.directory)
        check_writable(self.directory)
        with self._changing():
            adoption.check_beginning(self.directory)
            number = on_disk.add_version(self.directory, learner.save)
            on_disk.write_current(self.directory, number)
        return number

    def adopt(self) -> int:
        """Make a home of a plain model in place and return the version in use; a home stays as it is.

        The model's files go into a version, then `current` is written, then the files at the top are removed.
        Cut off at any moment, the directory is a plain model or a home, and the next call does the rest.
        """
        if self.exists and not adoption.plain_files(self.directory):
            return self.version
        adoption.check_adoption(self.directory)
        with self._changing():
            adoption.adopt(self.directory)
        return self.version

    def load(self, device: str = "auto", version: int | None = None) -> Learner:
        """Return the learner in use, or another version of it; a plain model is loaded as it is."""
        from shels.learner.learner import Learner  # noqa: PLC0415 (brings PyTorch)

        if version is None:
            return Learner.load(on_disk.resolve(self.directory), device)
        return Learner.load(on_disk.version_path(self.directory, version), device)

    def rollback(self, version: int) -> int:
        """Make an existing version the one in use; later ones stay, so that this can be undone too.

        It also repairs a `current` that is damaged or missing.
        """
        if not self.versions():
            self._require_home()
        on_disk.version_path(self.directory, version)
        with self._changing():
            on_disk.write_current(self.directory, version)
        return version

    def change(
        self,
        event: Mapping[str, Any],
        learner: Learner | None = None,
        *,
        version: int | None = None,
        hold: Mapping[str, Mapping[str, Tensor]] | None = None,
        drop: Iterable[str] = (),
    ) -> int:
        """Put another model in use with its event in the log and the novel samples that come and go with it.

        All of it or nothing, whatever ends the program: what is missing is made up for by `settle`. learner:
        becomes a new version; without one, `version` is in use again. Returns the number.
        """
        if learner is not None:
            self._require_home()
        with self._changing():
            self.settle()
            number = on_disk.next_version(self.directory) if version is None else version
            note = Pending(
                number, {**event, "version": number}, self.log.size, tuple(hold or ()), tuple(drop)
            )
            write_whole(self.directory / _PENDING, note.to_json())
            try:
                for name, tensors in (hold or {}).items():
                    self._write_batch(self._staged(name), name, tensors)
                if learner is not None:
                    self._add(learner)
                self._finish(note)
            except BaseException:
                with suppress(ModelFileError, OSError):
                    self.settle()
                raise
        return number

    def settle(self) -> bool:
        """Finish a change that was cut off after its version was there, undo one that was cut off before.

        Returns whether there was one.
        """
        path = self.directory / _PENDING
        if not os.path.lexists(path):
            return False
        with self._changing():
            note = Pending.read(path)
            if note.version in self.versions():
                self._finish(note)
            else:
                for name in note.hold:
                    self._staged(name).unlink(missing_ok=True)
                path.unlink()
        return True

    def _finish(self, note: Pending) -> None:
        on_disk.write_current(self.directory, note.version)
        if not note.is_in(self.events(note.log)):
            self.record(note.event)
        for name in note.hold:
            with suppress(FileNotFoundError):  # in place already
                self._staged(name).replace(self._batch_path(name))
        self.clear(name for name in note.drop if name not in note.hold)
        (self.directory / _PENDING).unlink()

    def _add(self, learner: Learner) -> int:
        before = on_disk.version_path(self.directory, self.version)

        def write(directory: Path) -> None:
            on_disk.share_files(directory, before)
            learner.save(directory)

        return on_disk.add_version(self.directory, write)

    def record(self, event: Mapping[str, Any]) -> int:
        """Add an event to the log, see `EventLog.add`; the version in use is added where none is given."""
        return self.log.add({"version": self.version, **event})

    def events(self, start: int = 0) -> list[dict[str, Any]]:
        """Return all events in the order in which they were recorded, from a size that the log once had."""
        return [event for _, event in self.log.placed(start)]

    def buffer(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep a batch of novel samples under any name; what was kept under that name before is replaced."""
        self._require_home()
        with self._changing():
            self._write_batch(self._batch_path(name), name, tensors)

    def buffered(self) -> dict[str, dict[str, Tensor]]:
        """Return every batch of novel samples that is kept, sorted by name."""
        found = {}
        for path in (self.directory / "novel").glob("[!.]*.safetensors"):
            try:
                name = json.loads(read_metadata(path)["name"])
                found[str(name)] = read_tensors(path)
            except (ModelFileError, LookupError, ValueError, RecursionError) as error:
                raise self.no_batch(path, error) from error
        return dict(sorted(found.items()))

    def no_batch(self, path: Path | str, why: object) -> ModelFileError:
        """Say that a file, or what is kept under a name, is no batch of novel samples."""
        path = self._batch_path(path) if isinstance(path, str) else path
        return ModelFileError(
            f"{path} is not a batch of novel samples ({why}); delete it to go on without it"
        )

    def clear(self, names: Iterable[str]) -> None:
        """Delete batches of novel samples; a name under which nothing is kept does no harm."""
        self._require_home()
        with self._changing():
            for name in names:
                self._batch_path(name).unlink(missing_ok=True)

    @property
    def batch_note(self) -> Path:
        """Where something may be written about the batch under way."""
        return self.directory / "novel" / "batch.json"

    def write_batch_note(self, text: str | None) -> None:
        """Write about the batch under way; None where there is none."""
        with self._changing():
            if text is None:
                self.batch_note.unlink(missing_ok=True)
            else:
                write_whole(self.batch_note, text)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other run from changing this home, and remove what a run that died was writing.

        Within it the same Home may ask again, as each of its changes does. The directory is made if need be.
        """
        if self._locked:
            yield
            return
        with locked(self.directory, "another run is using it; wait until that ends, or stop it"):
            self._locked = True
            try:
                with unharmed(self.directory, "what it holds is"):
                    on_disk.remove_leftovers(self.directory)
                yield
            finally:
                self._locked = False

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self.lock(), unharmed(self.directory, "what it holds is"):
            yield

    def _write_batch(self, path: Path, name: str, tensors: Mapping[str, Tensor]) -> None:
        own = {key: value.detach().cpu().clone() for key, value in tensors.items()}  # views share memory
        write_whole(path, to_bytes(own, {"name": json.dumps(name)}))

    def _staged(self, name: str) -> Path:
        """Return where samples wait that come into place with a change."""
        return self._batch_path(name).with_name(f".staged-{self._batch_path(name).name}")

    def _require_home(self) -> None:
        on_disk.read_current(self.directory)  # raises, saying what is missing

    def _batch_path(self, name: str) -> Path:
        """Return a batch's file, called after it as far as file systems allow, the rest by a digest.

        Some file systems do not tell capitals from small letters, so names with capitals get a digest too.
        """
        safe = re.sub(r"[^a-z0-9_-]", "-", name.lower())[:_LONGEST_NAME]
        if safe != name or not name:
            safe += "-" + hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
        return self.directory / "novel" / f"{safe}.safetensors"

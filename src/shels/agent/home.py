r"""A home: where a model lives with its history, whole at every moment, whatever ends the program.

    HOME/events.jsonl     what happened, one JSON object a line; only ever added to
    HOME/models/0001/ …   versions, each a model directory; once there, never changed or deleted
    HOME/current          the text "0001\n": the version in use
    HOME/novel/           novel samples that wait to be learned, one safetensors file a batch
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
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.errors import ModelFileError
from shels.files import check_writable, read_metadata, read_tensors, to_bytes, unharmed, write_whole
from shels.learner import versions as on_disk

if TYPE_CHECKING:
    from torch import Tensor

    from shels.learner.learner import Learner

_PLAIN = re.compile(r"model\.json|[a-z]+-[0-9a-f]{12}\.safetensors")  # what a plain model consists of
_HOME = re.compile(r"models|novel|\..*")  # what a home that is not begun yet may hold
_LONGEST_NAME = 100  # of a file, to stay below what file systems take

TAKEN, BATCH = "taken-", "batch-"
"""How images of a class with a provisional name, and of a batch that looked new, are called in `novel`."""


class Home:
    """A model's versions, the pointer to the one in use, the log of events and the novel samples kept.

    What changes versions or novel samples holds the lock meanwhile; whoever makes several such changes in a
    row holds it over all of them. Reading needs no lock, and neither does `record`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
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
        self._check_beginning()
        check_writable(self.directory)
        with self.lock(), unharmed(self.directory, "what it holds is"):
            self._check_beginning()
            number = on_disk.add_version(self.directory, learner.save)
            on_disk.write_current(self.directory, number)
        return number

    def adopt(self) -> int:
        """Make a home of a plain model in place and return the version in use; a home stays as it is.

        The model's files go into a version, then `current` is written, then the files at the top are removed.
        Cut off at any moment, the directory is a plain model or a home, and the next call does the rest.
        """
        if self.exists and not self._plain_files():
            return self.version
        self._check_adoption()
        with self.lock(), unharmed(self.directory, "what it holds is"):
            if not self.exists:
                self._check_adoption()
                number = self._version_of_plain() or on_disk.add_version(self.directory, self._copy_plain)
                on_disk.write_current(self.directory, number)
            self._remove_plain()
        return self.version

    def load(self, device: str = "auto", version: int | None = None) -> Learner:
        """Return the learner in use, or another version of it; a plain model is loaded as it is."""
        from shels.learner.learner import Learner  # noqa: PLC0415 (brings PyTorch)

        if version is None:
            return Learner.load(on_disk.resolve(self.directory), device)
        return Learner.load(on_disk.version_path(self.directory, version), device)

    def commit(self, learner: Learner) -> int:
        """Add a learner as a new version, make it the one in use, and return its number.

        After a rollback the number is above all that exist. Files equal to those of the version in use before
        share their space on disk.
        """
        before = on_disk.version_path(self.directory, self.version)

        def write(directory: Path) -> None:
            learner.save(directory)
            on_disk.share_equal_files(directory, before)

        with self.lock(), unharmed(self.directory, "what it holds is"):
            number = on_disk.add_version(self.directory, write)
            on_disk.write_current(self.directory, number)
        return number

    def rollback(self, version: int) -> int:
        """Make an existing version the one in use; later ones stay, so that this can be undone too.

        It also repairs a `current` that is damaged or missing.
        """
        if not self.versions():
            self._require_home()
        on_disk.version_path(self.directory, version)
        with self.lock(), unharmed(self.directory, "what it holds is"):
            on_disk.write_current(self.directory, version)
        return version

    def record(self, event: Mapping[str, Any]) -> None:
        """Add an event to the log, on disk when this returns; time and version are added where not given.

        A line that a crash cut off before stays alone on its line, so that it spoils no other.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        whole = {"time": now, "version": self.version, **event}
        try:
            line = json.dumps(whole, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"the event {whole} cannot be written as JSON: {error}") from error
        with (
            unharmed(self.directory, "what it holds is"),
            (self.directory / "events.jsonl").open("a+b") as file,
        ):
            if file.tell():
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def events(self) -> list[dict[str, Any]]:
        """Return all events in the order in which they were recorded, without lines that a crash cut off."""
        try:
            lines = (self.directory / "events.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ModelFileError(f"{self.directory / 'events.jsonl'} cannot be read: {error}") from error
        found = []
        for line in lines:
            with suppress(ValueError):  # also what is not UTF-8
                found.append(json.loads(line))
        return [event for event in found if isinstance(event, dict)]

    def buffer(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep a batch of novel samples under any name; what was kept under that name before is replaced."""
        self._require_home()
        apart = {key: value.detach().cpu().clone() for key, value in tensors.items()}  # views share memory
        with self.lock(), unharmed(self.directory, "what it holds is"):
            write_whole(self._batch_path(name), to_bytes(apart, {"name": json.dumps(name)}))

    def buffered(self) -> dict[str, dict[str, Tensor]]:
        """Return every batch of novel samples that is kept, sorted by name."""
        found = {}
        for path in (self.directory / "novel").glob("[!.]*.safetensors"):
            try:
                name = json.loads(read_metadata(path)["name"])
                found[str(name)] = read_tensors(path)
            except (ModelFileError, LookupError, ValueError) as error:
                raise ModelFileError(
                    f"{path} is not a batch of novel samples ({error}); delete it to go on without it"
                ) from error
        return dict(sorted(found.items()))

    def clear(self, names: Iterable[str]) -> None:
        """Delete batches of novel samples; a name under which nothing is kept does no harm."""
        self._require_home()
        with self.lock(), unharmed(self.directory, "what it holds is"):
            for name in names:
                self._batch_path(name).unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other run from changing this home; the system lets go of it however this one ends.

        Within it the same Home may ask again, as each of its changes does. The directory is made if need be.
        """
        if self._locked:
            yield
            return
        import fcntl  # noqa: PLC0415 (not on every system, and reading does without)

        with unharmed(self.directory, "what it holds is"):
            self.directory.mkdir(parents=True, exist_ok=True)
            file = (self.directory / ".lock").open("ab")
        with file:
            with unharmed(self.directory, "what it holds is"):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise ModelFileError(
                        f"{self.directory}: another run is using it; wait until that ends, or stop it"
                    ) from error
            self._locked = True
            try:
                yield
            finally:
                self._locked = False
                fcntl.flock(file, fcntl.LOCK_UN)  # also where a forked process holds the file open

    def _plain_files(self) -> list[Path]:
        """Return the files of a plain model at the top of the directory."""
        return sorted(path for path in self.directory.glob("*") if _PLAIN.fullmatch(path.name))

    def _copy_plain(self, to: Path) -> None:
        on_disk.link_files(self._plain_files(), to)

    def _version_of_plain(self) -> int | None:
        """Return the version that holds every file of the plain model, if an adoption got that far."""
        for version in self.versions():
            models = self.directory / "models" / on_disk.version_name(version)
            if all(on_disk.equal_files(path, models / path.name) for path in self._plain_files()):
                return version
        return None

    def _remove_plain(self) -> None:
        """Delete the files at the top, once a version holds them all."""
        if self._version_of_plain() is None:
            names = ", ".join(path.name for path in self._plain_files())
            raise ModelFileError(
                f"{self.directory} keeps versions of a model; at its top stand files of another ({names}): "
                "move those elsewhere"
            )
        for path in self._plain_files():
            path.unlink()

    def _check_beginning(self) -> None:
        """Raise unless a home can begin here without touching anything else."""
        if self.directory.exists() and not self.directory.is_dir():
            raise ModelFileError(f"{self.directory} is a file; name a directory for the model")
        if self.exists:
            raise ModelFileError(f"{self.directory} keeps versions of a model already; add one by commit")
        if (self.directory / "model.json").exists():
            raise ModelFileError(f"{self.directory} holds a plain model; make it a home by adopt")
        if (self.directory / "events.jsonl").exists():
            on_disk.resolve(self.directory)  # raises where versions are there and only `current` is missing
        self._refuse_strangers(_HOME)

    def _check_adoption(self) -> None:
        """Raise unless the directory is a home or holds a plain model and nothing else."""
        if self.exists:
            return
        if not (self.directory / "model.json").is_file():
            on_disk.resolve(self.directory)  # raises where versions are there and only `current` is missing
            raise ModelFileError(f"{self.directory} holds no model; train one there first")
        self._refuse_strangers(re.compile(rf"{_PLAIN.pattern}|{_HOME.pattern}|checkpoint\.safetensors"))

    def _refuse_strangers(self, ours: re.Pattern[str]) -> None:
        numbers = {on_disk.version_name(number) for number in self.versions()}
        models = (self.directory / "models").glob("[!.]*")
        strangers = [path.name for path in self.directory.glob("*") if not ours.fullmatch(path.name)]
        strangers += [f"models/{path.name}" for path in models if path.name not in numbers]
        if strangers:
            raise ModelFileError(
                f"{self.directory} holds other files ({min(strangers)}); name a directory for the model alone"
            )

    def _require_home(self) -> None:
        on_disk.read_current(self.directory)  # raises, saying what is missing

    def _batch_path(self, name: str) -> Path:
        """Return a batch's file, called after it as far as file systems allow, the rest told by a digest.

        Some file systems do not tell capitals from small letters, so names with capitals get a digest too.
        """
        safe = re.sub(r"[^a-z0-9_-]", "-", name.lower())[:_LONGEST_NAME]
        if safe != name or not name:
            safe += "-" + hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
        return self.directory / "novel" / f"{safe}.safetensors"

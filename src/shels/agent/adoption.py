"""How a directory becomes a home: empty, or with a plain model whose files go into its first version."""

from __future__ import annotations

import re
from pathlib import Path

from shels.errors import ModelFileError
from shels.learner import versions

_PLAIN = re.compile(r"model\.json|[a-z]+-[0-9a-f]{12}\.safetensors")  # what a plain model consists of
_HOME = re.compile(r"models|novel|\..*")  # what a home that is not begun yet may hold


def plain_files(directory: Path) -> list[Path]:
    """Return the files of a plain model at the top of a directory."""
    return sorted(path for path in directory.glob("*") if _PLAIN.fullmatch(path.name))


def adopt(directory: Path) -> None:
    """Put the files of a plain model into a version, and remove them at the top once it holds them all."""
    if not versions.is_home(directory):
        check_adoption(directory)
        number = _version_of_plain(directory) or versions.add_version(
            directory, lambda to: versions.link_files(plain_files(directory), to)
        )
        versions.write_current(directory, number)
    if _version_of_plain(directory) is None:
        names = ", ".join(path.name for path in plain_files(directory))
        raise ModelFileError(
            f"{directory} keeps versions of a model; at its top stand files of another ({names}): "
            "move those elsewhere"
        )
    for path in plain_files(directory):
        path.unlink()


def check_beginning(directory: Path) -> None:
    """Raise unless a home can begin here without touching anything else."""
    if directory.exists() and not directory.is_dir():
        raise ModelFileError(f"{directory} is a file; name a directory for the model")
    if versions.is_home(directory):
        raise ModelFileError(f"{directory} keeps versions of a model already; add one by change")
    if (directory / "model.json").exists():
        raise ModelFileError(f"{directory} holds a plain model; make it a home by adopt")
    if (directory / "events.jsonl").exists():
        versions.resolve(directory)  # raises where versions are there and only `current` is missing
    _refuse_strangers(directory, _HOME)


def check_adoption(directory: Path) -> None:
    """Raise unless the directory is a home or holds a plain model and nothing else."""
    if versions.is_home(directory):
        return
    if not (directory / "model.json").is_file():
        versions.resolve(directory)  # raises where versions are there and only `current` is missing
        raise ModelFileError(f"{directory} holds no model; train one there first")
    _refuse_strangers(directory, re.compile(rf"{_PLAIN.pattern}|{_HOME.pattern}|checkpoint\.safetensors"))


def _version_of_plain(directory: Path) -> int | None:
    """Return the version that holds every file of the plain model, if an adoption got that far."""
    for version in versions.versions(directory):
        model = directory / "models" / versions.version_name(version)
        if all(versions.equal_files(path, model / path.name) for path in plain_files(directory)):
            return version
    return None


def _refuse_strangers(directory: Path, ours: re.Pattern[str]) -> None:
    numbers = {versions.version_name(number) for number in versions.versions(directory)}
    models = (directory / "models").glob("[!.]*")
    strangers = [path.name for path in directory.glob("*") if not ours.fullmatch(path.name)]
    strangers += [f"models/{path.name}" for path in models if path.name not in numbers]
    if strangers:
        raise ModelFileError(
            f"{directory} holds other files ({min(strangers)}); name a directory for the model alone"
        )

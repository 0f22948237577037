"""A learner on disk: `model.json` for people and programs, safetensors for numbers; nothing executable.

    model.json                      format version, classes, thresholds, settings, network, report
    network-DIGEST.safetensors      every weight
    preparation-DIGEST.safetensors  what inputs are divided by, and the ranges of image statistics
    detector-DIGEST.safetensors     thresholds and calibration scores
    memory-DIGEST.safetensors       what the way of taking in classes keeps of the old ones
    projection-DIGEST.safetensors   directions and covariances fixed by the first classes (Gaussian detector)
    class-DIGEST.safetensors        count, mean and scatter, a file for each Gaussian

`model.json` names the others by their digests and is put in place last, so that a directory holds the old
model or the new one at every moment, never a mixture. Equal content has equal names in every version.
"""

import hashlib
import json
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shels._version import __version__
from shels.config import from_dict, to_dict
from shels.data.preparation import Preparation
from shels.detection.drift import ImageStatistics
from shels.detection.protocol import StoredParts
from shels.errors import MissingExtraError, ModelFileError
from shels.files import read_tensors, require_regular, to_bytes, write_whole
from shels.learner import tables
from shels.learner.detector_tables import check_detector
from shels.learner.document import check_document
from shels.learner.memory_tables import check_memory
from shels.learner.pairing import detector_beside
from shels.learner.versions import is_home, read_current, resolve, version_name, versions
from shels.model.chains import describe, unset
from shels.model.networks import Network, outline
from shels.schema import check_tensors

FORMAT, VERSION = "shels-model", 2
_PARTS = ("network", "preparation", "detector", "memory", "projection")
_CLASS = "class"

Document = dict[str, Any]  # model.json
Fields = dict[str, Any]  # the fields of a Learner


def save(directory: Path, learner: Fields) -> None:
    """Write a learner's fields into a directory that is new, empty or holds a model already."""
    _check_classes((*learner["classes"], "" if learner["novel_label"] is None else learner["novel_label"]))
    if not learner["detector"].thresholds.isfinite().all():
        raise ModelFileError("the model has a threshold that is no number, so it could not be loaded again")
    check_target(directory)
    tensors = _tensors(learner)
    sums = tensors.pop(_CLASS)
    files: dict[str, Any] = {part: _write_part(directory, part, value) for part, value in tensors.items()}
    files[_CLASS] = [_write_part(directory, _CLASS, value) for value in sums]
    write_whole(directory / "model.json", json.dumps(signed(_document(learner, files)), indent=1) + "\n")
    _tidy(directory, set(file_names(files)))


def file_names(files: dict[str, Any]) -> list[str]:
    """Return the names of the files that a model.json lists by their digests."""
    names = [_file_name(part, files[part]) for part in _PARTS]
    return names + [_file_name(_CLASS, digest) for digest in files[_CLASS]]


def _write_part(directory: Path, part: str, tensors: dict[str, Tensor]) -> str:
    """Write one file, unless it is there already, and return its digest."""
    data = to_bytes(tensors)
    digest = hashlib.sha256(data).hexdigest()
    path = directory / _file_name(part, digest)
    if not path.is_file() or path.read_bytes() != data:
        write_whole(path, data)
    return digest


def _tidy(directory: Path, needed: set[str]) -> None:
    """Delete what earlier models left, and the temporary files of savings that were cut off."""
    temporary = re.compile(r"\.(model\.json|[a-z]+(-[0-9a-f]{12})?\.safetensors)\.[0-9a-f]{8}")
    for path in directory.iterdir():
        old = path.match("*-*.safetensors") and path.name not in needed
        if old or temporary.fullmatch(path.name):
            path.unlink(missing_ok=True)


def load(directory: Path, device: torch.device, own: nn.Module | None = None) -> Fields:
    """Return the fields of the learner in a directory, of a home its current version, every part checked.

    own: the module of a backbone of one's own, which no file can hold. Where a version of a home cannot be
    read, the error says how to go back to one that can.
    """
    try:
        return _load(resolve(directory), device, own)
    except ModelFileError as error:
        advice = _way_back(directory)
        if not advice:
            raise
        raise ModelFileError(f"{error}; {advice}") from error


def _load(directory: Path, device: torch.device, own: nn.Module | None) -> Fields:
    document = _read_document(directory)
    try:
        check_document(document)
        return _fields(document, *_read_parts(directory, document["files"]), device, own)
    except MissingExtraError:
        raise
    except ModelFileError as error:
        if str(directory) in str(error):
            raise
        raise ModelFileError(f"{directory}: {error}") from error
    except Exception as error:
        first = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise ModelFileError(f"{directory / 'model.json'} does not describe a model: {first}") from error


def _way_back(directory: Path) -> str:
    """Name the newest other version of a home that is whole, and how to use it; nothing of a plain model."""
    home = directory.parents[1] if directory.parent.name == "models" else directory
    broken = directory.name if home != directory else ""
    there: list[int] = []
    with suppress(ModelFileError):
        there = versions(home)
        broken = broken or version_name(read_current(home))
    for number in reversed(there):
        if version_name(number) != broken and _is_whole(home / "models" / version_name(number)):
            command = shlex.join(["shels", "revise", str(home), "rollback", str(number)])
            return f"version {number} is whole: {command} puts it in use"
    return ""


def _is_whole(directory: Path) -> bool:
    """Tell whether every file of a version is there as it was saved."""
    try:
        document = _read_document(directory)
        check_document(document)
        _read_parts(directory, document["files"])
    except (ModelFileError, OSError):
        return False
    return True


def identity(directory: Path) -> str:
    """Return what tells a saved model from others: the checksum of its document, which has its files' own.

    Of a home it is that of the current version.
    """
    return str(_read_document(resolve(directory))["checksum"])


def _fields(
    document: Document,
    parts: dict[str, dict[str, Tensor]],
    sums: list[dict[str, Tensor]],
    device: torch.device,
    own: nn.Module | None = None,
) -> Fields:
    """Return the fields of a learner from its files, once all of them are as their tables say."""
    settings = from_dict(document["settings"])
    network = _network(document, parts["network"], own).to(device)
    said, numbers, classes = document["preparation"], parts["preparation"], document["classes"]
    shape, stored = tuple(said["shape"]), StoredParts(parts["detector"], parts["projection"], sums)
    model = tables.Model.of(network, settings, shape, len(classes))
    tables.check_preparation(model, numbers)
    check_memory(model, parts["memory"])
    check_detector(model, stored)
    memory = {name: value.to(device) for name, value in parts["memory"].items()}
    entry, context = detector_beside(network, memory, settings, tuple(classes))
    detector = entry.load(context, stored)
    stated = torch.tensor(document["thresholds"], dtype=torch.float64)
    if not torch.allclose(detector.thresholds.cpu().double(), stated, rtol=1e-5, atol=1e-7):
        raise ModelFileError("model.json has other thresholds than the detector file")
    preparation = Preparation(shape, said["image_fit"], numbers.get("mean"), numbers.get("sd"))
    ranges = [numbers[name] for name in ("look/low", "look/high") if name in numbers]
    return {
        "network": network,
        "classes": tuple(classes),
        "taught": tuple(document["taught"]),
        "detector": detector,
        "preparation": preparation.to(device),
        "statistics": ImageStatistics(*ranges) if ranges else None,
        "settings": settings,
        "memory": memory,
        "temperature": float(document["temperature"]),
        **{name: document[name] for name in ("seed", "novel_label", "report")},
    }


def _document(learner: Fields, files: dict[str, Any]) -> Document:
    preparation = learner["preparation"]
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "shels_version": __version__,
        "classes": list(learner["classes"]),
        "taught": list(learner["taught"]),
        "thresholds": learner["detector"].thresholds.tolist(),
        "settings": to_dict(learner["settings"]),
        "seed": learner["seed"],
        "temperature": learner["temperature"],
        "novel_label": learner["novel_label"],
        "preparation": {"shape": list(preparation.shape), "image_fit": preparation.image_fit},
        "network": describe(learner["network"].body),
        "files": files,
        "report": learner["report"],
    }


def _tensors(learner: Fields) -> dict[str, Any]:
    preparation = {name: getattr(learner["preparation"], name) for name in ("mean", "sd")}
    if learner["statistics"] is not None:
        preparation |= {"look/low": learner["statistics"].low, "look/high": learner["statistics"].high}
    changing, fixed, sums = learner["detector"].tensors()
    return {
        "network": learner["network"].state_dict(),
        "preparation": {name: value for name, value in preparation.items() if value is not None},
        "detector": changing,
        "memory": learner["memory"],
        "projection": fixed,
        _CLASS: sums,
    }


def _network(document: Document, weights: dict[str, Tensor], own: nn.Module | None = None) -> Network:
    """Return the network; it gets memory once the stored weights are known to fit its description."""
    shape = tuple(document["preparation"]["shape"])
    said = document["settings"]["network"]
    given = said["head"], len(document["taught"]), said.get("scale", 1.0)
    network = outline(document["network"], shape, *given, own)
    check_tensors(weights, tables.network_table(network), {}, "the network file")
    unset(network, "cpu").load_state_dict(weights)
    return network.eval()


def _read_document(directory: Path) -> Document:
    path = directory / "model.json"
    require_regular(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelFileError(f"{directory} holds no model; name one, or train one there first") from error
    except (ValueError, OSError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a shels model")
    version = document.get("format_version")
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        raise ModelFileError(
            f"{path} has format version {document.get('format_version')!r}, this shels ({__version__}) reads "
            f"{VERSION}; use the shels that wrote it ({document.get('shels_version')})"
        )
    try:
        genuine = signed(document) == document
    except RecursionError as error:
        raise ModelFileError(f"{path} is damaged: it is nested too deep") from error
    if not genuine:
        raise ModelFileError(f"{path} was edited or damaged: its checksum differs; save the model again")
    return document


def signed(document: Document) -> Document:
    """Return a document with the checksum of all the rest, so that an edit is noticed, not obeyed."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    return rest | {"checksum": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def _read_parts(
    directory: Path, files: dict[str, Any]
) -> tuple[dict[str, dict[str, Tensor]], list[dict[str, Tensor]]]:
    parts = {part: _read_part(directory, part, files[part]) for part in _PARTS}
    return parts, [_read_part(directory, _CLASS, digest) for digest in files[_CLASS]]


def _read_part(directory: Path, part: str, digest: str) -> dict[str, Tensor]:
    path = directory / _file_name(part, digest)
    tensors = read_tensors(path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise ModelFileError(f"{path} is not the file that was saved: its checksum differs")
    return tensors


def _file_name(part: str, digest: str) -> str:
    return f"{part}-{digest[:12]}.safetensors"


def _check_classes(classes: tuple[Any, ...]) -> None:
    for name in classes:
        if not isinstance(name, str | int | float | bool):
            raise ModelFileError(f"the label {name!r} cannot be saved: use text or numbers")


def check_target(directory: Path) -> None:
    """Raise unless a model can be saved in this directory without touching anything else."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ModelFileError(f"{directory} is a file; name a directory to save the model in")
    if is_home(directory):
        raise ModelFileError(
            f"{directory} holds a model with its history; name another directory, so that nothing is lost"
        )
    kinds = "|".join((*_PARTS, _CLASS))
    ours = re.compile(rf"model\.json|checkpoint\.safetensors|({kinds})-[0-9a-f]{{12}}\.safetensors|\..*")
    strangers = sorted(path.name for path in directory.iterdir() if not ours.fullmatch(path.name))
    if strangers:
        raise ModelFileError(
            f"{directory} holds other files ({strangers[0]}); name a directory for the model alone"
        )

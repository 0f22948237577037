"""A learner on disk: `model.json` for people and programs, safetensors for numbers; nothing executable.

    model.json                    format version, classes, thresholds, settings, network as plain data, report
    network-DIGEST.safetensors    every weight
    detector-DIGEST.safetensors   preparation and calibration scores

`model.json` names the other two by their digests and is put in place last, so that a directory holds the old
model or the new one at every moment, never a mixture.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shels._version import __version__
from shels.config import from_dict, to_dict
from shels.data.preparation import Preparation
from shels.detection import Detector
from shels.errors import ModelFileError, ShelsError
from shels.files import read_tensors, to_bytes, write_whole
from shels.model.chains import describe, rebuild
from shels.model.networks import Network, attach_head

FORMAT, VERSION = "shels-model", 1
_PARTS = ("network", "detector")

Fields = dict[str, Any]  # the fields of a Learner


def save(directory: Path, learner: Fields) -> None:
    """Write a learner's fields into a directory that is new, empty or holds a model already."""
    _check_classes((*learner["classes"], "" if learner["novel_label"] is None else learner["novel_label"]))
    check_target(directory)
    files = {}
    for part, tensors in _tensors(learner).items():
        data = to_bytes(tensors)
        digest = hashlib.sha256(data).hexdigest()
        files[part] = digest
        write_whole(directory / _file_name(part, digest), data)
    write_whole(directory / "model.json", json.dumps(signed(_document(learner, files)), indent=1) + "\n")
    _tidy(directory, {_file_name(part, digest) for part, digest in files.items()})


def _tidy(directory: Path, needed: set[str]) -> None:
    """Delete what earlier models left, and the temporary files of savings that were cut off."""
    temporary = re.compile(r"\.(model\.json|[a-z]+(-[0-9a-f]{12})?\.safetensors)\.[0-9a-f]{8}")
    for path in directory.iterdir():
        old = path.match("*-*.safetensors") and path.name not in needed
        if old or temporary.fullmatch(path.name):
            path.unlink(missing_ok=True)


def load(directory: Path, device: torch.device) -> Fields:
    """Return the fields of the learner in a directory, every part checked against the others."""
    document = _read_document(directory)
    try:
        parts = {part: _read_part(directory, part, document["files"][part]) for part in _PARTS}
        network = _network(document, parts["network"])
        network.to(device)
        return {
            "network": network,
            "classes": tuple(document["classes"]),
            "detector": _detector(document, parts["detector"], network),
            "preparation": _preparation(document, parts["detector"]).to(device),
            "settings": from_dict(document["settings"]),
            "seed": document["seed"],
            "temperature": _positive(document["temperature"]),
            "novel_label": document["novel_label"],
            "report": dict(document["report"]),
        }
    except ModelFileError:
        raise
    except (ShelsError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ModelFileError(
            f"{directory / 'model.json'} does not describe a model: {_first_line(error)}"
        ) from error


def _document(learner: Fields, files: dict[str, str]) -> dict[str, Any]:
    preparation = learner["preparation"]
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "shels_version": __version__,
        "classes": list(learner["classes"]),
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


def _tensors(learner: Fields) -> dict[str, dict[str, Tensor]]:
    detector = {"calibration": learner["detector"].calibration}
    for name in ("mean", "sd"):
        value = getattr(learner["preparation"], name)
        if value is not None:
            detector[f"preparation/{name}"] = value
    return {"network": learner["network"].state_dict(), "detector": detector}


def _network(document: dict[str, Any], weights: dict[str, Tensor]) -> Network:
    body = rebuild(document["network"])
    shape = tuple(document["preparation"]["shape"])
    head = document["settings"]["network"]["head"]
    network = attach_head(body, shape, head, len(document["classes"]), seed=0)
    own = network.state_dict()
    for name in own.keys() | weights.keys():
        theirs = tuple(weights[name].shape) if name in weights else "missing"
        ours = tuple(own[name].shape) if name in own else "not in the network"
        if theirs != ours:
            raise ModelFileError(f"the network file: {name} is {theirs}, model.json says {ours}")
    network.load_state_dict(weights)
    return network.eval()


def _detector(document: dict[str, Any], parts: dict[str, Tensor], network: Network) -> Detector:
    weight = network.head.weight.detach()
    thresholds, classes = document["thresholds"], document["classes"]
    if len(set(classes)) != len(classes) or len(thresholds) != len(classes):
        raise ModelFileError(f"model.json has {len(thresholds)} thresholds for the classes {classes}")
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in thresholds):
        raise ModelFileError(f"model.json: thresholds must be finite numbers, got {thresholds}")
    detector = Detector(weight, from_dict(document["settings"]).rule)
    detector.thresholds = torch.tensor(thresholds, dtype=weight.dtype, device=weight.device)
    detector.calibration = parts["calibration"].to(weight.device)
    shape = tuple(detector.calibration.shape)
    if len(shape) != 2 or len(classes) != shape[0] or not detector.calibration[:, :1].isfinite().all():
        raise ModelFileError(f"the detector file: calibration of shape {shape} does not fit the classes")
    return detector


def _preparation(document: dict[str, Any], parts: dict[str, Tensor]) -> Preparation:
    said = document["preparation"]
    mean, sd = parts.get("preparation/mean"), parts.get("preparation/sd")
    shape = tuple(said["shape"])
    if said["image_fit"] not in ("resize", "pad"):
        raise ModelFileError(f"model.json: image_fit must be resize or pad, got {said['image_fit']!r}")
    if any(value is not None and value.shape != shape[:1] for value in (mean, sd)):
        raise ModelFileError(f"the detector file: mean and sd do not fit inputs of shape {shape}")
    return Preparation(shape, said["image_fit"], mean, sd)


def _positive(value: object) -> float:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ModelFileError(f"model.json: temperature must be a number over 0, got {value!r}")
    return float(value)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _read_document(directory: Path) -> dict[str, Any]:
    path = directory / "model.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelFileError(f"{directory} holds no model: {path} does not exist") from error
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
    if signed(document) != document:
        raise ModelFileError(f"{path} was edited or damaged: its checksum differs; save the model again")
    return document


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the checksum of all the rest, so that an edit is noticed, not obeyed."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    return rest | {"checksum": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


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
    ours = re.compile(
        rf"model\.json|checkpoint\.safetensors|({'|'.join(_PARTS)})-[0-9a-f]{{12}}\.safetensors|\..*"
    )
    strangers = sorted(path.name for path in directory.iterdir() if not ours.fullmatch(path.name))
    if strangers:
        raise ModelFileError(
            f"{directory} holds other files ({strangers[0]}); name a directory for the model alone"
        )

"""Saved models with one thing changed and signed again: a ModelFileError on loading, or all works.

`python tests/learner/test_mutated_models.py [COUNT] [SEED] [MODEL ...]` tries more of them, 3,000 by default.
"""

from __future__ import annotations

import collections
import hashlib
import json
import math
import random
import signal
import sys
import tempfile
import traceback
import warnings
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from shels.cli.app import app
from shels.data.samples import Samples
from shels.errors import ModelFileError, ShelsError
from shels.files import read_tensors, to_bytes
from shels.learner.learner import Learner
from shels.learner.storage import file_names

BEFORE = Path(__file__).parents[1] / "fixtures" / "before"
KINDS = ("gaussian", "penalty", "proximal", "slda-knn", "ewc-msp", "home/models/0001", "home/models/0003")
FIXED = ("files", "checksum", "format", "format_version")
DEEP = '"nested deep"'
SECONDS = 20


# The mutations --------------------------------------------------------------------------------------------


def values(old, draw):
    """Return what a value of JSON may become."""
    odd = [
        None,
        True,
        False,
        "x",
        "",
        -1,
        0,
        0.5,
        -1.5,
        math.nan,
        math.inf,
        -math.inf,
        10**9,
        10**30,
        10**400,
    ]
    odd += [1e308, 1e-308, [], {}, [old], {"a": old}, [[]], json.loads(DEEP), [1] * 50]
    if isinstance(old, int | float) and not isinstance(old, bool):
        odd += [-old, old + 1, old * 1000, float(old), str(old)]
    if isinstance(old, list) and old:
        odd += [old[::-1], old[:-1], old + old[-1:], old[:1]]
    return draw.choice(odd)


def leaves(data, path=()):
    """Yield the path of everything in a document but what names the files."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if path or key not in FIXED:
            yield (*path, key)
            if isinstance(value, dict | list):
                yield from leaves(value, (*path, key))


def mutate_document(document, draw):
    *path, key = draw.choice(list(leaves(document)))
    place = document
    for each in path:
        place = place[each]
    way = draw.choice(("value", "value", "value", "value", "dropped", "renamed"))
    if way == "value":
        place[key] = values(place[key], draw)
    elif way == "dropped" or isinstance(place, list):
        del place[key]
    else:
        place[f"{key}s"] = place.pop(key)
    return f"{way} {'.'.join(map(str, (*path, key)))} -> {str(place)[:80] if way == 'value' else ''}"


def _one(number):
    def change(value):
        value = value.clone() if value.is_floating_point() else value.double()
        value.reshape(-1)[-1:] = number
        return value

    return change


TENSORS = {
    "one more dimension": lambda v: v[None],
    "flat": lambda v: v.reshape(-1),
    "a row less": lambda v: v[:-1] if v.ndim else v[None],
    "a row more": lambda v: torch.cat([v, v[:1]]) if v.ndim else v.repeat(2),
    "a column less": lambda v: v[..., :-1] if v.ndim > 1 else v[None],
    "turned": lambda v: v.mT.contiguous() if v.ndim > 1 else v[None],
    "empty": lambda v: v.reshape(-1)[:0],
    "half precision": lambda v: v.half(),
    "double precision": lambda v: v.double(),
    "whole numbers": lambda v: v.nan_to_num(0, 0, 0).long(),
    "true and false": lambda v: v.bool(),
    "bytes": lambda v: v.nan_to_num(0, 0, 0).to(torch.uint8),
    "complex": lambda v: v.to(torch.complex64),
    "one NaN": _one(math.nan),
    "one infinite": _one(math.inf),
    "one minus infinity": _one(-math.inf),
    "one negative": _one(-1e3),
    "all NaN": lambda v: torch.full_like(v.float(), math.nan),
    "negative": lambda v: -v,
    "zero": torch.zeros_like,
    "ones": torch.ones_like,
    "huge": lambda v: (v.double() * 1e9).to(v.dtype),
    "tiny": lambda v: (v.double() * 1e-9).to(v.dtype),
    "in another order": lambda v: v.reshape(-1).flip(0).reshape(v.shape),
    "rows in another order": lambda v: v.flip(0) if v.ndim else -v,
    "not symmetric": lambda v: torch.triu(v) if v.ndim > 1 else v.neg(),
}


def mutate_tensors(parts, draw):
    part = draw.choice([part for part in parts if part])
    name = draw.choice(sorted(part))
    way = draw.choice((*TENSORS, "dropped", "another name", "one more"))
    if way in TENSORS:
        part[name] = TENSORS[way](part[name]).contiguous()
    elif way == "one more":
        part[f"{name}s"] = part[name].clone()
    else:
        value = part.pop(name)
        if way == "another name":
            part[f"{name}s"] = value
    return f"{way}: {name}"


def write(directory, document, parts, names):
    """Write a model with new digests, signed as saving does it; `DEEP` becomes lists in lists."""
    files = {}
    for name, tensors in zip(names, parts, strict=True):
        data = to_bytes(tensors)
        digest, kind = hashlib.sha256(data).hexdigest(), name.split("-")[0]
        (directory / f"{kind}-{digest[:12]}.safetensors").write_bytes(data)
        files[kind] = [*files.get(kind, []), digest] if kind == "class" else digest
    rest = {key: value for key, value in document.items() if key != "checksum"}
    rest["files"] = {**files, "class": files.get("class", [])}

    depth = random.Random(len(str(document))).choice((30, 900, 100_000))

    def dumped(data):
        return json.dumps(data, sort_keys=True).replace(DEEP, "[" * depth + "]" * depth)

    checksum = hashlib.sha256(dumped(rest).encode()).hexdigest()
    (directory / "model.json").write_text(dumped(rest | {"checksum": checksum}))


# What a model that loads must do --------------------------------------------------------------------------


class HangError(BaseException):
    pass


@contextmanager
def in_time(seconds):
    def stop(*_):
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judged(learner, images):
    verdicts = learner.judge(images)
    assert not verdicts.score.isnan().any(), "a score is NaN"
    assert (verdicts.score < math.inf).all(), "a score is infinite"
    assert verdicts.threshold.isfinite().all(), "a threshold is not finite"
    assert verdicts.p_value.isfinite().all(), "a p-value is not finite"
    assert learner.probabilities(images).isfinite().all(), "a probability is not finite"


def used(learner, directory, images):
    """Do with a model what people do: judge, measure, save, look at it, teach it a class."""
    if len(learner.preparation.shape) == 1:
        images = images.flatten(1) / 255
    judged(learner, images)
    labels = torch.arange(len(images)) % len(learner.classes)
    measures = learner.evaluate(Samples(images, labels, learner.classes))
    assert math.isfinite(measures["closed_set_accuracy"])
    learner.save(directory / "again")
    shown = CliRunner().invoke(app, ["inspect", str(directory / "again"), "--json"])
    assert shown.exit_code == 0, shown.output
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            grown = learner.accommodate(images[:24], "another")
        except ShelsError:
            return  # what such a model cannot learn it says
    judged(grown, images)
    grown.save(directory / "grown")
    Learner.load(directory / "grown", "cpu")


def attempt(model, images, draw):
    """Return what was changed, and what came of it: "refused", "works", or a fault."""
    document = json.loads((model / "model.json").read_text())
    names = file_names(document["files"])
    parts = [read_tensors(model / name) for name in names]
    document = deepcopy(document)
    change = mutate_document(document, draw) if draw.random() < 0.5 else mutate_tensors(parts, draw)
    with tempfile.TemporaryDirectory() as scratch, in_time(SECONDS):
        place = Path(scratch) / "model"
        place.mkdir()
        write(place, document, parts, names)
        try:
            learner = Learner.load(place, "cpu")
        except ModelFileError:
            return change, "refused", None
        except (Exception, HangError) as error:  # noqa: BLE001
            return change, f"load: {type(error).__name__}", error
        try:
            used(learner, Path(scratch), images)
        except (Exception, HangError) as error:  # noqa: BLE001
            return change, f"use: {type(error).__name__}", error
    return change, "works", None


def some_images():
    with np.load(BEFORE / "images.npz") as file:
        return torch.from_numpy(file["x"])[:40]


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_model_is_refused_or_works(kind):
    draw, images = random.Random(KINDS.index(kind)), some_images()
    found = [attempt(BEFORE / kind, images, draw) for _ in range(45)]
    faults = [(change, came) for change, came, _ in found if came not in ("refused", "works")]
    assert not faults
    assert sum(came == "refused" for _, came, _ in found) > 10


def main(count=3000, seed=0, *models):
    draw, images, tally = random.Random(int(seed)), some_images(), collections.Counter()
    places = [Path(model) for model in models] or [BEFORE / kind for kind in KINDS]
    for turn in range(int(count)):
        model = places[turn % len(places)]
        change, came, error = attempt(model, images, draw)
        tally[came] += 1
        if error is not None:
            print(f"{model.name}: {change}: {came}")  # noqa: T201
            traceback.print_exception(error, limit=-3)
    print(dict(tally))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])

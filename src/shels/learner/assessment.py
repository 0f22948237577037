"""What a learner says of data on disk: a verdict on each sample of some files, measures on a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shels.data.inputs import choose_part, load_in_form, read_inputs
from shels.data.sources import NAMED
from shels.data.splits import divide
from shels.learner.graph import as_graph_inputs

if TYPE_CHECKING:
    from shels.data.samples import Label, Samples
    from shels.learner.learner import Learner


@dataclass(frozen=True)
class FileVerdict:
    """The verdict on one sample: "novel", or the class that is predicted."""

    source: str
    verdict: Label
    predicted: Label
    score: float
    threshold: float
    p_value: float
    novel: bool


@dataclass(frozen=True, eq=False)
class Assessment:
    """Measures of a learner on a part of a data set. left_out: how many samples were not counted."""

    known: Samples
    novel: Samples
    left_out: int
    part: str
    measures: dict[str, Any]


def file_verdicts(learner: Learner, paths: Sequence[Path]) -> list[FileVerdict]:
    """Decide on every sample in image files, folders and .npz files; all are read before the first."""
    groups = [group for path in paths for group in read_inputs(path, learner.preparation)]
    out = []
    for inputs, names in groups:
        found = learner.judge(inputs)
        columns = (found.predicted, found.score, found.threshold, found.p_value, found.novel)
        rows = zip(names, *(each.tolist() for each in columns), strict=True)
        for name, place, score, limit, p_value, novel in rows:
            verdict = "novel" if novel else learner.classes[place]
            out.append(FileVerdict(name, verdict, learner.classes[place], score, limit, p_value, novel))
    return out


def inputs_to_check(learner: Learner, data: str, data_dir: Path | None = None) -> Tensor:
    """Give every input of a data set, a folder of images or an image file, as an exported graph takes it."""
    path = Path(data).expanduser()
    if data in NAMED or path.suffix.lower() == ".npz":
        found = load_in_form(data, data_dir, learner.preparation)
        groups = [found.train.inputs, found.test.inputs]
    else:
        groups = [inputs for inputs, _ in read_inputs(path, learner.preparation)]
    return torch.cat([as_graph_inputs(learner.preparation, each) for each in groups])


def assess(
    learner: Learner,
    data: str,
    *,
    data_dir: Path | None = None,
    novel_data: str | None = None,
    part: str | None = None,
) -> Assessment:
    """Measure a learner on a data set; classes that it does not know, or all of `novel_data`, are novel."""
    chosen = choose_part(load_in_form(data, data_dir, learner.preparation), part)
    known, novel = divide(chosen.samples, learner.classes)
    left_out = 0
    if novel_data is not None:
        left_out = len(novel)
        novel = choose_part(load_in_form(novel_data, data_dir, learner.preparation), part).samples
    return Assessment(known, novel, left_out, chosen.name, learner.evaluate(known, novel))

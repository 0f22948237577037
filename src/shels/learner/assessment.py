"""What a learner says of data on disk: a verdict on each sample of some files, measures on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.data.inputs import choose_part, input_groups, load_in_form
from shels.data.splits import divide
from shels.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from shels.data.samples import Label, Samples
    from shels.learner.learner import Learner

UNREADABLE = "unreadable"
"""The verdict on a file that is none: it could not be read."""


@dataclass(frozen=True)
class FileVerdict:
    """The verdict on one sample: "novel", the class that is predicted, or "unreadable" for such a file.

    novel: None where nothing could be said. reason: why a file could not be read.
    """

    source: str
    verdict: Label
    predicted: Label | None = None
    score: float | None = None
    threshold: float | None = None
    p_value: float | None = None
    novel: bool | None = None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Assessment:
    """Measures of a learner on a part of a data set. left_out: how many samples were not counted."""

    known: Samples
    novel: Samples
    left_out: int
    part: str
    measures: dict[str, Any]


def file_verdicts(learner: Learner, paths: Sequence[Path]) -> list[FileVerdict]:
    """Decide on every sample in image files, folders, zips, CSVs and .npz files; a group at a time is read.

    A file that cannot be read has a row that says so, unless that is true of all.
    """
    out: list[FileVerdict] = []
    for group in input_groups(paths, learner.preparation):
        if group.names:
            out += _verdicts(learner, group.inputs, group.names)
        out += [FileVerdict(each.name, UNREADABLE, reason=each.reason) for each in group.left_out]
    if all(each.novel is None for each in out):
        raise DataError(f"{out[0].source} {out[0].reason}")
    return out


def _verdicts(learner: Learner, inputs: Tensor, names: Sequence[str]) -> Iterator[FileVerdict]:
    found = learner.judge(inputs)
    columns = (found.predicted, found.score, found.threshold, found.p_value, found.novel)
    rows = zip(names, *(each.tolist() for each in columns), strict=True)
    for name, place, score, limit, p_value, novel in rows:
        verdict = "novel" if novel else learner.classes[place]
        yield FileVerdict(name, verdict, learner.classes[place], score, limit, p_value, novel)


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

"""What a learner says of data on disk: a verdict on each sample of some files, measures on a data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from shels.data.finding import LeftOut
from shels.data.inputs import choose_part, input_groups, load_in_form, read_inputs
from shels.data.reading import none_readable
from shels.data.samples import Samples
from shels.data.sources import NAMED
from shels.data.splits import divide
from shels.errors import DataError
from shels.learner.graph import as_graph_inputs

if TYPE_CHECKING:
    from shels.data.samples import Label
    from shels.learner.explanation import Explanation
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


class Examples(NamedTuple):
    """Known samples, and what each is called; None numbers them."""

    samples: Samples
    sources: Sequence[str] | None


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
            out += verdicts_on(learner, group.inputs, group.names)
        out += [FileVerdict(each.name, UNREADABLE, reason=each.reason) for each in group.left_out]
    if all(each.novel is None for each in out):
        raise none_readable([LeftOut(each.source, each.reason) for each in out])
    return out


def verdicts_on(learner: Learner, inputs: Tensor, names: Sequence[str]) -> Iterator[FileVerdict]:
    """Decide on inputs in memory, each called by a name."""
    found = learner.judge(inputs)
    columns = (found.predicted, found.score, found.threshold, found.p_value, found.novel)
    rows = zip(names, *(each.tolist() for each in columns), strict=True)
    for name, place, score, limit, p_value, novel in rows:
        verdict = "novel" if novel else learner.classes[place]
        yield FileVerdict(name, verdict, learner.classes[place], score, limit, p_value, novel)


def file_explanations(
    learner: Learner, paths: Sequence[Path], examples: Examples | None = None
) -> list[tuple[str, Explanation | str]]:
    """Explain the verdict on every sample that `file_verdicts` decides on: its name and why.

    A file that cannot be read has its name and the reason.
    """
    samples, sources = (None, None) if examples is None else examples
    out: list[tuple[str, Explanation | str]] = []
    for inputs, names, left_out in input_groups(paths, learner.preparation):
        if names:
            out += zip(names, learner.explain(inputs, samples, sources=sources), strict=True)
        out += [(each.name, each.reason) for each in left_out]
    return out


def read_examples(learner: Learner, data: str, data_dir: Path | None = None) -> Examples:
    """Read known samples to look for similar ones among, each with a name; other classes are left out.

    Of a named set or an .npz file it is the training part; of a folder all images below, each of the class
    that its folder is called.
    """
    path = Path(data).expanduser()
    if data in NAMED or path.suffix.lower() == ".npz":
        train = load_in_form(data, data_dir, learner.preparation).train
        places, labels = train.places(learner.classes, missing_ok=True)
        inputs, names = train.inputs[places], [f"{data} #{place}" for place in places.tolist()]
    else:
        groups = read_inputs(path, learner.preparation)
        every = torch.cat([as_graph_inputs(learner.preparation, each) for each, _ in groups])
        position = {str(name): place for place, name in enumerate(learner.classes)}
        called = [(name, position.get(Path(name).parent.name, -1)) for _, some in groups for name in some]
        places = torch.tensor([at for at, (_, label) in enumerate(called) if label >= 0], dtype=torch.long)
        inputs, names = every[places], [called[place][0] for place in places.tolist()]
        labels = torch.tensor([called[place][1] for place in places.tolist()], dtype=torch.long)
    if not len(inputs):
        raise DataError(f"{data} has no sample of the model's classes {list(learner.classes)}")
    return Examples(Samples(inputs, labels, learner.classes, origin=data), names)


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
    if not len(known):
        theirs, mine = (", ".join(map(str, each)) for each in (novel.classes, learner.classes))
        raise DataError(
            f"{data} has no sample of the model's classes ({mine}), but of {theirs}; give data that have "
            f"some, called as the model calls them, and these as --novel-data {data}"
        )
    left_out = 0
    if novel_data is not None:
        left_out = len(novel)
        novel = choose_part(load_in_form(novel_data, data_dir, learner.preparation), part).samples
    return Assessment(known, novel, left_out, chosen.name, learner.evaluate(known, novel))

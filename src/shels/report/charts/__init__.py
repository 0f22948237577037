"""All charts, by what they show and where they stand on a page.

To add a chart: write one function here beside the others, which takes what is shown and gives figures (none
where there is nothing to draw), and enter it below. The page, its PNG file and the Markdown follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from shels.agent.evaluation import EvaluatedRun
from shels.learner.examination import Examination
from shels.report.charts import (
    classes,
    detection,
    epochs,
    examination,
    learning,
    model,
    networks,
    open_world,
    run,
    sweeps,
)
from shels.report.drawing import Figure
from shels.report.evaluation import Evaluation
from shels.report.studies import Study

_Shown = TypeVar("_Shown")

Charts: TypeAlias = Mapping[str, Sequence[Callable[[_Shown], Sequence[Figure]]]]

FAMILY: Charts[Sequence[Study]] = {
    "within": (detection.overview,),
    "across": (detection.overview,),
    "exclusivity": (),
    "group-sparsity": (sweeps.curves,),
    "incremental": (learning.curves, epochs.curves),
    "open-world": (open_world.agents,),
    "few-shot": (sweeps.few_shot,),
    "osr": (),
    "other": (detection.overview,),
}
"""Of experiments of one family beside each other."""

STUDY: Charts[Study] = {"networks": (networks.training, networks.exclusivity), "classes": (classes.classes,)}
"""Of a single experiment."""

MODEL: Charts[Evaluation] = {
    "separation": (model.margins, model.roc),
    "classes": (model.class_bars,),
    "network": (model.training, model.exclusivity),
}
"""Of a trained model and the samples that it was evaluated on."""

RUN: Charts[EvaluatedRun] = {
    "batches": (run.timeline,),
    "batches without help": (run.timeline_without_accuracy,),
    "end": (run.final_bars,),
}
"""Of an agent's way through a stream."""


EXAMINATION: Charts[Examination] = {"operating": (examination.operating,)}
"""Of a model and the data that it was trained on."""


def drawn(table: Charts[_Shown], place: str, shown: _Shown) -> list[Figure]:
    """Draw all charts that are entered at a place of one of the tables above."""
    return [figure for chart in table[place] for figure in chart(shown)]

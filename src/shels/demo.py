"""The demonstration: seven digits are taught, then batches are shown, and new digits raise an alarm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shels import runtime, storage
from shels.config import Settings
from shels.data.arrays import sorted_classes
from shels.data.samples import Label, Samples
from shels.data.sources import load_named
from shels.data.splits import ClassSplit, draw_classes, split_data
from shels.files import check_writable, write_whole
from shels.learner import Learner, learn
from shels.presets import preset
from shels.report import detection, figures
from shels.report.page import Section, percent
from shels.training import Progress

KNOWN_COUNT = 7
ALARM_SHARE = 0.5
"""A batch raises an alarm when more than this share of it is judged novel."""


@dataclass(frozen=True)
class Batch:
    """A batch that was shown: the novel class it holds (None: known ones), and the share judged novel."""

    novel_class: Label | None
    share: float

    @property
    def alarm(self) -> bool:
        """Whether it looked new as a whole."""
        return self.share > ALARM_SHARE


def run(
    out: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    settings: Settings | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Run the demonstration and return its result; `out` gets result.json, report.html and the model.

    settings: how to train; by default those of the preset "default".
    """
    began = time.perf_counter()
    data = load_named("digits")
    split = draw_classes(data.train.classes, KNOWN_COUNT, seed)
    taught, known, novel = split_data(data, split)
    storage.check_target(out / "model")
    check_writable(out)
    chosen = preset("default") if settings is None else settings
    learner = learn(taught, chosen, seed=seed, device=device, progress=progress)
    measures = learner.evaluate(known, novel)
    batches = show(learner, known, novel, seed)
    learner.save(out / "model")
    counts = _number(len(split.known)).capitalize(), _number(len(split.novel))
    detection.write(
        out / "report.html",
        learner=learner,
        known=known,
        novel=novel,
        measures=measures,
        title=f"{counts[0]} digits known, {counts[1]} never seen",
        lead=_lead(split, batches),
        extra=[_section(batches)],
    )
    result = _result(split, batches, measures) | {"seconds": round(time.perf_counter() - began, 3)}
    write_whole(out / "result.json", json.dumps(result, indent=2) + "\n")
    return result


def show(learner: Learner, known: Samples, novel: Samples, seed: int) -> list[Batch]:
    """Return what the learner made of each batch: known samples mixed, then one batch of each novel class.

    There are as many known batches as known classes, so that all batches are of about one size.
    """
    order = torch.randperm(len(known), generator=runtime.generator(seed, "demo-batches"))
    parts = torch.tensor_split(order, len(known.classes))
    batches = [Batch(None, _share_novel(learner, known.take(part))) for part in parts]
    return batches + [Batch(name, _share_novel(learner, novel.only([name]))) for name in novel.classes]


def _share_novel(learner: Learner, samples: Samples) -> float:
    return float(learner.judge(samples.inputs).novel.float().mean())


def _result(split: ClassSplit, batches: list[Batch], measures: dict[str, Any]) -> dict[str, Any]:
    novel = [batch for batch in batches if batch.novel_class is not None]
    names = ("known_accuracy", "novel_accuracy", "combined_accuracy", "auroc")
    return {
        "known_classes": list(split.known),
        "novel_classes": list(split.novel),
        "found": [batch.novel_class for batch in novel if batch.alarm],
        "missed": [batch.novel_class for batch in novel if not batch.alarm],
        "false_alarms": sum(batch.alarm for batch in batches if batch.novel_class is None),
        "final_accuracy": measures["closed_set_accuracy"],
        "novel_accuracy": {name: rates["rejected"] for name, rates in measures["per_novel_class"].items()},
        "detection": {name: measures[name] for name in names},
    }


def _lead(split: ClassSplit, batches: list[Batch]) -> str:
    found, false_alarms = _alarms(batches)
    taught = ", ".join(map(str, sorted_classes(split.known)))
    return (
        f"A small network was taught the digits {taught} and then shown batches of new images. "
        f"{_of(found, len(split.novel)).capitalize()} digits that it had never seen raised an alarm, and "
        f"{_of(false_alarms, len(batches) - len(split.novel))} batches of known digits did."
    )


def _alarms(batches: list[Batch]) -> tuple[int, int]:
    """Return how many novel classes raised an alarm, and how many known batches did."""
    found = sum(batch.alarm for batch in batches if batch.novel_class is not None)
    return found, sum(batch.alarm for batch in batches) - found


def _section(batches: list[Batch]) -> Section:
    novel = [batch for batch in batches if batch.novel_class is not None]
    known_count = len(batches) - len(novel)
    found, false_alarms = _alarms(batches)
    words = (
        f"The test images came in {len(batches)} batches: first {known_count} of the known digits, mixed, "
        f"then one of each novel digit. A batch raises an alarm when over {percent(ALARM_SHARE, 0)} of it is "
        f"judged novel. {_of(found, len(novel)).capitalize()} novel batches raised one, and "
        f"{_of(false_alarms, known_count)} known batches did so falsely."
    )
    names = [str(batch.novel_class) for batch in novel]
    figure = figures.batches([batch.share for batch in batches], names, ALARM_SHARE)
    return Section("Batch by batch", [words, figure])


def _of(count: int, total: int) -> str:
    return f"all {_number(total)}" if count == total else f"{_number(count)} of the {_number(total)}"


def _number(count: int) -> str:
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[count] if count < len(words) else f"{count:,}"

"""The demonstration: seven digits are taught; an agent meets the other three in a stream and learns them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from shels.agent.agent import OpenWorldAgent
from shels.agent.evaluation import EvaluatedRun, RecordingOracle, evaluate_run
from shels.agent.home import Home
from shels.agent.oracle import Oracle
from shels.config import Settings
from shels.config.presets import SMALL_IMAGES
from shels.data.arrays import sorted_classes
from shels.data.samples import DataSet
from shels.data.sources import load_named
from shels.data.splits import ClassSplit, draw_classes, split_data
from shels.data.streams import mixed_stream, paper_stream
from shels.errors import ModelFileError
from shels.files import check_writable, write_whole
from shels.learner import storage
from shels.learner.learner import Learner, learning
from shels.report import open_world
from shels.report.words import comma, percent
from shels.training import Progress

KNOWN_COUNT = 7
BATCH_SIZE = 100
MIXED_BATCHES = 8
_MARK = ".demo"  # the file that says that a home was made here, and may be replaced


def run(
    out: Path, *, seed: int = 0, device: str = "auto", settings: Settings | None = None
) -> Generator[Progress, None, dict[str, Any]]:
    """Run the demonstration, report on the way, and return its result.

    `out` gets result.json, report.html, model (the first learner) and agent (the home of the one that went on
    learning); those of an earlier demonstration are replaced. settings: how to train; by default as
    the preset "default" does images.
    """
    began = time.perf_counter()
    data = load_named("digits")
    split = draw_classes(data.train.classes, KNOWN_COUNT, seed)
    taught, known, novel = split_data(data, split)
    storage.check_target(out / "model")
    _check_home(out / "agent")
    check_writable(out)
    chosen = SMALL_IMAGES if settings is None else settings
    learner = yield from learning(taught, chosen, seed=seed, device=device)
    learner.save(out / "model")
    yield Progress(1, 1, stage="meeting new digits")
    measures = learner.evaluate(known, novel)
    helped = with_help(learner, data, split, seed, _new_home(out / "agent", learner))
    open_world.write(
        out / "report.html",
        learner=learner,
        known=known,
        novel=novel,
        measures=measures,
        helped=helped,
        alone=without_help(learner, data, split, seed),
        title=_title(helped),
        lead=_lead(helped),
    )
    result = _result(split, helped, measures) | {"seconds": round(time.perf_counter() - began, 3)}
    write_whole(out / "result.json", json.dumps(result, indent=2) + "\n")
    return result


def with_help(
    learner: Learner, data: DataSet, split: ClassSplit, seed: int, home: Home | None = None
) -> EvaluatedRun:
    """Return the paper's protocol: known batches, then a new digit, of which an oracle gives more."""
    oracle = RecordingOracle(data.test)
    agent = OpenWorldAgent(learner, home=home, confirm=oracle, seed=seed)
    agent.supplier = Oracle(oracle, data.train, lambda: agent.learner.classes)
    stream = paper_stream(data.test, split.known, split.novel, batch_size=BATCH_SIZE, seed=seed)
    return evaluate_run(agent, stream, data.test, oracle)


def without_help(learner: Learner, data: DataSet, split: ClassSplit, seed: int) -> EvaluatedRun:
    """Return the mixed protocol with nobody to ask: it learns from what it saw, under names of its own."""
    oracle = RecordingOracle(data.test)
    agent = OpenWorldAgent(learner, confirm=oracle, seed=seed)
    stream = mixed_stream(
        data.test, split.known, split.novel, batches=MIXED_BATCHES, batch_size=BATCH_SIZE, seed=seed
    )
    return evaluate_run(agent, stream, data.test, oracle)


def _result(split: ClassSplit, run: EvaluatedRun, measures: dict[str, Any]) -> dict[str, Any]:
    names = ("known_accuracy", "novel_accuracy", "combined_accuracy", "auroc")
    return {
        "known_classes": list(split.known),
        "novel_classes": list(split.novel),
        "found": run.found,
        "missed": run.missed,
        "false_alarms": run.false_alarms,
        "final_accuracy": run.accuracy,
        "novel_accuracy": {str(name): run.right[name] for name in split.novel},
        "detection": {name: measures[name] for name in names},
    }


# The agent's home ---------------------------------------------------------------------------------------


def _check_home(directory: Path) -> None:
    """Raise unless the agent can live here without touching what is not an earlier demonstration's."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ModelFileError(f"{directory} is not a directory of the demo's; choose another --out")
    if directory.exists() and any(directory.iterdir()) and not (directory / _MARK).is_file():
        raise ModelFileError(
            f"{directory} is not from an earlier demo, and is left as it is; choose another --out"
        )


def _new_home(directory: Path, learner: Learner) -> Home:
    """Return a home with this learner as its first version, in place of that of an earlier demonstration."""
    _check_home(directory)
    if directory.exists():
        with Home(directory).lock():  # raises where another run is using it
            shutil.rmtree(directory)
    directory.mkdir(parents=True)
    write_whole(directory / _MARK, "Made by `shels demo`, and replaced by the next one.\n")
    home = Home(directory)
    home.begin(learner)
    return home


# In words -----------------------------------------------------------------------------------------------


def _title(run: EvaluatedRun) -> str:
    known, found = _number(len(run.taught)).capitalize(), len(run.found)
    return f"{known} digits known, {_of(found, found + len(run.missed))} new ones found and learned"


def _lead(run: EvaluatedRun) -> str:
    found, new = len(run.found), len(run.found) + len(run.missed)
    order = f" ({comma(run.found)}, in this order)" if found else ""
    false = {0: "no false alarm", 1: "one false alarm"}
    alarms = false.get(run.false_alarms, f"{_number(run.false_alarms)} false alarms")
    return (
        f"A small network was taught the digits {comma(sorted_classes(run.taught))}. Then it watched "
        f"{len(run.steps)} batches of images and was not told when anything new began. It found "
        f"{_of(found, new)} new digits{order} and learned them from images of theirs alone, raised {alarms}, "
        f"and in the end named {percent(run.accuracy)} of the test images of all "
        f"{_number(len(run.right))} digits rightly."
    )


def _of(count: int, total: int) -> str:
    return f"all {_number(total)}" if count == total else f"{_number(count)} of {_number(total)}"


def _number(count: int) -> str:
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[count] if count < len(words) else f"{count:,}"

"""The open world: agents that are told nothing meet batches, find the novel classes in them and learn those.

Agents of one method on several trials go on side by side, so that trainings that are alike are run as one
program. Test images are shown; an oracle gives training images of what an agent asks about.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from shels.agent.agent import OpenWorldAgent
from shels.agent.evaluation import EvaluatedBatch, EvaluatedRun, RecordingOracle, evaluating
from shels.agent.observation import AgentSettings
from shels.agent.oracle import Oracle
from shels.data.samples import Label, Samples
from shels.data.streams import StreamBatch, mixed_stream, paper_stream
from shels.detection.metrics import adjusted_mutual_information
from shels.errors import ShelsError
from shels.experiments.features import Features
from shels.experiments.incremental import TrainedTrial, failing, quiet, train_together
from shels.experiments.measuring import Figures
from shels.experiments.methods import METHODS, taught_classes
from shels.experiments.trials import Trial
from shels.learner.learner import Learner, assembled
from shels.training import Fit, TrainingRequest

MIXED = "@mixed"
"""In an experiment's name, where new classes come two at once, among known ones."""
_BATCH_SIZES = {"digits": 100}
_BATCH_SIZE = 500


@dataclass(frozen=True)
class Course:
    """What an agent meets in a trial: the paper's stream or the mixed one, and how large its batches are."""

    mixed: bool
    batch_size: int

    @staticmethod
    def of(trial: Trial) -> Course:
        """Return what a trial's experiment shows."""
        return Course(MIXED in trial.experiment, _BATCH_SIZES.get(trial.known_data, _BATCH_SIZE))

    def batches(self, novel: int) -> int:
        """Count the batches of a stream with so many novel classes."""
        return 3 * (novel + 2) if self.mixed else 4 * novel + 3

    def stream(self, trial: Trial, test: Samples) -> Iterator[StreamBatch]:
        """Give the batches of a trial."""
        about: dict[str, Any] = {"batch_size": self.batch_size, "seed": trial.seed}
        if not self.mixed:
            return paper_stream(test, trial.known, trial.novel, **about)
        return mixed_stream(test, trial.known, trial.novel, batches=self.batches(len(trial.novel)), **about)


@dataclass(eq=False)
class _AgentTrial:
    """A trial on its way, from its trained network to its figures.

    met: how many batches it met. waits: the training that it asked for. error: why it could not go on.
    """

    begun: TrainedTrial
    data: Features
    met: int = 0
    waits: TrainingRequest | None = None
    figures: Figures | None = None
    error: ShelsError | None = None

    def __post_init__(self) -> None:
        self._steps = self._taken()

    @property
    def trial(self) -> Trial:
        return self.begun.trial

    @property
    def share(self) -> float:
        """How much of it is done."""
        ended = self.figures is not None or self.error is not None
        return 1.0 if ended else self.met / Course.of(self.trial).batches(len(self.trial.novel))

    def go_on(self, fit: Fit | None) -> None:
        """Tell it how its training went, and let it go on until it asks for another, or is done."""
        self.waits = None
        with quiet(), failing(self):
            try:
                if fit is None:
                    self.waits = next(self._steps)
                elif fit.error is not None:
                    self.waits = self._steps.throw(fit.error)
                else:
                    self.waits = self._steps.send(fit)
            except StopIteration as end:
                self.figures = end.value

    def _taken(self) -> Generator[TrainingRequest, Fit, Figures]:
        trial, learner = self.trial, first_learner(self.begun)
        known, inputs = self.data.known, self.data.inputs
        test = replace(known.test, inputs=inputs["test"]).only((*trial.known, *trial.novel))
        settings = METHODS[trial.method].agent
        if settings is None:
            return joint_figures(learner, trial, test)
        chosen, oracle = settings(trial.known_data), RecordingOracle(test)
        train = replace(known.train, inputs=inputs["train"])
        agent = OpenWorldAgent(learner, settings=chosen, confirm=oracle, seed=trial.seed)
        agent.supplier = Oracle(oracle, train, lambda: agent.learner.classes)
        run = yield from evaluating(agent, self._counted(test), test, oracle)
        return figures_of(run, trial, test, chosen)

    def _counted(self, test: Samples) -> Iterator[StreamBatch]:
        for batch in Course.of(self.trial).stream(self.trial, test):
            yield batch
            self.met += 1


def first_learner(trained: TrainedTrial) -> Learner:
    """Make the learner of a trained network as `fit` does, with all that an agent asks of it."""
    trial, training, fit = trained
    data, inputs, classes = training.data, training.data.inputs, taught_classes(trial)
    parts = [
        Samples(inputs[rows.places.to(inputs.device)], rows.labels, classes, origin="the known classes")
        for rows in (data.training, training.calibration)
    ]
    return assembled(training.network, parts[0], parts[-1], data.prepare, trial.settings, trial.seed, fit)


def run_agents(
    group: Sequence[TrainedTrial], data: Features
) -> Generator[float, None, dict[str, Figures | ShelsError]]:
    """Let the agents of trials of one method meet their streams; yield the share that is done.

    Returns the figures of each trial by its key, or why it has none. data: the set, and its inputs where
    networks compute.
    """
    trials = [_AgentTrial(each, data) for each in group]
    waiting = trials
    fits: Sequence[Fit | None] = [None] * len(trials)
    while waiting:
        for each, fit in zip(waiting, fits, strict=True):
            each.go_on(fit)
            yield float(np.mean([trial.share for trial in trials]))
        waiting = [each for each in trials if each.waits is not None]
        fits = train_together([each.waits for each in waiting if each.waits], trials[0].trial.precision)
    ended = [(each.trial.key, each.error or each.figures) for each in trials]
    return {key: found for key, found in ended if found is not None}


# What a run came to -------------------------------------------------------------------------------------


def figures_of(run: EvaluatedRun, trial: Trial, test: Samples, settings: AgentSettings) -> Figures:
    """Measure an agent's run. test: the samples that its `named` speaks of."""
    found = [name for name in trial.novel if name in run.found]
    measures = {
        "closed_set_accuracy": run.accuracy,
        "known_accuracy": run.accepted_and_right,
        "found_share": len(found) / len(trial.novel),
        "batches_to_detection": float(np.mean([batches_until(run, name) for name in trial.novel])),
        "false_alarms_per_1000": false_alarms_per_1000(run),
        "false_alarm_share": false_alarm_share(run),
        "ami": _agreement(run.named, trial.novel, test),
    }
    alarm = {"kind": settings.alarm.kind, **asdict(settings.alarm)}
    details = {
        "agent": {"alarm": alarm, **asdict(Course.of(trial))},
        "detection": _epochs(run),
        "accommodation": [row for place, step in enumerate(run.steps, 1) for row in _learned(place, step)],
        "found": run.found,
        "missed": run.missed,
        "right": {str(name): _rounded(share) for name, share in run.right.items()},
    }
    return Figures(measures, details)


def batches_until(run: EvaluatedRun, name: Label) -> int:
    """Count the batches with a novel class until the agent took it in, that one included.

    A class that it never took in counts as one batch more than showed it.
    """
    count = 0
    for step in run.steps:
        count += name in step.labels
        if any(group.truth == name and name not in step.known for group in step.learned):
            return count
    return count + 1


def false_alarms_per_1000(run: EvaluatedRun) -> float:
    """Count the alarms on batches that held nothing new to the agent, for each 1,000 samples in those."""
    known = [step for step in run.steps if not step.new]
    samples = sum(len(step.labels) for step in known)
    return 1000 * sum(step.alarm for step in known) / samples if samples else 0.0


def false_alarm_share(run: EvaluatedRun) -> float:
    """Return the share judged novel of all samples whose class the agent knew when it met them."""
    marks = [
        judged
        for step in run.steps
        for name, judged in zip(step.labels, step.novel.tolist(), strict=True)
        if name in step.known
    ]
    return float(np.mean(marks))


def _agreement(named: Sequence[Label], novel: Sequence[Label], test: Samples) -> float:
    """Compare what test samples of the novel classes are called at the end with what they are."""
    truth = [test.classes[place] for place in test.labels.tolist()]
    pairs = [(true, name) for true, name in zip(truth, named, strict=True) if true in novel]
    return adjusted_mutual_information([true for true, _ in pairs], [name for _, name in pairs])


def joint_figures(learner: Learner, trial: Trial, test: Samples) -> Figures:
    """Measure a learner that was taught every class at first; there is nothing left for it to find."""
    verdicts = learner.judge(test.inputs)
    named = [learner.classes[place] for place in verdicts.predicted.tolist()]
    truth = [test.classes[place] for place in test.labels.tolist()]
    right = np.array([name == true for name, true in zip(named, truth, strict=True)])
    rejected = verdicts.novel.cpu().numpy()
    measures = {
        "closed_set_accuracy": float(right.mean()),
        "known_accuracy": float((right & ~rejected).mean()),
        "false_alarm_share": float(rejected.mean()),
        "ami": _agreement(named, trial.novel, test),
    }
    by_class = {str(name): right[[true == name for true in truth]].mean() for name in test.classes}
    return Figures(measures, {"right": {name: _rounded(float(share)) for name, share in by_class.items()}})


# What a figure draws: columns of a table with a row for each batch, and a row for each accommodation ------


def _epochs(run: EvaluatedRun) -> dict[str, list[Any]]:
    """Give what happened batch by batch. new: whether a class was in it that the agent did not know."""
    return {
        "new": [int(bool(step.new)) for step in run.steps],
        "share": [_rounded(step.share) for step in run.steps],
        "threshold": [_rounded(step.threshold) for step in run.steps],
        "alarm": [int(step.alarm) for step in run.steps],
        "overall": [_rounded(step.before.overall) for step in run.steps],
        "newest": [_rounded(step.before.newest) for step in run.steps],
    }


def _learned(place: int, step: EvaluatedBatch) -> Iterator[dict[str, Any]]:
    """Give the accuracies before and after the classes of a batch were taken in, where some were."""
    if not step.learned:
        return
    before, after = step.before, step.after
    yield {
        "batch": place,
        "classes": [group.name for group in step.learned],
        "purity": [_rounded(group.purity) for group in step.learned],
        "images": [group.images for group in step.learned],
        "seconds": _rounded(sum(group.seconds for group in step.learned)),
        "overall": [_rounded(before.overall), _rounded(after.overall)],
        "newest": [_rounded(before.newest), _rounded(after.newest)],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)

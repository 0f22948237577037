"""What a page says of a learner itself: its training, what it decides by, its features, its settings."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

import torch

from shels._version import __version__
from shels.config import OWN, to_dict
from shels.detection.metrics import mean_exclusivity
from shels.detection.rules import rule_of
from shels.experiments.methods import METHODS
from shels.learner.learner import Learner
from shels.learner.pairing import score_name
from shels.learning.registry import LEARNERS, method_of
from shels.model.networks import automatic
from shels.report import charts
from shels.report.evaluation import Evaluation
from shels.report.page import Section, Table
from shels.report.words import count, flat, percent

_NEAREST = (
    "A sample is given the class that it is most like, unless its score does not exceed that class's "
    "threshold; then it is judged novel."
)
_GAUSSIAN = (
    "A linear discriminant on the features that all classes share gives each sample its class. The sample is "
    "judged novel if it lies farther from that class than the class's own samples do, by these features or "
    "by the high-level ones. Its score says so: 0 is the usual distance on a logarithmic scale, less is "
    "farther away, counted in standard deviations; one that does not exceed the class's threshold is novel."
)


def training(learner: Learner) -> Section:
    """Say what the network is, how its training went, and by what it decides."""
    network, shape = learner.settings.network, learner.preparation.shape
    name = automatic(shape) if network.architecture == "auto" else network.architecture
    name = "a chain of the user's own" if name == "own" else f"“{name}”"
    parameters = sum(value.numel() for value in learner.network.parameters())
    words = (
        f"The network, {name} ({parameters:,} parameters, {network.head} head, seed {learner.seed}) sees "
        f"{learner.preparation.describe()} and was taught {count(len(learner.taught), 'class')}."
    )
    later = sum(name not in learner.taught for name in learner.classes)
    words += f" It took in {count(later, 'class')} later." if later else ""
    return Section("What was trained", [words + _training_words(learner), _rule(learner)])


def inside(shown: Evaluation) -> list[Section]:
    """Show how the training went, where that is known, and how exclusive the taught classes' features are."""
    words = [_end(shown.learner)] if _recorded(shown.learner) else []
    if shown.exclusivity is not None:
        words.append(
            "The more each class stands on features of its own, the less can a new one pass for any of them. "
            "Over these samples the mean exclusivity of two classes is "
            f"{mean_exclusivity(shown.exclusivity[0]):.3f}."
        )
    figures = charts.drawn(charts.MODEL, "network", shown)
    return [Section("Inside the learner", [*words, *figures])] if figures else []


def details(learner: Learner) -> list[Table]:
    """List settings, versions and machine, for whoever wants to do the same again."""
    settings = [("seed", str(learner.seed)), *flat(to_dict(learner.settings)).items()]
    versions = [("shels", __version__), ("Python", platform.python_version())]
    versions += [(name, version(name)) for name in ("torch", "numpy", "scikit-learn")]
    cuda = learner.device.type == "cuda"
    device = torch.cuda.get_device_name(learner.device) if cuda else str(learner.device)
    machine = [("system", platform.platform()), ("processor", platform.machine()), ("device", device)]
    named = (("Setting", settings), ("Package", versions), ("Machine", machine))
    return [Table((title, "Value"), rows) for title, rows in named]


def footer() -> str:
    """Say by what and when the page is written."""
    return f"Written by shels {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."


def _recorded(learner: Learner) -> bool:
    return bool(learner.report.get("checks") and learner.report.get("best"))


def _training_words(learner: Learner) -> str:
    report = learner.report
    if not _recorded(learner):
        return ""
    best, grown = report["best"], method_of(learner.settings.accommodation).grows_head
    by = "" if grown else " by the network's last layer"
    return (
        f" It was trained on {count(report['training_samples'], 'sample')} for "
        f"{count(report['checks'][-1]['step'], 'step')} in "
        f"{count(max(1, round(report['seconds'])), 'second')}. Another "
        f"{count(report['held_out_samples'], 'sample')} were held out to set the thresholds and to choose "
        f"the best state: that of step {best['step']:,}, with {percent(best['validation_accuracy'])} of them "
        f"named rightly{by}."
    )


def _rule(learner: Learner) -> str:
    """Return what names a class, what makes a sample novel, and how the thresholds were set."""
    rule, detector = learner.settings.rule, learner.detector
    how = rule_of(rule).words(rule, detector.thresholds_are_of)
    if score_name(learner.settings) != OWN:
        return f"{_pair(learner)} {how}"
    return f"{_GAUSSIAN if detector.is_learner else _NEAREST} {how}"


def _pair(learner: Learner) -> str:
    """Return who decides where classes are named in one way and novelty is told in another."""
    naming = LEARNERS[learner.settings.accommodation.kind].title
    telling = METHODS[learner.detector.name].title
    return (
        f"Classes are named by {naming}, novel samples are told by {telling}: a sample is judged novel if "
        "its score does not exceed the threshold of the class that it is given."
    )


def _end(learner: Learner) -> str:
    report, patience = learner.report, learner.settings.training.patience
    end = (
        f"stopped early, after {patience} checks without improvement," if report["stopped_early"] else "ended"
    )
    accepted, right = report["held_out"]["acceptance"], report["held_out"]["closed_set_accuracy"]
    return (
        f"Training {end} at step {report['checks'][-1]['step']:,}. The learner from the state that was kept "
        f"accepts {percent(accepted)} of the held-out samples and names {percent(right)} rightly."
    )

"""What a page says of a learner itself: its training, what it decides by, its features, its settings."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version

import torch

from shels._version import __version__
from shels.config import OWN, Gaussian, to_dict
from shels.detection.exclusivity import mean_exclusivity
from shels.detection.rules import rule_of
from shels.experiments.methods import METHODS
from shels.learner.learner import Learner
from shels.learner.pairing import score_name
from shels.learning.registry import LEARNERS, method_of
from shels.model.architectures import automatic
from shels.model.backbone import OWN as OWN_MODULE
from shels.report import charts
from shels.report.evaluation import Evaluation
from shels.report.page import Section, Table
from shels.report.words import flat, prose


def training(learner: Learner) -> Section:
    """Say what the network is, how its training went, and by what it decides."""
    words = prose(
        "network",
        name=_name(learner),
        parameters=sum(value.numel() for value in learner.network.parameters()),
        learner=learner,
        later=sum(name not in learner.taught for name in learner.classes),
        report=learner.report if _recorded(learner) else None,
        grows_head=method_of(learner.settings.accommodation).grows_head,
    )
    rule = learner.settings.rule
    how = rule_of(rule).words(rule, learner.detector.thresholds_are_of)
    return Section("What was trained", [words, f"{_decision(learner)} {how}"])


def _name(learner: Learner) -> str:
    """Name the network: its backbone, or its architecture."""
    network = learner.settings.network
    if network.backbone is not None:
        own = "a module of the user's own" if network.backbone == OWN_MODULE else f"“{network.backbone}”"
        return (
            f"{own}, {'left as it is' if network.frozen else 'most of it trained too'}, and a layer behind it"
        )
    name = automatic(learner.preparation.shape) if network.architecture == "auto" else network.architecture
    return "a chain of the user's own" if name == "own" else f"“{name}”"


def inside(shown: Evaluation) -> list[Section]:
    """Show how the training went, where that is known, and how exclusive the taught classes' features are."""
    learner, words = shown.learner, []
    if _recorded(learner):
        patience = learner.settings.training.patience
        words.append(prose("training_end", report=learner.report, patience=patience))
    if shown.exclusivity is not None:
        words.append(prose("exclusivity", mean=mean_exclusivity(shown.exclusivity[0])))
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


def _decision(learner: Learner) -> str:
    """Say what names a class, and what makes a sample novel."""
    if score_name(learner.settings) == OWN:
        if not isinstance(learner.settings.accommodation, Gaussian):
            return prose("decision_by_score")
        return prose("decision_by_gaussians", together=learner.settings.accommodation.distance == "sum")
    naming = LEARNERS[learner.settings.accommodation.kind].title
    return prose("decision_by_pair", naming=naming, telling=METHODS[learner.detector.name].title)

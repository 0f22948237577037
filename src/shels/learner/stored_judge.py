"""A judge as tensors, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from shels.config import Settings
from shels.detection.head import Head
from shels.detection.judge import Judge
from shels.detection.registry import SCORES
from shels.learner.pairing import score_name
from shels.learning.registry import method_of
from shels.model.networks import Network

Tensors = dict[str, Tensor]

_SCORE = "score/"


def judge_parts(judge: Judge) -> Tensors:
    """Return a judge as tensors, without what the network and the learner keep."""
    own = {name: getattr(judge, name) for name in ("thresholds", "calibration", "means", "among")}
    score = {_SCORE + name: value for name, value in judge.detector.tensors().items()}
    return own | {"width": torch.tensor(judge.width)} | score


def stored_judge(detector: Tensors, memory: Tensors, settings: Settings, network: Network) -> Judge:
    """Return the judge of a pair from its checked tensors, the network and what its learner keeps."""
    device, method = network.head.weight.device, method_of(settings.accommodation)
    held, kept = ({name: value.to(device) for name, value in part.items()} for part in (detector, memory))
    state = {name.removeprefix(_SCORE): held[name] for name in held if name.startswith(_SCORE)}
    score = SCORES[score_name(settings)].make.from_tensors(Head.of(network.head), state)
    own = {name: held[name] for name in ("thresholds", "calibration", "means", "among")}
    return Judge(score, method.naming(network, kept), settings.rule, width=int(held["width"]), **own)

"""The options of `shels train`, in the order and under the headings of its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def _option(flag: str, metavar: str, text: str, panel: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


def _classes(flag: str, metavar: str, text: str) -> Any:
    return _option(flag, metavar, text, "Which classes to know (all, unless one of these is given)")


def _network(flag: str, metavar: str, text: str) -> Any:
    return _option(flag, metavar, text, "Images and network (from the preset, unless given)")


def _training(flag: str, metavar: str, text: str) -> Any:
    return _option(flag, metavar, text, "Training and thresholds (from the preset, unless given)")


def _pair(flag: str, metavar: str, text: str) -> Any:
    return _option(flag, metavar, text, "Learner and detector (shels methods lists them)")


Out = Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Directory to save the model in.")]
Preset = Annotated[
    str,
    typer.Option(
        "--preset", metavar="NAME", help="default, paper (as for this set in the paper) or paper-SET."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the finished model in MODEL; one with a history never.")
]

Known = Annotated[list[str] | None, _classes("--known", "A,B,…", "Exactly these; the others are novel.")]
Novel = Annotated[
    list[str] | None, _classes("--novel", "A,B,…", "All but these; with --known, leave the rest out.")
]
KnownCount = Annotated[int | None, _classes("--known-count", "N", "This many, drawn from the seed.")]
AuthorsOrder = Annotated[
    int | None,
    _classes("--authors-order", "K", "The first 5 (or --known-count) of the authors' trial K, 0-9."),
]

Size = Annotated[int | None, _network("--size", "PIXELS", "Side of the square images are brought to.")]
Channels = Annotated[str | None, _network("--channels", "grey|rgb", "Convert images to grey or to RGB.")]
Architecture = Annotated[
    str | None,
    _network(
        "--architecture",
        "NAME",
        "auto, small, vectors, vgg16, six-conv-256, six-conv-1024-512, six-conv-2048-512.",
    ),
]
Head = Annotated[
    str | None, _network("--head", "cosine|linear", "Last layer: SHELS's cosines, or a linear one.")
]
Weights = Annotated[
    Path | None, _network("--weights", "FILE", "Pretrained weights for vgg16 (safetensors, local).")
]

Epochs = Annotated[int | None, _training("--epochs", "N", "Length in passes over the data.")]
Steps = Annotated[int | None, _training("--steps", "N", "Length in optimiser steps, at most.")]
LearningRate = Annotated[float | None, _training("--learning-rate", "X", "The optimiser's rate, over 0.")]
BatchSize = Annotated[int | None, _training("--batch-size", "N", "Samples in each step.")]
Alpha = Annotated[float | None, _training("--alpha", "X", "Weight of the group sparsity, 0 or more.")]
DepthWeights = Annotated[
    str | None, _training("--depth-weights", "RULE", "layer-wise (sparsity fades with depth) or constant.")
]
Accept = Annotated[
    float | None, _training("--accept", "SHARE", "Accept this share of known samples, such as 0.95.")
]
Sd = Annotated[
    float | None, _training("--sd", "K", "The paper's threshold: mean score less K standard deviations.")
]
Learner = Annotated[
    str | None,
    _pair("--learner", "NAME", "How new classes are taken in later: gaussian, proximal, slda, ewc, …"),
]
Detector = Annotated[
    str | None,
    _pair("--detector", "NAME", "What tells novel samples: knn, energy, …; default: the learner's own."),
]

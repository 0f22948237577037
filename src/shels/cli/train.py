"""`shels train`: learn classes from data, and survive being cut off at any moment."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, listed, percent, print_facts, print_result, say
from shels.cli.options import option
from shels.cli.reading import FileReading, in_words
from shels.config import AcceptShare, MeanMinusSd, Settings, ThresholdRule, overridden
from shels.config.presets import preset as named_preset
from shels.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Generator

    from shels.data.samples import Label, Samples
    from shels.learner.learner import Learner
    from shels.learner.training_directory import TrainingDirectory
    from shels.training import Progress

EXAMPLES = """shels train digits --known 0,1,2,3,4 --out m
shels train photos/ --out m
shels train photos/ --backbone timm/resnet18.a1_in1k --frozen --out m
shels train labels.csv --out m
shels train data.npz --steps 500 --device cpu --out m
shels train mnist --preset paper --authors-order 0 --out m
shels train digits --learner slda --detector knn --out m

Cut off by Ctrl-C or a power failure, the same command goes on from there."""

_classes = partial(option, panel="Which classes to know (all, unless one of these is given)")
_network = partial(option, panel="Images and network (from the preset, unless given)")
_loss = partial(option, panel="Training and thresholds (from the preset, unless given)")
_pair = partial(option, panel="Learner and detector (shels methods lists them)")

_ARCHITECTURES = "auto, small, vectors, vgg16, six-conv-256, six-conv-1024-512, six-conv-2048-512."
_BACKBONES = "Pretrained network for photos: efficientnet-lite0, timm/MODEL, torchvision/MODEL, FILE.onnx, …"
_LEARNERS = "How new classes are taken in later: gaussian, proximal, slda, ewc, …"
_DETECTORS = "What tells novel samples: knn, energy, …; default: the learner's own."

Text: TypeAlias = str | None  # what may be left out
Number: TypeAlias = float | None
Count: TypeAlias = int | None

Out = Annotated[Path, option("--out -o", "Directory to save the model in.", "MODEL")]
Preset = Annotated[
    str, option("--preset", "default, paper and best (as for this set of the paper's), or paper-SET.", "NAME")
]
Force = Annotated[bool, option("--force", "Replace the finished model in MODEL; one with a history never.")]
Known = Annotated[list[str] | None, _classes("--known", "Exactly these; the others are novel.", "A,B,…")]
Novel = Annotated[
    list[str] | None, _classes("--novel", "All but these; with --known, leave the rest out.", "A,B,…")
]
KnownCount = Annotated[Count, _classes("--known-count", "This many, drawn from the seed.", "N")]
AuthorsOrder = Annotated[
    Count, _classes("--authors-order", "The first 5 (or --known-count) of the authors' trial K, 0-9.", "K")
]
Size = Annotated[Count, _network("--size", "Side of the square images are brought to.", "PIXELS")]
Channels = Annotated[Text, _network("--channels", "Convert images to grey or to RGB.", "grey|rgb")]
Backbone = Annotated[Text, _network("--backbone", _BACKBONES, "NAME")]
Frozen = Annotated[bool, _network("--frozen", "Leave the backbone as it is; its features are kept on disk.")]
Architecture = Annotated[Text, _network("--architecture", _ARCHITECTURES, "NAME")]
Head = Annotated[Text, _network("--head", "Last layer: SHELS's cosines, or a linear one.", "cosine|linear")]
Weights = Annotated[
    Path | None, _network("--weights", "Pretrained weights for vgg16 (safetensors, local).", "FILE")
]
Epochs = Annotated[Count, _loss("--epochs", "Length in passes over the data.", "N")]
Steps = Annotated[Count, _loss("--steps", "Length in optimiser steps, at most.", "N")]
LearningRate = Annotated[Number, _loss("--learning-rate", "The optimiser's rate, over 0.", "X")]
BatchSize = Annotated[Count, _loss("--batch-size", "Samples in each step.", "N")]
Alpha = Annotated[Number, _loss("--alpha", "Weight of the group sparsity, 0 or more.", "X")]
DepthWeights = Annotated[
    Text, _loss("--depth-weights", "layer-wise (sparsity fades with depth), late or constant.", "RULE")
]
Validation = Annotated[
    Text, _loss("--validation", "Hold out these samples, or this share of each class.", "DATA|SHARE")
]
Accept = Annotated[Number, _loss("--accept", "Accept this share of known samples, such as 0.95.", "SHARE")]
Sd = Annotated[Number, _loss("--sd", "The paper's threshold: mean score less K standard deviations.", "K")]


def train(  # noqa: PLR0913 - a parameter for each option
    data: options.Data,
    out: Out,
    *,
    data_dir: options.DataDir = None,
    preset: Preset = "default",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    force: Force = False,
    strict: options.Strict = False,
    as_json: options.Json = False,
    known: Known = None,
    novel: Novel = None,
    known_count: KnownCount = None,
    authors_order: AuthorsOrder = None,
    size: Size = None,
    channels: Channels = None,
    backbone: Backbone = None,
    frozen: Frozen = False,
    architecture: Architecture = None,
    head: Head = None,
    weights: Weights = None,
    epochs: Epochs = None,
    steps: Steps = None,
    learning_rate: LearningRate = None,
    batch_size: BatchSize = None,
    alpha: Alpha = None,
    depth_weights: DepthWeights = None,
    validation: Validation = None,
    accept: Accept = None,
    sd: Sd = None,
    learner: Annotated[Text, _pair("--learner", _LEARNERS, "NAME")] = None,
    detector: Annotated[Text, _pair("--detector", _DETECTORS, "NAME")] = None,
) -> None:
    """Learn the classes of a data set.

    Trains on DATA, sets the thresholds that tell known from novel on samples
    held out of training, and saves all of it in MODEL.
    """
    options.one_of("channels", channels, ("grey", "rgb"))
    options.one_of("depth weights", depth_weights, ("layer-wise", "late", "constant"))
    options.one_of("head", head, ("cosine", "linear"))
    classes = (options.names(known), options.names(novel))
    options.exclude(
        {"--known": classes[0], "--novel": classes[1]},
        {"--known-count": known_count, "--authors-order": authors_order},
    )
    options.exclude({"--epochs": epochs}, {"--steps": steps})
    network = {"image_size": size, "architecture": architecture, "head": head}
    network["weights"] = None if weights is None else str(weights)
    length = {"epochs": epochs, "steps": steps, "batch_size": batch_size}
    loss = {"learning_rate": learning_rate, "alpha": alpha, "depth_weights": depth_weights}
    share = options.share(validation)
    named_preset(preset, data)  # an unknown one is refused before anything heavy is loaded

    def made(base: Settings) -> Settings:
        settings = overridden(base, network, length | loss | {"validation_share": share})
        settings = replace(settings, rule=_threshold_rule(settings.rule, accept, sd))
        if learner is None and detector is None:
            return settings
        from shels.learner.pairing import paired  # noqa: PLC0415

        numbers_of = preset.removeprefix("paper-") if preset.startswith("paper-") else data
        settings = paired(settings, learner, detector, numbers_of)
        return overridden(settings, {"head": head}, {"alpha": alpha})  # what was asked for comes last

    from shels import runtime  # noqa: PLC0415
    from shels.data.images import side_limit  # noqa: PLC0415
    from shels.data.inputs import load_known, load_validation  # noqa: PLC0415
    from shels.data.splits import ClassChoice  # noqa: PLC0415
    from shels.learner.choosing import chosen, readable_side  # noqa: PLC0415
    from shels.learner.training_directory import TrainingDirectory  # noqa: PLC0415

    choose = partial(chosen, preset, data=data, backbone=backbone, frozen=frozen, architecture=architecture)
    settings = made(choose(None).settings)
    target = TrainingDirectory(out, force=force)
    target.check()
    where, choice = runtime.device(device), ClassChoice(*classes, known_count, authors_order)
    free = backbone is None and not frozen and architecture is None and size is None
    limit = readable_side(preset, open_choice=free)
    held_out = None
    with FileReading(strict=strict, quiet=as_json) as files, side_limit(limit):
        samples, left_out = load_known(data, data_dir, settings.network, choice, channels=channels, seed=seed)
        if validation is not None and share is None:
            held_out = load_validation(validation, data, data_dir, samples)
    files.show_table()
    side = _side(samples)
    found = choose(side if size is None else None, vectors=side is None, classes=len(samples.classes))
    if found.words and not as_json:
        say(found.words)
    work = target.training(samples, made(found.settings), seed=seed, device=where, validation=held_out)
    trained = _train(target, work, quiet=as_json, faster=found.faster)
    result = _result(trained, target, data, left_out) | {"files": files.result()}
    print_result(result, partial(_show, data_dir=data_dir), as_json=as_json)


def _threshold_rule(base: ThresholdRule, accept: float | None, sd: float | None) -> ThresholdRule:
    options.exclude({"--accept": accept}, {"--sd": sd})
    options.share_to_accept("--accept", accept)
    try:
        if accept is not None:
            return replace(base, share=accept) if isinstance(base, AcceptShare) else AcceptShare(accept)
        return base if sd is None else MeanMinusSd(sd)
    except SettingsError as error:
        raise SettingsError(f"{'--sd' if accept is None else '--accept'}: {error}") from error


def _side(samples: Samples) -> int | None:
    return min(samples.inputs.shape[2:]) if samples.inputs.ndim == 4 else None


def _train(
    target: TrainingDirectory, work: Generator[Progress, None, Learner], *, quiet: bool, faster: str
) -> Learner:
    with TrainingBar("training", quiet=quiet, faster=faster) as bar:
        try:
            return bar.follow(work)
        except KeyboardInterrupt:
            bar.close()
            if target.safe_step is None:
                say("interrupted: nothing was trained long enough to keep; the same command starts again")
            else:
                say(f"interrupted: the same command goes on from step {target.safe_step}")
            raise typer.Exit(1) from None


def _result(
    learner: Learner, target: TrainingDirectory, data: str, novel: tuple[Label, ...]
) -> dict[str, Any]:
    from shels.learner.pairing import facts  # noqa: PLC0415

    report = learner.report
    return {
        "model": str(target.path),
        "data": data,
        "classes": list(learner.classes),
        "novel_classes": list(novel),
        **facts(learner.settings),
        "training_samples": report["training_samples"],
        "held_out_samples": report["held_out_samples"],
        "validation_accuracy": report["best"]["validation_accuracy"],
        "held_out_acceptance": report["held_out_acceptance"],
        "exclusivity": report["exclusivity"],
        "kept_images": learner.stored_images,
        "steps": report["checks"][-1]["step"],
        "best_step": report["best"]["step"],
        "stopped_early": report["stopped_early"],
        "resumed_from": target.resumed_from,
        "seconds": report["seconds"],
        "seed": learner.seed,
        "device": str(learner.device),
    }


def _show(result: dict[str, Any], data_dir: Path | None) -> None:
    early = ", stopped early" if result["stopped_early"] else ""
    where = [] if data_dir is None else ["--data-dir", str(data_dir)]
    facts = {"files": in_words(result["files"])} if result["files"] else {}
    facts |= {"classes": listed(result["classes"])}
    if result["novel_classes"]:
        facts["kept out"] = listed(result["novel_classes"])
    facts |= {
        "method": result["method"],
        "validation": f"{percent(result['validation_accuracy'])} right, of {result['held_out_samples']} "
        "held-out samples",
        "acceptance": f"{percent(result['held_out_acceptance'])} of them, by thresholds set without them",
        "exclusivity": f"{result['exclusivity']:.2f} on average (1: no two classes share a feature)",
        "training": f"{result['steps']} steps{early}, {result['seconds']:.1f} seconds on {result['device']}",
        "saved in": result["model"],
    }
    if result["kept_images"]:
        facts["holds"] = f"{result['kept_images']} of the training images, to learn from again"
    facts["next"] = shlex.join(["shels", "evaluate", result["model"], _to_evaluate(result["data"]), *where])
    print_facts(facts)


def _to_evaluate(data: str) -> str:
    """Name the test part that `shels split` wrote beside a training part, or else the data themselves."""
    path = Path(data)
    beside = path.with_name(f"test{path.suffix}")
    return str(beside) if path.stem == "train" and beside.exists() else data

"""`shels train`: learn classes from data, and survive being cut off at any moment."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, listed, percent, print_facts, print_json, say
from shels.cli.options import option
from shels.config import AcceptShare, MeanMinusSd, ThresholdRule, overridden
from shels.config.presets import preset as named_preset
from shels.errors import SettingsError

if TYPE_CHECKING:
    import torch

    from shels.config import Settings
    from shels.data.samples import Label, Samples
    from shels.learner.learner import Learner
    from shels.learner.training_directory import TrainingDirectory
    from shels.training.courses import Progress

EXAMPLES = """shels train digits --known 0,1,2,3,4 --out m
shels train photos/ --size 64 --out m
shels train data.npz --steps 500 --device cpu --out m
shels train mnist --preset paper --authors-order 0 --out m
shels train digits --learner slda --detector knn --out m

Cut off by Ctrl-C or a power failure, the same command goes on from there."""

_CLASSES = "Which classes to know (all, unless one of these is given)"
_NETWORK = "Images and network (from the preset, unless given)"
_TRAINING = "Training and thresholds (from the preset, unless given)"
_PAIR = "Learner and detector (shels methods lists them)"


def train(  # noqa: PLR0913 - a parameter for each option
    data: options.Data,
    out: Annotated[Path, option("--out -o", "Directory to save the model in.", "MODEL")],
    *,
    data_dir: options.DataDir = None,
    preset: Annotated[
        str, option("--preset", "default, paper (as for this set in the paper) or paper-SET.", "NAME")
    ] = "default",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    force: Annotated[
        bool, option("--force", "Replace the finished model in MODEL; one with a history never.")
    ] = False,
    as_json: options.Json = False,
    known: Annotated[
        list[str] | None, option("--known", "Exactly these; the others are novel.", "A,B,…", panel=_CLASSES)
    ] = None,
    novel: Annotated[
        list[str] | None,
        option("--novel", "All but these; with --known, leave the rest out.", "A,B,…", panel=_CLASSES),
    ] = None,
    known_count: Annotated[
        int | None, option("--known-count", "This many, drawn from the seed.", "N", panel=_CLASSES)
    ] = None,
    authors_order: Annotated[
        int | None,
        option(
            "--authors-order",
            "The first 5 (or --known-count) of the authors' trial K, 0-9.",
            "K",
            panel=_CLASSES,
        ),
    ] = None,
    size: Annotated[
        int | None, option("--size", "Side of the square images are brought to.", "PIXELS", panel=_NETWORK)
    ] = None,
    channels: Annotated[
        str | None, option("--channels", "Convert images to grey or to RGB.", "grey|rgb", panel=_NETWORK)
    ] = None,
    architecture: Annotated[
        str | None,
        option(
            "--architecture",
            "auto, small, vectors, vgg16, six-conv-256, six-conv-1024-512, six-conv-2048-512.",
            "NAME",
            panel=_NETWORK,
        ),
    ] = None,
    head: Annotated[
        str | None,
        option("--head", "Last layer: SHELS's cosines, or a linear one.", "cosine|linear", panel=_NETWORK),
    ] = None,
    weights: Annotated[
        Path | None,
        option("--weights", "Pretrained weights for vgg16 (safetensors, local).", "FILE", panel=_NETWORK),
    ] = None,
    epochs: Annotated[
        int | None, option("--epochs", "Length in passes over the data.", "N", panel=_TRAINING)
    ] = None,
    steps: Annotated[
        int | None, option("--steps", "Length in optimiser steps, at most.", "N", panel=_TRAINING)
    ] = None,
    learning_rate: Annotated[
        float | None, option("--learning-rate", "The optimiser's rate, over 0.", "X", panel=_TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None, option("--batch-size", "Samples in each step.", "N", panel=_TRAINING)
    ] = None,
    alpha: Annotated[
        float | None, option("--alpha", "Weight of the group sparsity, 0 or more.", "X", panel=_TRAINING)
    ] = None,
    depth_weights: Annotated[
        str | None,
        option(
            "--depth-weights", "layer-wise (sparsity fades with depth) or constant.", "RULE", panel=_TRAINING
        ),
    ] = None,
    accept: Annotated[
        float | None,
        option("--accept", "Accept this share of known samples, such as 0.95.", "SHARE", panel=_TRAINING),
    ] = None,
    sd: Annotated[
        float | None,
        option("--sd", "The paper's threshold: mean score less K standard deviations.", "K", panel=_TRAINING),
    ] = None,
    learner: Annotated[
        str | None,
        option(
            "--learner",
            "How new classes are taken in later: gaussian, proximal, slda, ewc, …",
            "NAME",
            panel=_PAIR,
        ),
    ] = None,
    detector: Annotated[
        str | None,
        option(
            "--detector",
            "What tells novel samples: knn, energy, …; default: the learner's own.",
            "NAME",
            panel=_PAIR,
        ),
    ] = None,
) -> None:
    """Learn the classes of a data set.

    Trains on DATA, keeps the weights that are best on samples held out of
    training, sets the thresholds that tell known from novel, and saves all of
    it in MODEL.
    """
    options.one_of("channels", channels, ("grey", "rgb"))
    options.one_of("depth weights", depth_weights, ("layer-wise", "constant"))
    options.one_of("head", head, ("cosine", "linear"))
    chosen = (options.names(known), options.names(novel))
    options.exclude(
        {"--known": chosen[0], "--novel": chosen[1]},
        {"--known-count": known_count, "--authors-order": authors_order},
    )
    options.exclude({"--epochs": epochs}, {"--steps": steps})
    path = None if weights is None else str(weights)
    network = {"image_size": size, "architecture": architecture, "head": head, "weights": path}
    length = {"epochs": epochs, "steps": steps, "batch_size": batch_size}
    loss = {"learning_rate": learning_rate, "alpha": alpha, "depth_weights": depth_weights}
    settings = overridden(named_preset(preset, data), network, length | loss)
    settings = replace(settings, rule=_threshold_rule(settings.rule, accept, sd))
    if learner is not None or detector is not None:
        from shels.learner.pairing import paired  # noqa: PLC0415

        numbers = preset.removeprefix("paper-") if preset.startswith("paper-") else data
        settings = paired(settings, learner, detector, numbers)
        settings = overridden(settings, {"head": head}, {"alpha": alpha})  # what was asked for comes last
    from shels import runtime  # noqa: PLC0415
    from shels.data.inputs import load_known  # noqa: PLC0415
    from shels.data.splits import ClassChoice  # noqa: PLC0415
    from shels.learner.training_directory import TrainingDirectory  # noqa: PLC0415

    target = TrainingDirectory(out, force=force)
    target.check()
    where, choice = runtime.device(device), ClassChoice(*chosen, known_count, authors_order)
    samples, left_out = load_known(data, data_dir, settings.network, choice, channels=channels, seed=seed)
    trained = _train(target, samples, settings, seed, where, quiet=as_json)
    result = _result(trained, target, data, left_out)
    if as_json:
        print_json(result)
    else:
        _show(result, data_dir)


def _threshold_rule(base: ThresholdRule, accept: float | None, sd: float | None) -> ThresholdRule:
    options.exclude({"--accept": accept}, {"--sd": sd})
    try:
        if accept is not None:
            return AcceptShare(accept)
        return base if sd is None else MeanMinusSd(sd)
    except SettingsError as error:
        raise SettingsError(f"{'--sd' if accept is None else '--accept'}: {error}") from error


def _train(
    target: TrainingDirectory,
    samples: Samples,
    settings: Settings,
    seed: int,
    device: torch.device,
    *,
    quiet: bool,
) -> Learner:
    with TrainingBar("training", quiet=quiet) as bar:

        def show(now: Progress) -> None:
            if now.resumed:
                say(f"resuming from step {now.step}")
            bar(now)

        try:
            return target.train(samples, settings, seed=seed, device=device, progress=show)
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
    from shels.learner.pairing import told  # noqa: PLC0415

    report = learner.report
    return {
        "model": str(target.path),
        "data": data,
        "classes": list(learner.classes),
        "novel_classes": list(novel),
        **told(learner.settings),
        "training_samples": report["training_samples"],
        "held_out_samples": report["held_out_samples"],
        "validation_accuracy": report["best"]["validation_accuracy"],
        "held_out_acceptance": report["held_out_acceptance"],
        "exclusivity": report["exclusivity"],
        "kept_images": learner.kept_images,
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
    facts = {"classes": listed(result["classes"])}
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
    facts["next"] = shlex.join(["shels", "evaluate", result["model"], result["data"], *where])
    print_facts(facts)

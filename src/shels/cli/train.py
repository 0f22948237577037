"""`shels train`: learn classes from data, and survive being cut off at any moment."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shels.cli import options
from shels.cli import train_options as given
from shels.cli.display import TrainingBar, listed, percent, print_json, say
from shels.cli.settings import ClassChoice, lay_over, names, one_of, threshold_rule
from shels.cli.target import Target
from shels.config.presets import preset as named_preset
from shels.errors import DataError, ModelFileError, TrainingError

if TYPE_CHECKING:
    import torch

    from shels.config import Settings
    from shels.data.samples import Samples
    from shels.data.splits import ClassSplit
    from shels.learner.learner import Learner

EXAMPLES = """[bold]Examples[/bold]

shels train digits --known 0,1,2,3,4 --out m
shels train photos/ --size 64 --out m
shels train data.npz --steps 500 --device cpu --out m
shels train mnist --preset paper --authors-order 0 --out m
shels train digits --learner slda --detector knn --out m

Cut off by Ctrl-C or a power failure, the same command goes on from there."""


def train(  # noqa: PLR0913 - a parameter for each option
    data: options.Data,
    out: given.Out,
    *,
    data_dir: options.DataDir = None,
    preset: given.Preset = "default",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    force: given.Force = False,
    as_json: options.Json = False,
    known: given.Known = None,
    novel: given.Novel = None,
    known_count: given.KnownCount = None,
    authors_order: given.AuthorsOrder = None,
    size: given.Size = None,
    channels: given.Channels = None,
    architecture: given.Architecture = None,
    head: given.Head = None,
    weights: given.Weights = None,
    epochs: given.Epochs = None,
    steps: given.Steps = None,
    learning_rate: given.LearningRate = None,
    batch_size: given.BatchSize = None,
    alpha: given.Alpha = None,
    depth_weights: given.DepthWeights = None,
    accept: given.Accept = None,
    sd: given.Sd = None,
    learner: given.Learner = None,
    detector: given.Detector = None,
) -> None:
    """Learn the classes of a data set.

    Trains on DATA, keeps the weights that are best on samples held out of
    training, sets the thresholds that tell known from novel, and saves all of
    it in MODEL.
    """
    one_of("channels", channels, ("grey", "rgb"))
    one_of("depth weights", depth_weights, ("layer-wise", "constant"))
    one_of("head", head, ("cosine", "linear"))
    choice = ClassChoice(names(known), names(novel), known_count, authors_order)
    path = None if weights is None else str(weights)
    network = {"image_size": size, "architecture": architecture, "head": head, "weights": path}
    length = {"epochs": epochs, "steps": steps, "batch_size": batch_size}
    loss = {"learning_rate": learning_rate, "alpha": alpha, "depth_weights": depth_weights}
    settings = lay_over(named_preset(preset, data), network, length | loss)
    settings = replace(settings, rule=threshold_rule(settings.rule, accept, sd))
    if learner is not None or detector is not None:
        from shels.learner.pairing import paired  # noqa: PLC0415

        numbers = preset.removeprefix("paper-") if preset.startswith("paper-") else data
        settings = paired(settings, learner, detector, numbers)
        settings = lay_over(settings, {"head": head}, {"alpha": alpha})  # what was asked for comes last
    target = Target(out, force=force)
    target.check()

    from shels import runtime  # noqa: PLC0415

    chosen = runtime.device(device)
    samples, left_out = _load(data, data_dir, settings, channels, choice, seed)
    trained = _learn(samples, settings, seed, chosen, target, quiet=as_json)
    result = _result(trained, target, data, left_out)
    if as_json:
        print_json(result)
    else:
        _show(result, data_dir)


def _load(
    data: str, data_dir: Path | None, settings: Settings, channels: str | None, choice: ClassChoice, seed: int
) -> tuple[Samples, tuple[Any, ...]]:
    """Return the samples to learn from, and the novel classes that are kept out of them."""
    from shels.cli.inputs import load_to_train  # noqa: PLC0415

    loaded = load_to_train(data, data_dir, settings.network, channels)
    if "novel" in loaded.train.classes:
        raise DataError("a class is called 'novel', which is the word for no class; rename it")
    split = choice.split(loaded.train.classes, seed)
    if choice.open:  # classes of the test part alone are there to be noticed
        split = _with_samples(loaded.train)
    samples = loaded.train.only(split.known)
    samples.require_every_class()
    return samples, split.novel


def _with_samples(train: Samples) -> ClassSplit:
    from shels.data import splits  # noqa: PLC0415

    has = [bool((train.labels == place).any()) for place in range(len(train.classes))]
    known = tuple(name for name, there in zip(train.classes, has, strict=True) if there)
    return splits.ClassSplit(known, tuple(name for name in train.classes if name not in known))


def _learn(
    samples: Samples, settings: Settings, seed: int, device: torch.device, target: Target, *, quiet: bool
) -> Learner:
    """Return the trained learner, once it is saved; with --force, another training's checkpoint may go."""
    try:
        return _train(samples, settings, seed, device, target, quiet=quiet)
    except ModelFileError:
        if not target.force or target.resumed_from is not None or not target.checkpoint.exists():
            raise
        target.checkpoint.unlink()
        return _train(samples, settings, seed, device, target, quiet=quiet)


def _train(
    samples: Samples, settings: Settings, seed: int, device: torch.device, target: Target, *, quiet: bool
) -> Learner:
    from shels.learner.learner import learning  # noqa: PLC0415

    with target.ready(), TrainingBar("training", quiet=quiet) as bar:
        try:
            work = learning(samples, settings, seed=seed, device=device, checkpoint=target.checkpoint)
            learner = bar.follow(work, target.note)
            target.save(learner)
        except TrainingError:
            target.checkpoint.unlink(missing_ok=True)  # there is nothing in it worth going on from
            raise
        except KeyboardInterrupt:
            bar.close()
            say(f"interrupted: {target.how_to_go_on()}")
            raise typer.Exit(1) from None
    return learner


def _result(learner: Learner, target: Target, data: str, novel: tuple[Any, ...]) -> dict[str, Any]:
    from shels.learner.pairing import facts  # noqa: PLC0415

    report = learner.report
    return {
        "model": str(target.directory),
        "data": data,
        "classes": list(learner.classes),
        "novel_classes": list(novel),
        **facts(learner.settings),
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
    held = result["held_out_samples"]
    lines = {
        "classes": listed(result["classes"]),
        "method": result["method"],
        "validation": f"{percent(result['validation_accuracy'])} right, of {held} held-out samples",
        "acceptance": f"{percent(result['held_out_acceptance'])} of them, by thresholds set without them",
        "exclusivity": f"{result['exclusivity']:.2f} on average (1: no two classes share a feature)",
        "training": f"{result['steps']} steps{early}, {result['seconds']:.1f} seconds on {result['device']}",
        "saved in": result["model"],
    }
    if result["kept_images"]:
        lines["holds"] = f"{result['kept_images']} of the training images, to learn from again"
    if result["novel_classes"]:
        lines = {"classes": lines.pop("classes"), "kept out": listed(result["novel_classes"]), **lines}
    for name, text in lines.items():
        typer.echo(f"{name:<13}{text}")
    where = ["--data-dir", str(data_dir)] if data_dir is not None else []
    typer.echo(f"next         {shlex.join(['shels', 'evaluate', result['model'], result['data'], *where])}")

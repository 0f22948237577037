"""Changes to what a learner knows: each gives a new learner and leaves the old one as it was."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shels.data.samples import Label, Samples, check_inputs
from shels.data.splits import hold_out
from shels.detection.head import Head
from shels.detection.protocol import Detector, Labelled, NewClass
from shels.errors import AccommodationError, DataError, SettingsError, unknown_name
from shels.learning.protocol import Given, Lesson, Method, train
from shels.learning.registry import method_of
from shels.learning.replay_buffer import kept_samples
from shels.model.networks import Views
from shels.training.courses import Fit, Progress

if TYPE_CHECKING:
    from shels.learner.learner import Learner

LEAST_IMAGES = 5


@dataclass(frozen=True, eq=False)
class Taking:
    """A class on its way into a learner, as a value: many can be trained together.

    lesson: the training that it needs, None where it needs none. finish: the learner that knows the class,
    from how that training went.
    """

    lesson: Lesson | None
    finish: Callable[[Fit | None], Learner]


def accommodated(
    learner: Learner,
    inputs: Tensor,
    label: Label,
    *,
    seed: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Learner:
    """Return a learner that knows one class more, from inputs of that class alone.

    Warns where most of them look like a class that is known already.
    """
    taking = taking_in(learner, inputs, label, seed=seed)
    return taking.finish(None if taking.lesson is None else train(taking.lesson, progress))


def taking_in(
    learner: Learner, inputs: Tensor, label: Label, *, seed: int | None = None, groups: Tensor | None = None
) -> Taking:
    """Return how a learner comes to know one class more. groups: (n,), samples that are held out together."""
    _check_label(learner, label)
    kept = _distinct(learner, inputs, label)
    inputs, groups = inputs[kept], None if groups is None else groups[kept.cpu()]
    began = time.perf_counter()
    method = learner.settings.accommodation
    seen = learner.views(inputs)
    _warn_of_known(learner, seen, label)

    def noted(new: Learner, told: dict[str, Any]) -> Learner:
        note = {"class": label, "images": len(inputs), "method": method.kind}
        note |= {"seconds": round(time.perf_counter() - began, 4), **told}
        old = learner.statistics
        statistics = None if old is None else old.with_class(inputs)
        history = {"taken_in": [*_history(learner), note]}
        new = replace(new, statistics=statistics, report=learner.report | history)
        return _changed(new, "accommodated", name=label, images=len(inputs))

    if learner.detector.is_learner:
        detector = learner.detector.with_class(NewClass(lambda: seen))
        new = replace(learner, detector=detector, classes=(*learner.classes, label))
        return Taking(None, lambda _: noted(new, {}))
    labels = torch.zeros(len(inputs), dtype=torch.int64)
    samples = Samples(inputs, labels, (label,), groups=groups, origin=f"class {label!r}")
    return _taught(learner, samples, _seed(learner, seed), noted)


def unlearned(learner: Learner, label: Label) -> Learner:
    """Return a learner that has forgotten a class.

    Of a class taken in by `gaussian` nothing stays; `proximal` keeps the units that were added for it, free
    again. Of a class that the network was trained on the features stay, which a warning says.
    """
    position = _position(learner, label)
    if len(learner.classes) < 3:
        raise SettingsError(f"two classes must remain; without {label!r} there would be one")
    way = learner.settings.accommodation
    stay = tuple(name for name in learner.classes if name != label)
    learner.detector.check("unlearn", way.kind)
    if not learner.detector.is_learner:
        taken = method_of(way).drop(learner.network, learner.memory, position)
        detector = learner.detector.without_class(position, Head.of(taken.network.head))
        new = replace(learner, network=taken.network, memory=taken.memory, detector=detector)
        return _forgotten(replace(new, classes=stay, taught=stay), label, position)
    if label in learner.taught:
        warnings.warn(
            f"the network was trained on {label!r}: it will not be predicted any more, but the features "
            "that it gave rise to stay",
            UserWarning,
            stacklevel=3,
        )
    taught = tuple(None if name == label else name for name in learner.taught)
    detector = learner.detector.without_class(position)
    new = replace(learner, detector=detector, classes=stay, taught=taught)
    return _forgotten(new, label, position)


def _forgotten(learner: Learner, label: Label, position: int) -> Learner:
    """Return the learner with nothing left of how a class looked and came about."""
    statistics = None if learner.statistics is None else learner.statistics.without(position)
    history = [note for note in _history(learner) if note["class"] != label]
    learner = replace(learner, statistics=statistics, report=learner.report | {"taken_in": history})
    return _changed(learner, "unlearned", name=label)


def renamed(learner: Learner, old: Label, new: Label) -> Learner:
    """Return a learner in which a class has another name."""
    _position(learner, old)
    if old == new:
        return learner
    _check_label(learner, new)
    swap = {name: name for name in learner.classes} | {old: new}
    classes = tuple(swap[name] for name in learner.classes)
    taught = tuple(swap.get(name, name) for name in learner.taught)
    history = [note | {"class": swap.get(note["class"], note["class"])} for note in _history(learner)]
    named = replace(learner, classes=classes, taught=taught, report=learner.report | {"taken_in": history})
    return _changed(named, "renamed", **{"from": old, "to": new})


def merged(learner: Learner, label: Label, into: Label) -> Learner:
    """Return a learner in which all of one class counts as another; each keeps its own place in features."""
    place, other = _position(learner, label), _position(learner, into)
    if label == into:
        return learner
    learner.detector.check("merge", learner.settings.accommodation.kind)
    stay = tuple(name for name in learner.classes if name != label)
    taught = tuple(None if name == label else name for name in learner.taught)
    new = replace(learner, detector=learner.detector.merged(place, other), classes=stay, taught=taught)
    if new.statistics is not None:
        new = replace(new, statistics=new.statistics.merged(place, other))
    return _changed(new, "merged", **{"from": label, "to": into})


def _history(learner: Learner) -> list[dict[str, Any]]:
    """Return a note on each class that was taken in after the first training."""
    return list(learner.report.get("taken_in", []))


def _changed(learner: Learner, kind: str, **facts: Any) -> Learner:
    """Return the learner with a note of what made it."""
    return replace(learner, report=learner.report | {"last_change": {"kind": kind, **facts}})


def _taught(
    learner: Learner, samples: Samples, seed: int, noted: Callable[[Learner, dict[str, Any]], Learner]
) -> Taking:
    """Return how a class is learned by the learner's method, some samples held out for its threshold."""
    settings = learner.settings
    share = settings.training.validation_share
    training, apart = (samples.take(index) for index in hold_out(samples, share, seed))
    method, prepare = method_of(settings.accommodation), learner.preparation
    lesson = method.lesson(Given(learner.network, learner.memory, training, prepare, settings.training, seed))

    def finish(went: Fit | None) -> Learner:
        taken = lesson.finish(went) if isinstance(lesson, Lesson) and went is not None else lesson
        if isinstance(taken, Lesson):
            raise AccommodationError("the class was not trained yet; train the lesson first")
        classes = (*learner.classes, *samples.classes)
        new = replace(learner, network=taken.network, memory=taken.memory, classes=classes)
        new = replace(new, taught=classes) if method.grows_head else new
        new.detector = _detector(learner, new, method, training, apart)
        return noted(new, taken.report)

    return Taking(lesson if isinstance(lesson, Lesson) else None, finish)


def _detector(
    learner: Learner, new: Learner, method: Method, training: Samples, held_out: Samples
) -> Detector:
    """Let the detector know the class too, from samples of it that were held out."""

    def stored() -> Labelled:
        samples = kept_samples(new.memory, len(new.classes))
        return Labelled(new.views(samples.inputs), samples.labels.to(new.device))

    return learner.detector.with_class(
        NewClass(
            lambda: new.views(training.inputs),
            held_out=new.views(held_out.inputs),
            naming=method.naming(new.network, new.memory),
            head=Head.of(new.network.head) if method.grows_head else None,
            stored=stored if method.stores == "old data" else None,
        )
    )


def _seed(learner: Learner, seed: int | None) -> int:
    return learner.seed if seed is None else seed


def _position(learner: Learner, label: Label) -> int:
    if label not in learner.classes:
        raise SettingsError(unknown_name("class", label, learner.classes))
    return learner.classes.index(label)


def _check_label(learner: Learner, label: Label) -> None:
    if not isinstance(label, Hashable) or label is None or label != label:  # noqa: PLR0124 - NaN alone
        raise SettingsError(f"a class must have one name, got {label!r}")
    if label in learner.classes:
        more = ", unlearn it first, or take the images in under another name and merge the two"
        hint = "choose another name" + more * learner.joins
        raise SettingsError(f"class {label!r} is known already; {hint}")
    if learner.novel_label is not None and label == learner.novel_label:
        raise SettingsError(f"{label!r} is the answer for novel samples; choose another name")


def _distinct(learner: Learner, inputs: Tensor, label: Label) -> Tensor:
    """Return where each image stands first, enough of them to learn from; copies would vouch for it: (n,)."""
    learner.preparation.check(inputs)
    check_inputs(inputs, f"the images of {label!r}")
    rows = inputs.cpu().contiguous().numpy()
    first = {row.tobytes(): place for place, row in reversed(list(enumerate(rows)))}
    if len(first) < len(inputs):
        warnings.warn(
            f"{len(inputs) - len(first)} of the {len(inputs)} images of {label!r} are copies of others and "
            "are left out",
            UserWarning,
            stacklevel=4,
        )
    if len(first) < LEAST_IMAGES:
        raise DataError(
            f"a class is learned from {LEAST_IMAGES} different images or more, got {len(first)} of class "
            f"{label!r}; give more"
        )
    return torch.tensor(sorted(first.values()), device=inputs.device)


def _warn_of_known(learner: Learner, seen: Views, label: Label) -> None:
    verdicts = learner.detector.verdicts(seen)
    known = verdicts.predicted[~verdicts.novel]
    counts = torch.bincount(known, minlength=len(learner.classes))
    if 2 * int(counts.max()) > len(verdicts):
        like = learner.classes[int(counts.argmax())]
        warnings.warn(
            f"{int(counts.max())} of the {len(verdicts)} images given as {label!r} look like the known class "
            f"{like!r}",
            UserWarning,
            stacklevel=4,
        )

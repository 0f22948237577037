"""Changes to what a learner knows: each gives a new learner and leaves the old one as it was."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Generator, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shels.config import OWN
from shels.data.samples import Label, Samples, check_inputs
from shels.data.splits import training_split
from shels.detection.head import Head
from shels.detection.protocol import Labelled, LearnedClass, rows_of
from shels.errors import DataError, SettingsError, unknown_name
from shels.learner.pairing import LEAST_IMAGES, least_images, score_name
from shels.learning.methods.joint import JointMethod
from shels.learning.protocol import NewClass, train_alone
from shels.learning.registry import method_of
from shels.learning.replay_buffer import buffered_samples
from shels.model.networks import Views
from shels.training import Fit, Progress, TrainingRequest

if TYPE_CHECKING:
    from shels.learner.learner import Learner

_CALLER = 7
"""How far up from a warning about new images the caller of `Learner.accommodate` is."""


def accommodating(
    learner: Learner,
    inputs: Tensor,
    label: Label,
    *,
    seed: int | None = None,
    features: Views | None = None,
    least: int = LEAST_IMAGES,
) -> Generator[Progress, None, Learner]:
    """Make a learner that knows one class more, from inputs of that class alone, reporting on the way.

    features: what the network makes of the inputs, where that is known already. least: how many different
    inputs are enough; the learner `gaussian` can do with 1, others need 5. Warns where most of them look like
    classes that are known.
    """
    return train_alone(taking_in(learner, inputs, label, seed=seed, features=features, least=least))


def taking_in(
    learner: Learner,
    inputs: Tensor,
    label: Label,
    *,
    seed: int | None = None,
    groups: Tensor | None = None,
    features: Views | None = None,
    least: int = LEAST_IMAGES,
) -> Generator[TrainingRequest, Fit, Learner]:
    """Make a learner that knows one class more, asking for the trainings that it takes.

    groups: (n,), samples that are held out together. least: how many different inputs are enough.
    """
    _check_label(learner, label)
    distinct = _distinct(learner, inputs, label, least)
    inputs, groups = inputs[distinct], None if groups is None else groups[distinct.cpu()]
    began = time.perf_counter()
    method = learner.settings.accommodation
    views = learner.views(inputs) if features is None else rows_of(features, distinct)
    _warn_of_known(learner, views, label)
    report: dict[str, Any] = {}
    if learner.detector.is_learner:
        detector = learner.detector.with_class(LearnedClass(lambda: views))
        new = replace(learner, detector=detector, classes=(*learner.classes, label))
    else:
        labels = torch.zeros(len(inputs), dtype=torch.int64)
        samples = Samples(inputs, labels, (label,), groups=groups, origin=f"class {label!r}")
        new, report = yield from _taught(learner, samples, views, learner.seed if seed is None else seed)
    note = {"class": label, "images": len(inputs), "method": method.kind}
    note |= {"seconds": round(time.perf_counter() - began, 4), **report}
    statistics = None if learner.statistics is None else learner.statistics.with_class(inputs)
    history = {"taken_in": [*_history(learner), note]}
    new = replace(new, statistics=statistics, report=learner.report | history)
    return _changed(new, "accommodated", name=label, images=len(inputs))


def kept_for_later(
    learner: Learner, inputs: Tensor, label: Label, *, seed: int, groups: Tensor | None = None
) -> Learner:
    """Make a learner of joint training that has a class's samples and is still to be trained on them.

    It judges as before, as if the class were novel. The next class that is taken in sets all of that anew.
    """
    method = method_of(learner.settings.accommodation)
    if not isinstance(method, JointMethod):
        raise SettingsError(f"learner {method.settings.kind} learns each class when it comes; take it in")
    _check_label(learner, label)
    distinct = _distinct(learner, inputs, label)
    labels = torch.zeros(len(distinct), dtype=torch.int64)
    groups = None if groups is None else groups[distinct.cpu()]
    samples = Samples(inputs[distinct], labels, (label,), groups=groups, origin=f"class {label!r}")
    training = learner.settings.training
    index, _ = training_split(samples.labels, samples.groups, training, seed)
    given = (learner.network, learner.memory, samples.take(index), learner.preparation, training)
    found = method.keep(NewClass(*given, seed))
    classes = (*learner.classes, label)
    return replace(learner, network=found.network, memory=found.memory, classes=classes, taught=classes)


def unlearned(learner: Learner, label: Label) -> Learner:
    """Return a learner that has forgotten a class.

    Of a class taken in by `gaussian` nothing stays; `proximal` keeps the units that were added for it, free
    again. Of a class that the network was trained on the features stay, which a warning says.
    """
    position = _position(learner, label)
    if len(learner.classes) < 3:
        raise SettingsError(f"two classes must remain; without {label!r} there would be one")
    way = learner.settings.accommodation
    classes = tuple(name for name in learner.classes if name != label)
    learner.detector.check("unlearn", way.kind)
    if learner.detector.is_learner:
        if label in learner.taught:
            warnings.warn(
                f"the network was trained on {label!r}: it will not be predicted any more, but the features "
                "that it gave rise to stay",
                UserWarning,
                stacklevel=2,
            )
        taught = tuple(None if name == label else name for name in learner.taught)
        new = replace(learner, detector=learner.detector.without_class(position), taught=taught)
    else:
        new = _dropped(learner, position)
    statistics = None if learner.statistics is None else learner.statistics.without(position)
    history = [note for note in _history(learner) if note["class"] != label]
    report = learner.report | {"taken_in": history}
    return _changed(
        replace(new, classes=classes, statistics=statistics, report=report), "unlearned", name=label
    )


def _dropped(learner: Learner, position: int) -> Learner:
    """Let the learner's method forget a class, and the detector beside it."""
    method, label = method_of(learner.settings.accommodation), learner.classes[position]
    taken = method.drop(learner.network, learner.memory, position)
    names = None if score_name(learner.settings) == OWN else method.naming(taken.network, taken.memory)
    detector = learner.detector.without_class(position, Head.of(taken.network.head), names)
    taught = tuple(None if name == label else name for name in learner.taught)
    if method.grows_head:
        taught = tuple(name for name in learner.classes if name != label)
    return replace(learner, network=taken.network, memory=taken.memory, detector=detector, taught=taught)


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
    learner: Learner, samples: Samples, views: Views, seed: int
) -> Generator[TrainingRequest, Fit, tuple[Learner, dict[str, Any]]]:
    """Let the learner's method learn a class, some samples held out for its threshold; return its report too.

    views: what the learner's network makes of the samples.
    """
    settings, method = learner.settings, method_of(learner.settings.accommodation)
    index, held_out = training_split(samples.labels, samples.groups, settings.training, seed)
    apart = not learner.detector.cross_fits or method.stores == "old data"
    if not apart:
        index = torch.arange(len(samples))
    given = (learner.network, learner.memory, samples.take(index), learner.preparation, settings.training)
    found = yield from method.take_in(NewClass(*given, seed, rows_of(views, index)))
    classes = (*learner.classes, *samples.classes)
    new = replace(learner, network=found.network, memory=found.memory, classes=classes)
    new = replace(new, taught=classes) if method.grows_head else new

    def features(places: Tensor) -> Views:
        if new.network is learner.network:  # an image passes it once
            return rows_of(views, places)
        return new.views(samples.take(places).inputs)

    def stored() -> Labelled:
        every = buffered_samples(new.memory, len(classes))
        return Labelled(new.views(every.inputs), every.labels.to(new.device))

    of_class = LearnedClass(
        lambda: features(index),
        held_out=features(held_out) if apart else None,
        groups=samples.groups,
        naming=method.naming(new.network, new.memory),
        head=Head.of(new.network.head) if method.grows_head else None,
        stored=stored if method.stores == "old data" else None,
    )
    new.detector = learner.detector.with_class(of_class)
    return new, found.report


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


def _distinct(learner: Learner, inputs: Tensor, label: Label, least: int = LEAST_IMAGES) -> Tensor:
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
            stacklevel=_CALLER,
        )
    least = max(least, least_images(learner.settings))
    if len(first) < least:
        raise DataError(
            f"a class is learned from {least} different image{'s' * (least > 1)} or more, got {len(first)} "
            f"of class {label!r}; give more"
        )
    if len(first) < LEAST_IMAGES:
        warnings.warn(
            f"{len(first)} image{'s' * (len(first) > 1)} of {label!r}: how far its images spread, and how "
            f"familiar they must look, is mostly taken from other classes; {LEAST_IMAGES} or more are better",
            UserWarning,
            stacklevel=_CALLER,
        )
    return torch.tensor(sorted(first.values()), device=inputs.device)


def _warn_of_known(learner: Learner, seen: Views, label: Label) -> None:
    verdicts = learner.detector.verdicts(seen)
    known = verdicts.predicted[~verdicts.novel].tolist()
    if 2 * len(known) <= len(verdicts):
        return
    counts = Counter(repr(learner.classes[place]) for place in known).most_common()
    like = ", ".join(f"{name} ({count})" for name, count in counts)
    which = f"the known class {counts[0][0]}" if len(counts) == 1 else f"known classes: {like}"
    warnings.warn(
        f"{len(known)} of the {len(verdicts)} images given as {label!r} look like {which}; "
        "see that they show nothing else",
        UserWarning,
        stacklevel=_CALLER,
    )

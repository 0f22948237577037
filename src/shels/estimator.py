"""The Python face: a scikit-learn classifier that may answer "novel"."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from shels import runtime
from shels.config import AcceptShare, Settings, overridden
from shels.config.presets import preset
from shels.data.arrays import from_arrays, images_or_vectors
from shels.data.datasets import inputs_of, samples_of
from shels.data.images import side_limit
from shels.data.inputs import form
from shels.data.preparation import BACKBONE_SIDE
from shels.data.samples import Samples
from shels.errors import SettingsError
from shels.learner.choosing import chosen, readable_side
from shels.learner.explanation import Explanation
from shels.learner.export import Exported
from shels.learner.learner import Learner, learn
from shels.model.backbone import OWN
from shels.model.backbone_library import LITE0

Array = NDArray[Any]


class OpenWorldClassifier(ClassifierMixin, BaseEstimator):
    """Classifies what it knows and answers `novel_label` to what it has never seen.

    Parameters
    ----------
    preset: "default" accepts 95 % of known samples; "paper" follows the paper's settings and threshold rule.
    novel_label: the answer for novel samples; -1 becomes "novel" where the classes are strings.
    random_state: an int for the same result every time, a RandomState, or None.
    device: "auto", "cpu" or "cuda".
    backbone: a pretrained network for photos, `efficientnet-lite0`, `timm/MODEL`, `torchvision/MODEL`,
        `open_clip/MODEL:WEIGHTS`, the path of an ONNX file, or an nn.Module that makes features (n, d) of
        images normalised as for ImageNet; None takes one for images of 48 pixels and more where
        `shels[photos]` is installed, False none. frozen: whether it is left as it is, which is faster.
    network: an architecture by name, or an nn.Sequential of Conv2d, Linear, ReLU, pooling, Flatten and
        Dropout that ends in ReLU features; None leaves it to the preset.
    image_size: side that images are resized to; None keeps their own, up to 64 pixels.
    accept: share of known samples to accept instead of the preset's rule.
    max_steps: the most optimiser steps to train for; None leaves it to the preset.
    settings: a whole `shels.config.Settings` in place of the preset.

    After `fit`: `classes_`, `novel_label_`, `learner_`, `n_features_in_`.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> zeros, ones, sixes = (X[y == digit] for digit in (0, 1, 6))
    >>> model = OpenWorldClassifier(max_steps=40, random_state=0, device="cpu")
    >>> model = model.fit(np.concatenate([zeros, ones]), ["zero"] * len(zeros) + ["one"] * len(ones))
    >>> model.predict(zeros[:2]), model.predict(sixes[:2])
    (array(['zero', 'zero'], dtype='<U5'), array(['novel', 'novel'], dtype='<U5'))
    >>> model.accommodate(sixes, "six").predict(sixes[:2])
    array(['six', 'six'], dtype='<U5')
    >>> model.class_scores(sixes).shape
    (181, 3)
    """

    def __init__(  # noqa: PLR0913 - scikit-learn's way: every choice is a parameter
        self,
        preset: str = "default",
        novel_label: Any = -1,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        *,
        backbone: str | nn.Module | bool | None = None,
        frozen: bool = False,
        network: str | nn.Sequential | None = None,
        image_size: int | None = None,
        accept: float | None = None,
        max_steps: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.preset = preset
        self.novel_label = novel_label
        self.random_state = random_state
        self.device = device
        self.backbone = backbone
        self.frozen = frozen
        self.network = network
        self.image_size = image_size
        self.accept = accept
        self.max_steps = max_steps
        self.settings = settings

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Learn the classes of y.

        X: images (n, h, w[, c]), vectors (n, d), or a list or column of paths or images of any size.
        Without y: a torch or Hugging Face data set, a pandas frame with columns such as path and label, or
        the path of a folder of class folders, a zip of such, a CSV of paths and labels, or an .npz file.
        """
        self._check()
        samples = self._samples(X, y)
        settings = self._settings(samples)
        novel_label = resolve_novel_label(self.novel_label, samples.classes)
        chain = self.network if isinstance(self.network, nn.Module) else None
        seed = runtime.seed_from(self.random_state)
        own = self.backbone if isinstance(self.backbone, nn.Module) else None
        learner = learn(samples, settings, seed=seed, device=self.device, chain=chain, backbone=own)
        self._adopt(learner, novel_label)
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Name the class of each sample, or answer `novel_label_`: (n,)."""
        verdicts = self._learner().judge(self._inputs(X))
        answers = self.classes_[verdicts.predicted.cpu().numpy()]
        novel = np.asarray([self.novel_label_])
        mixed = novel.dtype.kind != answers.dtype.kind
        answers = answers.astype(object if mixed else np.result_type(answers, novel))
        answers[verdicts.novel.cpu().numpy()] = self.novel_label_
        return np.asarray(answers)

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Score each sample less the threshold of its nearest class: (n,); over 0 is known."""
        verdicts = self._learner().judge(self._inputs(X))
        return _numpy(verdicts.score - verdicts.threshold)

    def score_samples(self, X: Any) -> Array:  # noqa: N803
        """Score how familiar each sample is: its score for the nearest class: (n,)."""
        return _numpy(self._learner().judge(self._inputs(X)).score)

    def class_scores(self, X: Any) -> Array:  # noqa: N803
        """Score each sample's similarity to every class: (n, classes)."""
        return _numpy(self._learner().class_scores(self._inputs(X)))

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Estimate the probability of each class, taking it that one of them is right: (n, classes)."""
        return _numpy(self._learner().probabilities(self._inputs(X)))

    def accommodate(self, X: Any, label: Any) -> Self:  # noqa: N803
        """Take in a new class from samples of it alone, five or more; the classes known before stay."""
        label = label.item() if isinstance(label, np.generic) else label
        self._adopt(self._learner().accommodate(self._inputs(X), label), self.novel_label_)
        return self

    def set_accept_share(self, share: float) -> Self:
        """Accept another share of known samples, such as 0.99; thresholds move, nothing is trained."""
        self._adopt(self._learner().with_accept_share(share), self.novel_label_)
        return self

    def unlearn(self, label: Any) -> Self:
        """Forget a class, where the way of taking in classes allows it."""
        label = label.item() if isinstance(label, np.generic) else label
        self._adopt(self._learner().unlearn(label), self.novel_label_)
        return self

    def observe(self, X: Any) -> dict[str, Any]:  # noqa: N803
        """Tell whether a batch as a whole looks new, and what in it does.

        novel: (n,) marks; share: of the batch judged novel; alarm: whether that is more than chance;
        threshold: the share that would be; groups: (n,) the proposed new class of each sample, -1 for none;
        drift: why it looks like known classes seen through a change, or None.
        """
        from shels.agent.observation import observed  # noqa: PLC0415

        return observed(self._learner(), self._inputs(X))

    def explain(self, X: Any, examples: Any = None, labels: Any = None) -> list[Explanation]:  # noqa: N803
        """Say of each sample what stands behind its verdict: other classes' p-values, what was unusual.

        examples, labels: known samples and their classes, of which the nearest to each are given.
        """
        known = None if examples is None else from_arrays(examples, labels, origin="examples")
        return self._learner().explain(self._inputs(X), known)

    def export(self, path: str | Path, *, check: Any = None, int8: bool = False) -> Exported:
        """Write the model as one ONNX file (or a torch.export program, .pt2) that judges without shels.

        check: samples to compare the file's verdicts with this model's on; it is not written where they
        differ. int8: the network with weights of eight bits.
        """
        inputs = None if check is None else self._inputs(check)
        return self._learner().export(path, check=inputs, int8=int8)

    def save(self, directory: str | Path) -> None:
        """Write the learner into a directory: JSON and safetensors, nothing executable."""
        self._learner().save(directory)

    @classmethod
    def load(cls, directory: str | Path, **parameters: Any) -> Self:
        """Load a fitted classifier from a saved learner; `parameters` as for the constructor."""
        self = cls(**parameters)
        own = self.backbone if isinstance(self.backbone, nn.Module) else None
        learner = Learner.load(directory, self.device, backbone=own)
        stored = learner.novel_label if "novel_label" not in parameters else None
        self.novel_label = self.novel_label if stored is None else stored
        self._adopt(learner, resolve_novel_label(self.novel_label, learner.classes))
        self.n_features_in_ = learner.preparation.shape[-1]
        return self

    def _check(self) -> None:
        if not isinstance(self.settings, Settings | None):
            kind = type(self.settings).__name__
            raise SettingsError(f"settings must be a shels.config.Settings, got {kind}")
        if not isinstance(self.network, str | nn.Module | None):
            raise SettingsError(f"network must be a name or an nn.Sequential, got {self.network!r}")
        if not isinstance(self.backbone, str | nn.Module | bool | None):
            raise SettingsError(f"backbone must be a name or an nn.Module, got {self.backbone!r}")
        if self.backbone and self.network is not None:
            raise SettingsError("give a backbone or a network, not both")
        if self.settings is None:
            preset(self.preset)

    def _settings(self, samples: Samples) -> Settings:
        settings = self._chosen(samples) if self.settings is None else self.settings
        name = self.network if isinstance(self.network, str) else None
        network = {"architecture": name, "image_size": self.image_size}
        length = {
            "steps": self.max_steps,
            "steps_by_root": settings.training.steps_by_root,
        }  # fewer if it can
        settings = overridden(settings, network, length)
        if self.accept is None:
            return settings
        rule = settings.rule if isinstance(settings.rule, AcceptShare) else AcceptShare()
        return replace(settings, rule=replace(rule, share=self.accept))

    def _chosen(self, samples: Samples) -> Settings:
        side = min(samples.inputs.shape[2:]) if samples.inputs.ndim == 4 else None
        choose = partial(chosen, self.preset, side, vectors=side is None, classes=len(samples.classes))
        if (self.network is not None or self.backbone is False) and not self.frozen:
            return choose(architecture="auto").settings
        name = OWN if isinstance(self.backbone, nn.Module) else self.backbone
        asked = LITE0 if name is True else name or None
        return choose(backbone=asked, frozen=self.frozen).settings

    def _samples(self, X: Any, y: Any) -> Samples:  # noqa: N803
        if isinstance(X, torch.utils.data.DataLoader):
            raise SettingsError("a DataLoader gives batches; pass its data set: fit(loader.dataset)")
        open_choice = self.settings is None and self.network is None and self.backbone is None
        asked = None if open_choice or not self.backbone else BACKBONE_SIDE
        with side_limit(readable_side(self.preset, open_choice=open_choice)):
            samples = samples_of(X, y, self.image_size or asked)
        if samples is not None:
            self.n_features_in_ = samples.inputs.shape[-1]
            return samples
        if _is_table(X):
            X, y = validate_data(self, X, y, dtype="numeric", ensure_min_samples=2)  # noqa: N806
        else:
            X = images_or_vectors(X, "X")  # noqa: N806
            self.n_features_in_ = X.shape[-1]
        if getattr(getattr(y, "dtype", None), "kind", "") != "O":
            check_classification_targets(y)  # any kind of label, but no scale of numbers
        return from_arrays(X, y, origin="X and y")

    def _inputs(self, X: Any) -> Tensor:  # noqa: N803
        self._learner()
        preparation = self.learner_.preparation
        inputs = inputs_of(X, *form(preparation), side=preparation.shape[-1])
        if inputs is not None:
            return inputs
        if _is_table(X) and len(preparation.shape) == 1:
            X = validate_data(self, X, dtype="numeric", reset=False)  # noqa: N806
        return images_or_vectors(X, "X")

    def _adopt(self, learner: Learner, novel_label: Any) -> None:
        self.learner_ = learner
        learner.novel_label = novel_label
        self.classes_ = _as_array(learner.classes)
        self.novel_label_ = novel_label

    def _learner(self) -> Learner:
        check_is_fitted(self, "learner_")
        return self.learner_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = self.random_state is None
        return tags


def resolve_novel_label(label: Any, classes: tuple[Any, ...]) -> Any:
    """Choose the answer for novel samples; it must be none of the classes.

    >>> resolve_novel_label(-1, (3, 5)), resolve_novel_label(-1, ("cat", "dog"))
    (-1, 'novel')
    """
    if not isinstance(label, Hashable):
        raise SettingsError(f"novel_label must be one label, got {label!r}")
    label = label.item() if isinstance(label, np.generic) else label
    if label == -1 and all(isinstance(name, str) for name in classes):
        label = "novel"
    if label in classes:
        raise SettingsError(f"novel_label {label!r} is one of the classes {list(classes)}; choose another")
    return label


def _as_array(classes: tuple[Any, ...]) -> Array:
    """Make an array of classes that holds them as they are, also where their kinds differ."""
    array = np.asarray(classes)
    if array.ndim == 1 and array.tolist() == list(classes):
        return array
    array = np.empty(len(classes), dtype=object)
    array[:] = classes
    return array


def _is_table(x: Any) -> bool:
    """Tell whether x is for scikit-learn to check: anything but images in an array or tensor."""
    return getattr(x, "ndim", 2) <= 2 and not isinstance(x, Tensor)


def _numpy(values: Tensor) -> Array:
    return np.asarray(values.double().cpu().numpy())

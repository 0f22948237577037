"""Images changed at random: worked by hand, against torch's padding and scipy's resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage

from shels.config import Augmentation
from shels.data.augmentation import Numbers, augmented, drawn
from shels.data.sources import NAMED

HALF = 0.5  # the draw that changes nothing where a change goes either way


def numbers(n=1, **given):
    """Draws that change nothing, but for those given, of every image alike or each its own."""
    rest = dict.fromkeys(Numbers._fields, HALF)
    each = {
        name: torch.as_tensor(value, dtype=torch.float64).expand(n)
        for name, value in {**rest, **given}.items()
    }
    return Numbers(**each)


def images(n=4, channels=3, side=8, width=None):
    return torch.rand(n, channels, side, width or side, generator=torch.Generator().manual_seed(0)).double()


def changed(x, settings, *, unit=False, **given):
    return augmented(x, numbers(len(x), **given), settings, unit=unit)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("border", "mode"), [("zeros", "constant"), ("reflect", "reflect")])
def test_a_crop_is_a_part_of_the_padded_image(channels, border, mode):
    x = images(5, channels, side=8, width=10)
    got = changed(
        x,
        Augmentation(crop=0.2, border=border),  # two pixels each way, of eight and of ten
        crop_down=[0.0, 0.21, 0.41, 0.61, 0.99],
        crop_across=[0.99, 0.61, 0.41, 0.0, 0.21],
    )
    padded = F.pad(x, (2, 2, 2, 2), mode=mode)
    corners = [(0, 4), (1, 3), (2, 2), (3, 0), (4, 1)]
    expected = [padded[i, :, top : top + 8, left : left + 10] for i, (top, left) in enumerate(corners)]
    assert torch.equal(got, torch.stack(expected))


def test_each_image_is_mirrored_by_its_own_draw():
    x = images(3)
    got = changed(x, Augmentation(flip=0.4), flip=[0.39, 0.41, 0.0])
    assert torch.equal(got, torch.stack([x[0].flip(2), x[1], x[2].flip(2)]))


def test_a_crop_is_mirrored_as_a_whole():
    x = images(1)
    got = changed(x, Augmentation(crop=0.25, flip=1.0), crop_across=0.0)
    assert torch.equal(got, F.pad(x, (2, 2))[..., :8].flip(3))


@pytest.mark.parametrize("draw", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("sides", [(9, 9), (8, 12)])
def test_rotation_zoom_and_translation_are_scipys(draw, sides):
    x = images(1, 1, *sides)
    settings = Augmentation(rotation=30, zoom=0.2, translation=0.1)
    got = changed(x, settings, rotation=draw, zoom=draw, down=draw, across=1 - draw)
    angle, zoom = math.radians((2 * draw - 1) * 30), 1 + (2 * draw - 1) * 0.2
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]) / zoom
    moved = (2 * draw - 1) * 0.1 * np.array([sides[0], -sides[1]])
    far = F.pad(x, (5, 5, 5, 5))[0, 0].numpy()  # scipy interpolates towards what lies beyond the frame
    middle = (np.array(far.shape) - 1) / 2
    expected = ndimage.affine_transform(far, turn, middle - turn @ (middle + moved), order=1)
    torch.testing.assert_close(got[0, 0], torch.from_numpy(expected)[5:-5, 5:-5], rtol=0, atol=1e-9)


def test_a_quarter_turn_is_a_quarter_turn():
    x = images(2)
    got = changed(x, Augmentation(rotation=90), rotation=[0.0, 1.0])
    turns = torch.stack([torch.rot90(x[0], 1, (1, 2)), torch.rot90(x[1], -1, (1, 2))])
    torch.testing.assert_close(got, turns, rtol=0, atol=1e-9)


def test_brightness_is_added_and_contrast_is_about_the_images_own_mean():
    x = torch.tensor([0.2, 0.4]).double().view(1, 1, 1, 2).expand(1, 1, 4, 2)
    brighter = changed(x, Augmentation(brightness=0.2), brightness=1.0)
    torch.testing.assert_close(brighter[0, 0, 0], torch.tensor([0.4, 0.6]).double())
    stronger = changed(x, Augmentation(contrast=0.5), contrast=1.0)
    torch.testing.assert_close(stronger[0, 0, 0], torch.tensor([0.15, 0.45]).double())
    assert changed(x, Augmentation(brightness=1.0), brightness=1.0, unit=True).max() == 1.0


def test_cutout_clears_a_square_about_a_pixel_and_what_reaches_out_is_cut_off():
    x = images(2) + 1
    got = changed(x, Augmentation(cutout=0.5), cutout_down=[0.5, 0.0], cutout_across=[0.5, 0.99])
    inside = torch.zeros(2, 8, 8, dtype=torch.bool)
    inside[0, 2:6, 2:6] = True
    inside[1, 0:2, 5:8] = True
    assert torch.equal(got == 0, inside[:, None].expand_as(got))
    assert torch.equal(got[~inside[:, None].expand_as(got)], x[~inside[:, None].expand_as(x)])


EVERYTHING = Augmentation(0.125, "zeros", 0.5, 0.2, 0.2, 10, 0.1, 0.1, 0.25)


def test_draws_that_change_nothing_change_nothing():
    x = images(3)
    still = numbers(3, flip=1.0, cutout_down=0.0, cutout_across=0.0)
    torch.testing.assert_close(augmented(x, still, Augmentation(0.125, "reflect", 0.5), unit=True), x)
    torch.testing.assert_close(
        augmented(x, still, Augmentation(rotation=10, zoom=0.1, translation=0.1), unit=True), x
    )
    assert torch.equal(augmented(x, drawn(x), Augmentation(), unit=True), x)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_has_draws_of_its_own_and_the_layout_is_channels_last(channels):
    x = images(1, channels, 16).float().expand(32, -1, -1, -1).contiguous(memory_format=torch.channels_last)
    torch.manual_seed(0)
    got = augmented(x, drawn(x), EVERYTHING, unit=True)
    assert got.dtype == torch.float32
    assert got.shape == x.shape
    assert got.is_contiguous(memory_format=torch.channels_last)
    assert len({tuple(each.flatten().tolist()) for each in got}) == 32
    assert got.min() >= 0
    assert got.max() <= 1


def test_an_image_is_changed_by_its_own_numbers_whatever_stands_beside_it():
    x = images(6)
    torch.manual_seed(0)
    mine = drawn(x)
    whole = augmented(x, mine, EVERYTHING, unit=True)
    alone = [
        augmented(x[i : i + 1], Numbers(*(v[i : i + 1] for v in mine)), EVERYTHING, unit=True)
        for i in range(6)
    ]
    torch.testing.assert_close(torch.cat(alone), whole, rtol=0, atol=1e-12)


def test_sets_of_things_may_be_mirrored_and_sets_of_signs_may_not():
    assert {name for name, each in NAMED.items() if each.flips} == {"cifar10", "fmnist"}

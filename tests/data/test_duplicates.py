"""Copies and near duplicates: planted ones are found, whatever was done to them, and nothing else is."""

from __future__ import annotations

import io
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from sklearn.datasets import load_digits, load_sample_image

from shels.data.duplicates import LIKENESS, Looks, components, look_at_files, looks_of, pairs
from shels.errors import SettingsError

SIDES = (110, 90)


@pytest.fixture(scope="module")
def crops():
    """Twenty-four different pieces of photos that show something, none overlapping another."""
    out = []
    for name in ("china", "flower"):
        photo = Image.fromarray(load_sample_image(f"{name}.jpg"))
        corners = [(x, y) for y in range(0, 337, 90) for x in range(0, 530, 110)]
        pieces = [photo.crop((x, y, x + SIDES[0], y + SIDES[1])) for x, y in corners]
        out += [piece for piece in pieces if np.asarray(piece.convert("L")).std() > 12][:12]
    return out


def encoded(image, **how):
    buffer = io.BytesIO()
    image.save(buffer, "jpeg", **how)
    return buffer.getvalue()


def sideways(image):
    """A photo as some cameras store it: turned, with a note that says so."""
    note = Image.Exif()
    note[0x0112] = 6
    return encoded(image.transpose(Image.Transpose.ROTATE_90), quality=90, exif=note)


CHANGES = {
    "encoded again": lambda image: encoded(image, quality=30),
    "half as large": lambda image: encoded(image.resize((55, 45)), quality=90),
    "a quarter turned": lambda image: encoded(image.rotate(90, expand=True), quality=90),
    "upside down": lambda image: encoded(image.rotate(180), quality=90),
    "mirrored": lambda image: encoded(ImageOps.mirror(image), quality=80),
    "stored sideways": sideways,
    "darker": lambda image: encoded(Image.eval(image, lambda value: value * 0.7 + 20), quality=90),
    "grey": lambda image: encoded(image.convert("L"), quality=90),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_changed_copy_of_a_photo_is_found_and_no_two_others_are(tmp_path, crops, change):
    for number, image in enumerate(crops):
        image.save(tmp_path / f"{number:02}.png")
        if number % 3 == 0:
            (tmp_path / f"{number:02}-changed.jpg").write_bytes(CHANGES[change](image))
    files = sorted(tmp_path.iterdir())
    looks = list(look_at_files(files))
    found = pairs(Looks(np.stack([look.picture for look in looks]), [look.content for look in looks]))
    names = {(files[pair.first].stem[:2], files[pair.second].stem[:2]) for pair in found}
    assert names == {(f"{number:02}", f"{number:02}") for number in range(0, len(crops), 3)}
    assert not any(pair.exact for pair in found)


def test_equal_files_are_exact_copies_under_any_name(tmp_path, crops):
    for name in ("a.png", "b.png"):
        crops[0].save(tmp_path / name)
    crops[1].save(tmp_path / "c.png")
    looks = list(look_at_files(sorted(tmp_path.iterdir())))
    found = pairs(Looks(np.stack([look.picture for look in looks]), [look.content for look in looks]))
    assert [(pair.first, pair.second, pair.exact) for pair in found] == [(0, 1, True)]


def test_a_file_that_is_no_image_says_why(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    (look,) = look_at_files([tmp_path / "broken.jpg"])
    assert "broken.jpg is not an image that can be used" in look.problem


def test_likeness_is_the_correlation_of_the_small_pictures_and_all_pairs_are_compared():
    draws = np.random.default_rng(0)
    base = draws.normal(128, 40, (6, 32, 32))
    pictures = np.concatenate([base, base + draws.normal(0, 8, base.shape)]).clip(0, 255).astype(np.uint8)
    found = {(pair.first, pair.second): pair.likeness for pair in pairs(Looks(pictures, list(range(12))))}
    rows = pictures.reshape(12, -1)
    every = {(a, b): np.corrcoef(rows[a], rows[b])[0, 1] for a, b in combinations(range(12), 2)}
    expected = {pair: value for pair, value in every.items() if value >= LIKENESS}
    assert found.keys() == expected.keys() == {(a, a + 6) for a in range(6)}
    assert all(abs(found[pair] - value) < 1e-5 for pair, value in expected.items())


def test_blank_images_are_like_nothing_but_their_copies():
    blank = torch.full((3, 1, 40, 40), 200, dtype=torch.uint8)
    blank[2, 0, 0, 0] = 201
    assert [(pair.first, pair.second, pair.exact) for pair in pairs(looks_of(blank))] == [(0, 1, True)]


@pytest.mark.parametrize("inputs", [torch.rand(5, 3), torch.rand(5, 1, 8, 8)])
def test_of_vectors_and_tiny_images_only_exact_copies_are_found(inputs):
    inputs[4] = inputs[1]
    inputs[3] = inputs[2] * 0.999
    assert [(pair.first, pair.second) for pair in pairs(looks_of(inputs))] == [(1, 4)]


def test_where_classes_look_alike_near_duplicates_must_be_more_alike():
    digits = load_digits()
    images = torch.from_numpy(digits.images[:300]).float()[:, None] / 16
    looks = looks_of(torch.nn.functional.interpolate(images, (24, 24), mode="bicubic").clamp(0, 1))
    alone, beside = pairs(looks), pairs(looks, digits.target[:300])
    assert len(beside) < len(alone) / 2
    assert len(pairs(looks, likeness=0.999)) == 0


def test_a_likeness_that_means_nothing_is_refused():
    with pytest.raises(SettingsError, match=r"between 0\.5 and 1"):
        pairs(looks_of(torch.rand(2, 1, 20, 20)), likeness=95)


def test_images_alike_over_others_are_one_component():
    found = pairs(Looks(np.zeros((0, 32, 32), np.uint8), ["a", "b", "a", "c", "a"]))
    numbers = components(5, found)
    assert numbers[0] == numbers[2] == numbers[4]
    assert len(set(numbers.tolist())) == 3

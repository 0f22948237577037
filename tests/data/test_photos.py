"""Every kind of photo that people have, written by Pillow and read back."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from shels.data import images, own
from shels.errors import DataError, MissingExtraError

random = np.random.default_rng(0)


def photo(width=40, height=30):
    """Return a picture with large shapes, as photos have, so that encoders keep it."""
    y, x = np.mgrid[:height, :width]
    planes = [127 + 100 * np.sin(x / 9 + k) * np.cos(y / 7 - k) for k in range(3)]
    return Image.fromarray(np.stack(planes, axis=2).round().astype(np.uint8))


def read(path, **form):
    return own.read_images([path], **form)[0][0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_a_photo_is_turned_as_its_exif_data_say(tmp_path, orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo().save(tmp_path / f"a.{suffix}", exif=exif, quality=95)
    with Image.open(tmp_path / f"a.{suffix}") as stored:
        expected = np.asarray(ImageOps.exif_transpose(stored).convert("RGB"))
    assert np.array_equal(read(tmp_path / f"a.{suffix}").numpy().transpose(1, 2, 0), expected)


def test_a_photo_whose_exif_data_are_damaged_is_read_as_it_is_stored(tmp_path):
    for number, junk in enumerate([b"Exif\0\0MM\0*\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\1" * 40]):
        path = tmp_path / f"{number}.jpg"
        photo().save(path, exif=junk)
        assert read(path).shape == (3, 30, 40)


def test_an_orientation_behind_the_pixels_is_found_too(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = io.BytesIO()
    photo().save(content, "PNG", exif=exif)
    png = content.getvalue()
    start = png.index(b"eXIf") - 4
    length = int.from_bytes(png[start : start + 4], "big") + 12
    chunk, end = png[start : start + length], png.index(b"IEND") - 4
    (tmp_path / "a.png").write_bytes(png[:start] + png[start + length : end] + chunk + png[end:])
    assert read(tmp_path / "a.png").shape == (3, 40, 30)


@pytest.mark.parametrize(
    ("suffix", "mode"), [("png", "RGBA"), ("webp", "RGBA"), ("png", "LA"), ("tif", "RGBA")]
)
def test_what_is_transparent_lies_on_white(tmp_path, suffix, mode):
    image = Image.new(mode, (4, 1), 0)
    alphas = [0, 51, 204, 255]
    for x, alpha in enumerate(alphas):
        image.putpixel((x, 0), (100, alpha) if mode == "LA" else (100, 100, 100, alpha))
    image.save(tmp_path / f"a.{suffix}", lossless=True, exact=True)
    expected = [255 + (100 - 255) * alpha / 255 for alpha in alphas]  # worked by hand: 255, 224, 131, 100
    assert read(tmp_path / f"a.{suffix}")[0, 0].tolist() == pytest.approx(expected, abs=1)


def test_the_transparent_colour_of_a_palette_or_of_rgb_lies_on_white(tmp_path):
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "palette.png", transparency=0)
    palette.save(tmp_path / "palette.gif", transparency=0)
    colours = Image.new("RGB", (2, 1), (10, 20, 30))
    colours.putpixel((1, 0), (40, 50, 60))
    colours.save(tmp_path / "rgb.png", transparency=(10, 20, 30))
    for name in ("palette.png", "palette.gif", "rgb.png"):
        assert read(tmp_path / name)[:, 0].T.tolist() == [[255, 255, 255], [40, 50, 60]]


def test_a_palette_becomes_its_colours(tmp_path):
    palette = photo().quantize(16)
    for suffix in ("png", "gif", "bmp"):
        palette.save(tmp_path / f"a.{suffix}")
        assert torch.equal(read(tmp_path / f"a.{suffix}"), images.to_tensor(palette.convert("RGB")))


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_four_inks_become_the_three_colours_that_they_print(tmp_path, suffix):
    photo().convert("CMYK").save(tmp_path / f"a.{suffix}", quality=95)
    difference = read(tmp_path / f"a.{suffix}").float() - images.to_tensor(photo()).float()
    assert difference.abs().mean() < 4


def test_sixteen_bits_of_grey_become_the_eight_highest(tmp_path):
    values = np.array([[0, 257, 257 * 128, 65535]], np.uint16)
    for suffix in ("png", "tif"):
        Image.fromarray(values).save(tmp_path / f"a.{suffix}")
        assert read(tmp_path / f"a.{suffix}").tolist() == [[[0, 1, 128, 255]]]


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_the_first_frame_of_an_animation_is_read(tmp_path, suffix):
    frames = [Image.new("RGB", (6, 5), colour) for colour in ("red", "lime", "blue")]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], lossless=True)
    assert read(tmp_path / f"a.{suffix}")[:, 2, 2].tolist() == [255, 0, 0]


def test_a_name_does_not_decide_what_a_photo_is(tmp_path):
    photo().save(tmp_path / "a.jpeg", "WEBP")
    photo().save(tmp_path / "b.JFIF", "JPEG")
    assert len(own.read_images([tmp_path])[0]) == 2


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100)


def test_heic_without_its_package_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for name in ("a.heic", "b.jpg"):  # phones give such names too
        (tmp_path / name).write_bytes(HEIC)
        with pytest.raises(MissingExtraError, match=rf"{name} is a HEIC photo.* pip install 'shels\[heic\]'"):
            own.read_images([tmp_path / name])


def test_heic_is_read_upright_where_its_package_is_there(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x0112] = 6
    heif = pillow_heif.from_pillow(photo(80, 60))
    heif.save(tmp_path / "a.heic", quality=95, exif=exif.tobytes())
    pixels = read(tmp_path / "a.heic", size=32).float()
    turned = photo(80, 60).transpose(Image.Transpose.ROTATE_270).resize((32, 32), Image.Resampling.BILINEAR)
    assert (pixels - images.to_tensor(turned).float()).abs().mean() < 4
    (tmp_path / "b.heic").write_bytes(HEIC)
    with pytest.raises(DataError, match=r"b\.heic is not an image that can be used"):
        read(tmp_path / "b.heic")


@pytest.mark.parametrize("side", [32, 64, 100])
def test_a_large_jpeg_decoded_at_a_fraction_looks_the_same(tmp_path, side):
    sharp = random.integers(0, 256, (40, 40, 3), np.uint8)  # blocks with hard edges, and noise on them
    large = np.kron(sharp, np.ones((40, 40, 1))) + random.normal(0, 10, (1600, 1600, 3))
    Image.fromarray(large.clip(0, 255).astype(np.uint8)).save(tmp_path / "a.jpg", quality=92)
    with Image.open(tmp_path / "a.jpg") as whole:
        expected = np.asarray(whole.resize((side, side), Image.Resampling.BILINEAR), dtype=float)
    difference = np.abs(read(tmp_path / "a.jpg", size=side).numpy().transpose(1, 2, 0) - expected)
    assert difference.mean() < 1
    assert difference.max() <= 6


def test_a_large_jpeg_is_never_decoded_whole(tmp_path, monkeypatch):
    Image.new("RGB", (1600, 1200)).save(tmp_path / "a.jpg")
    decoded = []
    upright = images.upright
    monkeypatch.setattr(images, "upright", lambda image: decoded.append(image.size) or upright(image))
    read(tmp_path / "a.jpg", size=32)
    assert decoded == [(200, 150)]


def test_a_file_that_is_empty_or_nothing_that_pillow_knows_is_called_that(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "b.png").write_bytes(b"some text that is no image")
    with pytest.raises(DataError, match=r"a\.png is not an image that can be used \(it is empty\)"):
        read(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"b\.png .* \(it is of no kind that Pillow knows\)"):
        read(tmp_path / "b.png")

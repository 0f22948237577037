"""Files that are not what their name says: whatever a decoder makes of them, a DataError comes out."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from shels.data import decoding, images, official, own, sources, streams
from shels.errors import DataError, MissingDataError, SettingsError

PIXELS = np.arange(20 * 36, dtype=np.uint8).reshape(20, 6, 6)


# Images ---------------------------------------------------------------------------------------------------


def picture(kind, mode="RGB"):
    content = io.BytesIO()
    Image.new(mode, (7, 5)).save(content, kind)
    return content.getvalue()


@pytest.mark.parametrize("kind", ["DDS", "ICO", "TGA", "PCX", "SGI", "JPEG2000", "XBM", "MSP"])
@pytest.mark.parametrize("bits", [[], [40], [90, 700], [11, 12, 13, 14]])
def test_an_image_of_a_rare_kind_under_another_name_is_read_or_refused(tmp_path, kind, bits):
    content = bytearray(picture(kind, {"XBM": "1", "MSP": "1"}.get(kind, "RGB")))
    for bit in bits:
        content[bit // 8 % len(content)] ^= 1 << bit % 8
    (tmp_path / "a.png").write_bytes(content)
    try:
        inputs, _ = own.read_images([tmp_path / "a.png"])
    except DataError:
        return
    assert len(inputs) == 1


def test_a_compression_that_no_decoder_here_knows_is_a_data_error(tmp_path):
    header = bytearray(picture("DDS"))
    header[76:88] = struct.pack("<II4s", 32, 4, b"ZZZZ")  # the pixel format: a code that nobody has given out
    (tmp_path / "a.jpg").write_bytes(header)
    with pytest.raises(DataError, match=r"a\.jpg is not an image that can be used \(.*\); repair or"):
        own.read_images([tmp_path / "a.jpg"])


def test_a_program_for_printers_is_never_run(tmp_path):
    (tmp_path / "a.png").write_bytes(picture("EPS"))
    with pytest.raises(DataError, match=r"a\.png is a program for printers; save it as PNG"):
        own.read_images([tmp_path / "a.png"])


def huge_png(width, height):
    """Return a PNG file that promises many pixels and has none."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + head
        + struct.pack(">II4s", zlib.crc32(head), 4, b"IDAT")
    )


@pytest.mark.parametrize(("width", "height"), [(9000, 9000), (13_000, 13_000), (2**31 - 1, 1)])
def test_more_pixels_than_allowed_are_refused_before_they_are_decoded(tmp_path, width, height):
    (tmp_path / "a.png").write_bytes(huge_png(width, height))
    message = r"a\.png has .*more than 50000000 pixels; make it smaller, or allow more by --max-pixels"
    with pytest.raises(DataError, match=message):
        own.read_images([tmp_path / "a.png"])


def test_the_limit_of_pixels_is_a_setting(tmp_path, monkeypatch):
    Image.new("L", (10, 10)).save(tmp_path / "a.png")
    monkeypatch.setenv("SHELS_MAX_PIXELS", "99")
    with pytest.raises(DataError, match="10 x 10, more than 99 pixels"):
        own.read_images([tmp_path / "a.png"])
    with images.pixel_limit(100):
        assert own.read_images([tmp_path / "a.png"])[0].shape == (1, 1, 10, 10)
    assert images.max_pixels() == 99
    for wrong in ("many", "0", "-5", "1e9"):
        monkeypatch.setenv("SHELS_MAX_PIXELS", wrong)
        with pytest.raises(SettingsError, match="SHELS_MAX_PIXELS must be a whole number of pixels"):
            own.read_images([tmp_path / "a.png"])
    with pytest.raises(SettingsError, match="most must be"), images.pixel_limit(0):
        pass


def test_who_allows_more_pixels_than_pillow_does_gets_them(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    Image.new("L", (10, 10)).save(tmp_path / "a.png")
    with images.pixel_limit(100):
        assert own.read_images([tmp_path / "a.png"])[0].shape == (1, 1, 10, 10)


# .npz files -----------------------------------------------------------------------------------------------


def npz(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def npy(shape, kind="'<f4'", content=b"\0" * 64):
    head = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + content


def patched(path, flag=None, method=None):
    """Set a flag or the compression method of every member, in both places where a zip file has them."""
    content = bytearray(path.read_bytes())
    for mark, flags, methods in ((b"PK\3\4", 6, 8), (b"PK\1\2", 8, 10)):
        place = content.find(mark)
        while place >= 0:
            if flag is not None:
                content[place + flags] = flag
            if method is not None:
                content[place + methods] = method
            place = content.find(mark, place + 1)
    path.write_bytes(content)


READERS = {
    "as a data set": own.read_npz,
    "as inputs": own.read_npz_inputs,
    "as a stream": lambda path: list(streams.read_stream(path)),
    "as anything": lambda path: sources.load(path, size=8),
    "as a named set": lambda path: official.read_named_npz(path, "mnist", 10),
}


@pytest.fixture(params=READERS.values(), ids=READERS)
def read(request):
    return request.param


@pytest.mark.parametrize(
    "change", [{"flag": 1}, {"flag": 0x20}, {"flag": 0x40}, {"method": 99}, {"method": 9}]
)
def test_members_that_are_encrypted_or_packed_in_an_unknown_way_are_refused(tmp_path, read, change):
    np.savez_compressed(tmp_path / "a.npz", x=PIXELS, y=np.arange(20) % 4)
    patched(tmp_path / "a.npz", **change)
    with pytest.raises(DataError, match=r"a\.npz is not a whole \.npz file \(.*\); write it again"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "content",
    [
        b"bytes that are no array",
        b"",
        npy("(1000000000000,)"),
        npy("(-1, 3)"),
        npy("(4611686018427387904, 8)"),
        npy("(2, 2)", "'|O'"),
        npy("(2, 2)", "'zz'"),
        npy("(" * 500),
        npy("(4, 40)"),
    ],
    ids=["text", "empty", "vast", "negative", "overflow", "objects", "kind", "brackets", "cut off"],
)
def test_a_member_that_is_no_array_is_refused(tmp_path, read, content):
    npz(tmp_path / "a.npz", x=content, y=npy("(4,)"))
    with pytest.raises(DataError, match=r"a\.npz"):
        read(tmp_path / "a.npz")


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    path = tmp_path_factory.mktemp("bomb") / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in "xy":
            with archive.open(f"{name}.npy", "w") as member:
                member.write(npy("(4, 75000000)", "'|u1'", b""))
                for _ in range(30):
                    member.write(bytes(10_000_000))
    return path


def test_an_archive_bomb_is_refused_before_it_is_unpacked(bomb, read):
    with pytest.raises(DataError, match=r"'[xy]' would unpack to 300000\d+ bytes of next to nothing"):
        read(bomb)


# Things that are no files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device", "nothing", "long name", "null"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path, read, kind):
    path = tmp_path / {"long name": "a" * 5000, "null": "a\0b"}.get(kind, "a.npz")
    make = {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to(path),
        "device": lambda: path.symlink_to("/dev/zero"),
    }
    make.get(kind, lambda: None)()
    for reader in (read, lambda path: own.read_images([path])):
        with pytest.raises(DataError):
            reader(path)


def test_an_image_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png is a named pipe, not a file"):
        own.read_images([tmp_path / "a.png"])
    with pytest.raises(MissingDataError, match=r"b\.png is not there"):
        own.read_images([tmp_path / "b.png"])


@pytest.mark.parametrize("read", [sources.load, own.read_npz])
def test_a_data_set_that_is_a_pipe_is_called_by_what_it_is(tmp_path, read):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"a\.npz is a named pipe, not a file"):
        read(tmp_path / "a.npz")


# Official files -------------------------------------------------------------------------------------------


def test_an_official_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MOST_BYTES", 1000)
    (tmp_path / "mnist").mkdir()
    for name in official.IDX_FILES:
        (tmp_path / "mnist" / name).write_bytes(gzip.compress(bytes(5000)))
    with pytest.raises(DataError, match="it unpacks to more than 1000 bytes"):
        sources.load_named("mnist", tmp_path)


@pytest.mark.parametrize("name", official.IDX_FILES[:2])
def test_an_official_file_that_is_a_pipe_is_not_waited_for(tmp_path, name):
    (tmp_path / "mnist").mkdir()
    one_pixel = gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 1, 1, 1) + b"\0")
    for each in official.IDX_FILES:
        (tmp_path / "mnist" / each).write_bytes(one_pixel)
    (tmp_path / "mnist" / name).unlink()
    os.mkfifo(tmp_path / "mnist" / name)
    with pytest.raises(DataError, match=f"{name} is a named pipe"):
        sources.load_named("mnist", tmp_path)


@pytest.mark.parametrize(
    "line", ["a.ppm;" + "9" * 5000, "a\0b.ppm;1", "/dev/zero;1", "../../../../etc/passwd;1", "a.ppm;²"]
)
def test_a_table_of_traffic_signs_cannot_lead_astray(tmp_path, line):
    place = tmp_path / "GTSRB/Final_Training/Images/00000"
    place.mkdir(parents=True)
    (tmp_path / "GTSRB/Final_Test/Images").mkdir(parents=True)
    (place / "GT-00000.csv").write_text(f"Filename;ClassId\n{line}\n")
    (tmp_path / "GT-final_test.csv").write_text("Filename;ClassId\n")
    with pytest.raises(DataError):
        sources.load_named("gtsrb", tmp_path)

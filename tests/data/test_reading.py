"""Many files at once: in order, in bounded memory, and what cannot be read is named."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from PIL import Image

from shels.data import decoding, images, manner, own, reading
from shels.data.finding import Found, ImageFile
from shels.errors import DataError, MissingDataError, SettingsError

COUNT = 60
BAD = (3, 31, 59)


@pytest.fixture
def photos(tmp_path):
    """Sixty grey images of two classes, each with its number as its value; three of them broken."""
    for number in range(COUNT):
        path = tmp_path / ("cat" if number % 2 else "dog") / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (9, 9), number).save(path)
        if number in BAD:
            path.write_bytes(path.read_bytes()[:30])
    return tmp_path


@pytest.fixture(params=[1, 2, 8])
def cpus(request, monkeypatch):
    monkeypatch.setattr(reading, "_cpus", lambda: request.param)
    return request.param


def test_a_broken_file_among_many_is_named_and_left_out(photos, cpus):
    with manner.file_reading() as report:
        data = own.read_image_files(photos)
    good = [number for number in range(COUNT) if number not in BAD]
    assert sorted(data.train.inputs[:, 0, 0, 0].tolist()) == good
    labels = [data.train.classes[place] for place in data.train.labels.tolist()]
    for label, value in zip(labels, data.train.inputs[:, 0, 0, 0].tolist(), strict=True):
        assert label == ("cat" if value % 2 else "dog")
    assert sorted(each.name for each in report.left_out) == [
        str(photos / "cat" / f"{n:02d}.png") for n in BAD
    ]
    assert report.by_class() == {"cat": {"read": 27, "left_out": 3}, "dog": {"read": 30, "left_out": 0}}
    assert report.plain()["read"] == 57
    assert report.plain()["left_out"][0]["class"] == "cat"
    assert "not an image that can be used" in report.plain()["left_out"][0]["reason"]


def test_strict_reading_stops_at_the_first_that_cannot_be_read(photos, cpus):
    with pytest.raises(DataError, match=r"cat.03\.png"), manner.file_reading(strict=True):
        own.read_image_files(photos)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reading")]


def test_without_a_report_a_warning_names_what_was_left_out(photos):
    with pytest.warns(UserWarning, match=r"3 of 60 files were left out: .*03\.png is not an image .*31\.png"):
        own.read_image_files(photos)


def test_a_file_that_was_left_out_before_reading_stops_a_strict_one(tmp_path):
    Image.new("L", (9, 9)).save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "none.png")
    with pytest.raises(DataError, match=r"b\.png is a link to"), manner.file_reading(strict=True):
        own.read_images([tmp_path])


def test_a_class_of_which_nothing_can_be_read_is_an_error(photos):
    for path in (photos / "cat").iterdir():
        path.write_bytes(b"")
    message = r"no file of the class 'cat' can be read; the first, .*01\.png, is not an image"
    with pytest.raises(DataError, match=message):
        own.read_image_files(photos)


def test_the_order_is_that_of_the_files_however_long_each_takes(monkeypatch, cpus):
    files = [ImageFile(str(number), None) for number in range(40)]

    def slow_at_first(file):
        threading.Event().wait(0.01 if int(file.name) % 5 == 0 else 0)
        return int(file.name)

    assert [result for _, result in reading.outcomes(files, slow_at_first)] == list(range(40))


def test_only_few_images_are_decoded_ahead(monkeypatch):
    monkeypatch.setattr(reading, "_cpus", lambda: 2)
    done = []
    results = reading.outcomes([ImageFile(str(n), None) for n in range(500)], done.append)
    for _ in range(5):
        next(results)
    threading.Event().wait(0.1)
    assert len(done) <= 5 + 4 * 2
    results.close()


def test_progress_counts_every_file(photos, cpus):
    seen = []
    with manner.file_reading(each=seen.append):
        own.read_image_files(photos)
    assert seen == [(done, COUNT) for done in range(1, COUNT + 1)]


def test_groups_hold_some_images_each_and_the_last_what_was_left_out(photos):
    found = own.image_files([photos])
    with manner.file_reading() as report:
        groups = list(reading.read_groups(found, 4, "grey", at_once=25))
    assert [len(group.files) for group in groups] == [25, 25, 7, 0]
    assert groups[0].inputs.shape == (25, 1, 4, 4)
    assert [len(group.left_out) for group in groups] == [0, 0, 0, 3]
    assert report.read.total() == 57


def test_groups_without_a_size_leave_each_image_its_own(tmp_path):
    sizes = [(9, 9), (20, 10), (300, 200)]
    for number, size in enumerate(sizes):
        Image.new("L", size).save(tmp_path / f"{number}.png")
    groups = list(reading.read_groups(own.image_files([tmp_path]), None, "rgb"))
    assert [tuple(group.inputs.shape) for group in groups[:-1]] == [
        (1, 3, 9, 9),
        (1, 3, 10, 20),
        (1, 3, 64, 64),
    ]


def test_the_limit_of_pixels_holds_in_every_thread(tmp_path, cpus):
    for number in range(20):
        Image.new("L", (20, 20)).save(tmp_path / f"{number}.png")
    with images.pixel_limit(300), pytest.raises(DataError, match="20 x 20, more than 300 pixels"):
        own.read_images([tmp_path])


def test_a_wrong_setting_is_no_fault_of_a_file(tmp_path, monkeypatch, cpus):
    for number in range(5):
        Image.new("L", (20, 20)).save(tmp_path / f"{number}.png")
    monkeypatch.setenv("SHELS_MAX_PIXELS", "many")
    with pytest.raises(SettingsError, match="SHELS_MAX_PIXELS"):
        own.read_images([tmp_path])


def test_memory_that_runs_out_is_no_fault_of_a_file(tmp_path, monkeypatch, cpus):
    for number in range(5):
        Image.new("L", (20, 20)).save(tmp_path / f"{number}.png")

    def none_left(*_):
        raise MemoryError

    monkeypatch.setattr(images, "to_kind", none_left)
    with pytest.raises(MemoryError):
        own.read_images([tmp_path])


def test_warnings_are_as_before_once_many_threads_have_decoded():
    before = list(warnings.filters)
    gates = [threading.Event() for _ in range(2)]

    def stay(mine, other):
        with decoding.decoding("a", "is bad"):
            mine.set()
            other.wait(5)

    threads = [threading.Thread(target=stay, args=(gates[k], gates[1 - k])) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


def test_the_typical_side_is_the_median_of_the_shorter_ones(tmp_path):
    sides = [10, 30, 20, 90, 70]
    for number, side in enumerate(sides):
        Image.new("RGB", (side, 100)).save(tmp_path / f"{number}.jpg")
    paths = sorted(tmp_path.iterdir())
    assert reading.typical_side(paths) == int(np.median(sides)) == 30
    (tmp_path / "0.jpg").write_bytes(b"")
    assert reading.typical_side([*map(str, paths), "none.png"]) == 50
    with pytest.raises(DataError, match="empty"):
        reading.typical_side(paths[:1])
    with pytest.raises(DataError, match="no image was given"):
        reading.typical_side([])


def test_the_typical_side_needs_some_hundred_headers_and_no_pixels(tmp_path, monkeypatch):
    Image.new("RGB", (640, 480)).save(tmp_path / "a.jpg")
    opened = []
    read_header = images.read_header
    monkeypatch.setattr(images, "read_header", lambda *given: opened.append(1) or read_header(*given))
    monkeypatch.setattr(images, "decode", lambda *_: pytest.fail("pixels were decoded"))
    assert reading.typical_side([tmp_path / "a.jpg"] * 5000) == 480
    assert 100 <= len(opened) <= 300


def test_nothing_to_read_is_an_error():
    with pytest.raises(DataError, match="no image was given"):
        reading.read_files(Found())
    with pytest.raises(MissingDataError, match=r"none\.png is not there"):
        own.read_images(["none.png"])

"""Data of one's own divided into files: nothing leaks, nothing is lost, nothing is copied unasked."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image

from shels.data.own import read_image_files, read_npz
from shels.data.part_files import check_target, write_arrays, write_copies, write_lists
from shels.data.splitting import Shares, labelled_files, split_arrays, split_files
from shels.errors import DataError, MissingDataError, SettingsError


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Ten bursts of two noisy photos in each of two classes; and a copy of a cat among the dogs."""
    folder = tmp_path_factory.mktemp("photos")
    draws = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for burst in range(10):
            for shot in "ab":
                pixels = draws.integers(0, 256, (24, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / name / f"{name}{burst}_{shot}.png")
    (folder / "dog" / "mistake.png").write_bytes((folder / "cat" / "cat3_a.png").read_bytes())
    return folder


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_lists_hold_every_file_once_with_its_label_and_paths_that_lead_to_it(photos, tmp_path):
    items = labelled_files(photos)
    written = write_lists(split_files(items, Shares(0.2, 0.1)), items, tmp_path / "parts")
    assert list(written) == ["train", "validation", "test"]
    found = [(path.parent / row["path"], row["label"]) for path in written.values() for row in rows(path)]
    assert sorted(place.resolve() for place, _ in found) == sorted(item.path for item in items)
    assert all(place.parent.name == label for place, label in found)
    assert [len(rows(path)) for path in written.values()] == [29, 4, 8]


def test_a_list_can_be_divided_again(photos, tmp_path):
    items = labelled_files(photos)
    first = write_lists(split_files(items, Shares(0.2)), items, tmp_path)
    again = labelled_files(first["train"])
    assert len(again) == len(rows(first["train"]))
    assert all(item.path.is_file() for item in again)


def test_bursts_stay_together_by_a_pattern_in_their_names(photos):
    found = split_files(labelled_files(photos), Shares(0.3), group=r"(cat\d|dog\d)_")
    bursts = [{found.names[place][:8] for place in places} for places in found.parts.values()]
    assert not bursts[0] & bursts[1]
    assert found.groups == 20


def test_files_of_a_folder_below_their_class_stay_together(tmp_path):
    for number in range(12):
        folder = tmp_path / "cat" / f"day{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(folder / f"{number}.png")
    found = split_files(labelled_files(tmp_path), Shares(0.25), by="folder", near=False)
    days = [{found.names[place].split("/")[1] for place in places} for places in found.parts.values()]
    assert [len(each) for each in days] == [3, 1]
    assert not days[0] & days[1]


def test_near_duplicates_are_on_one_side_also_under_two_labels_and_the_labels_are_reported(photos):
    items = labelled_files(photos)
    for seed in range(10):
        found = split_files(items, Shares(0.5), seed=seed)
        part_of = {found.names[place]: part for part, places in found.parts.items() for place in places}
        assert part_of["cat/cat3_a.png"] == part_of["dog/mistake.png"]
    assert [(found.names[pair.first], found.names[pair.second]) for pair in found.conflicts()] == [
        ("cat/cat3_a.png", "dog/mistake.png")
    ]


def test_a_file_that_cannot_be_read_is_named_and_left_out(photos, tmp_path):
    items = labelled_files(photos)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nothing")
    found = split_files([*items, items[0]._replace(path=broken, name="cat/broken.png")], Shares(0.2))
    assert list(found.left_out) == ["cat/broken.png"]
    assert len(found.names) == len(items)


def test_a_link_to_nothing_is_named_and_left_out(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("L", (4, 4), number).save(tmp_path / name / f"{number}.png")
    (tmp_path / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    found = split_files(labelled_files(tmp_path), Shares(0.25), near=False)
    assert list(found.left_out) == ["cat/gone.png"]
    assert len(found.names) == 8


def test_copies_are_a_folder_that_is_read_as_parts(photos, tmp_path):
    items = labelled_files(photos)
    write_copies(split_files(items, Shares(0.2)), items, tmp_path / "parts")
    data = read_image_files(tmp_path / "parts")
    assert (len(data.train), len(data.test)) == (33, 8)
    assert data.train.classes == ("cat", "dog")


def test_copies_of_files_with_one_name_do_not_overwrite_each_other(tmp_path):
    for number in range(6):
        (tmp_path / "in" / "cat" / str(number)).mkdir(parents=True)
        Image.new("L", (4, 4), 40 * number).save(tmp_path / "in" / "cat" / str(number) / "photo.png")
    items = labelled_files(tmp_path / "in")
    write_copies(split_files(items, Shares(0.34), near=False), items, tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.png"))) == 6


def test_arrays_are_divided_into_files_with_all_of_them(tmp_path):
    x, y = np.random.default_rng(0).random((50, 5)).astype(np.float32), np.arange(50) % 2
    np.savez(tmp_path / "all.npz", x=x, y=y)
    found, inputs = split_arrays(tmp_path / "all.npz", Shares(0.2))
    written = write_arrays(found, inputs, tmp_path / "parts")
    parts = [read_npz(path).train for path in written.values()]
    assert [len(part) for part in parts] == [40, 10]
    assert sorted(tuple(row) for part in parts for row in part.inputs.tolist()) == sorted(
        map(tuple, x.tolist())
    )


def test_what_is_divided_already_is_not_divided_again(tmp_path):
    np.savez(
        tmp_path / "all.npz", x_train=np.eye(4), y_train=[0, 1, 0, 1], x_test=np.eye(4), y_test=[0, 1, 0, 1]
    )
    with pytest.raises(DataError, match="divided already"):
        split_arrays(tmp_path / "all.npz", Shares(0.2))
    for name in ("train", "test"):
        (tmp_path / "parts" / name / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"divided already; to divide one part again, give .*train"):
        labelled_files(tmp_path / "parts")


def test_lists_that_are_there_are_replaced_only_on_demand_and_folders_never(tmp_path):
    (tmp_path / "train.csv").write_text("path,label\n")
    with pytest.raises(SettingsError, match="--force"):
        check_target(tmp_path, force=False)
    check_target(tmp_path, force=True)
    (tmp_path / "train").mkdir()
    with pytest.raises(SettingsError, match="never replaced"):
        check_target(tmp_path, force=True)


@pytest.mark.parametrize("shares", [(0.0, 0.0), (0.5, 0.5), (-0.1, 0.0), (1.0, 0.0)])
def test_shares_that_leave_nothing_are_refused(shares):
    with pytest.raises(SettingsError):
        Shares(*shares)


def test_bad_patterns_tables_and_places_are_refused_with_what_to_do(photos, tmp_path):
    items = labelled_files(photos)
    with pytest.raises(SettingsError, match="no regular expression"):
        split_files(items, Shares(0.2), group="(", near=False)
    with pytest.raises(SettingsError, match=r"is in no name; .* such as 'cat/cat0_a\.png'"):
        split_files(items, Shares(0.2), group="horse", near=False)
    with pytest.raises(MissingDataError, match="give a folder"):
        labelled_files(tmp_path / "none")
    (tmp_path / "list.csv").write_text("name,kind\na.png,cat\n")
    with pytest.raises(DataError, match="such as path,label"):
        labelled_files(tmp_path / "list.csv")

"""Millions of images as one list: its order, what it is made of, its parts, what is sent away of it."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from shels.data import reading
from shels.data.finding import LeftOut
from shels.data.listing import Listing, entries_of, listing
from shels.errors import DataError, MissingDataError

COUNT = 23
KINDS = ("folder", "address", "zip", "csv", "tsv", "txt", "bytes", "nested", "paths", "parts", "npz")


def png(value):
    content = io.BytesIO()
    Image.new("L", (4, 3), value).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Images of shades 0, 1, 2 … in name order, at several depths."""
    place = tmp_path / "images"
    for value in range(COUNT):
        path = place / ("", "b", "b/c", "d")[value * 4 // COUNT] / f"{value:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(value))
    (place / "notes.md").write_text("no image")
    return place


def given_as(kind, folder, tmp_path):
    files = sorted(folder.rglob("*.png"))
    contents, names = (
        [file.read_bytes() for file in files],
        [str(file.relative_to(tmp_path)) for file in files],
    )
    out = tmp_path / f"list.{kind}"
    if kind == "address":
        return f"file://{folder}"
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(folder))
    elif kind in ("csv", "tsv", "txt"):
        between = "\t" if kind == "tsv" else ","
        head = "" if kind == "txt" else f"id{between}path\n"
        rows = names if kind == "txt" else [f"{n}{between}{name}" for n, name in enumerate(names)]
        out.write_text(head + "\n".join(rows) + "\n")
    elif kind == "npz":
        np.savez(out, x=np.stack([np.full((3, 4), value, np.uint8) for value in range(COUNT)]))
    elif kind != "folder":
        columns = {
            "bytes": {"label": names, "data": contents},
            "nested": {"image": [{"bytes": each, "path": None} for each in contents]},
            "paths": {"n": list(range(COUNT)), "file": names},
            "parts": {"image": contents},
        }[kind]
        table, out = pa.table(columns), tmp_path / "list.parquet"
        if kind != "parts":
            parquet.write_table(table, out, row_group_size=5)
        else:
            out.mkdir()
            for part in range(3):
                parquet.write_table(table.slice(part * 8, 8), out / f"part-{part}.parquet")
    return str(folder if kind == "folder" else out)


def shades(entries):
    read = reading.decoded(entries, None, "grey")
    assert not read.reasons
    found = {
        place: int(image[0, 0, 0])
        for places, stack in read.stacks
        for place, image in zip(places, stack, strict=True)
    }
    return [found[place] for place in range(len(read.names))]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_lists_the_same_images_in_the_same_order(kind, folder, tmp_path):
    given = given_as(kind, folder, tmp_path)
    found = listing([given], at_once=10)
    assert [part.rows for part in found.parts] == [10, 10, 3]
    assert shades(found.entries([range(COUNT)])) == list(range(COUNT))
    assert shades(found.entries([range(3, 9), range(12, COUNT)])) == [*range(3, 9), *range(12, COUNT)]
    assert shades(entries_of(given)) == list(range(COUNT))
    wanted = [range(2, 7), range(7, 8), range(20, COUNT)]
    sent = pickle.loads(pickle.dumps(list(found.pieces(wanted))))
    assert [shades(entry for piece in each for entry in piece.entries()) for each in sent] == list(
        map(list, wanted)
    )
    assert found.parts == listing([given], at_once=10).parts


def test_inputs_follow_each_other_and_a_part_may_reach_over_several(folder, tmp_path):
    inputs = [given_as("bytes", folder, tmp_path), str(folder / "000.png"), str(folder)]
    found = listing(inputs, at_once=20)
    assert [part.rows for part in found.parts] == [20, 20, 7]
    assert shades(found.entries([found.rows_of(1)])) == [20, 21, 22, 0, *range(16)]
    (pieces,) = found.pieces([found.rows_of(1)])
    assert [len(list(piece.entries())) for piece in pieces] == [3, 1, 16]
    assert found.others == {".md": 1}


def test_the_order_of_a_folder_is_that_of_its_sorted_paths(tmp_path):
    for name in (
        "b/x.png",
        "a.d/y.png",
        "a/z/w.png",
        "a/b.png",
        "a!/c.png",
        "B.png",
        "ä.png",
        "10.png",
        "9.png",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(1))
    assert [Path(entry.name) for entry in entries_of(str(tmp_path))] == sorted(tmp_path.rglob("*.png"))


@pytest.mark.parametrize("change", ["content", "time", "name"])
def test_the_digest_of_a_part_changes_with_what_is_in_it_and_no_other(folder, change):
    before = listing([str(folder)], at_once=10).parts
    path = folder / "b/c/013.png"
    if change == "content":
        path.write_bytes(path.read_bytes() + b"more")
    elif change == "time":
        os.utime(path, ns=(1, 1))
    else:
        path.rename(folder / "b/c/013b.png")
    after = listing([str(folder)], at_once=10).parts
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]


@pytest.mark.parametrize("kind", ["bytes", "npz", "zip"])
def test_the_digest_of_a_file_of_many_images_changes_with_it(kind, folder, tmp_path):
    given = given_as(kind, folder, tmp_path)
    before = listing([given], at_once=10).parts
    (folder / "b/c/013.png").write_bytes(png(200))
    os.utime(given_as(kind, folder, tmp_path), ns=(1, 1))
    assert listing([given], at_once=10).parts != before


@pytest.mark.parametrize("how", ["added", "removed"])
def test_a_folder_that_changes_while_it_is_read_is_an_error(folder, how):
    found = listing([str(folder)], at_once=10)
    if how == "added":
        (folder / "zz.png").write_bytes(png(9))
    else:
        (folder / "d/022.png").unlink()
    with pytest.raises(DataError, match="changed while its images were judged"):
        list(found.entries([range(10, COUNT)]))


def test_what_is_no_image_stands_in_the_list_with_its_reason(folder, tmp_path):
    (folder / "a.png").symlink_to(tmp_path / "gone.png")
    (folder / "e.png").write_bytes(b"")
    rows = pa.table({"image": [png(1), None]})
    parquet.write_table(rows, tmp_path / "holes.parquet")
    found = listing([str(folder), str(tmp_path / "holes.parquet")], at_once=100)
    read = reading.decoded(found.entries([range(len(found))]), 4, "grey")
    reasons = {Path(read.names[place]).name: why for place, why in read.reasons.items()}
    assert reasons["a.png"].startswith("is a link to")
    assert reasons["e.png"].endswith("(it is empty); repair or remove it")
    assert reasons["holes.parquet#1"] == "has neither an image nor a path"
    assert len(reasons) == 3
    assert [type(entry) for entry in entries_of(str(folder)) if entry.name.endswith("a.png")] == [LeftOut]


def test_inputs_that_hold_nothing_are_refused(tmp_path):
    parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "x.parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"no image in .*empty; looked for"):
        listing([str(tmp_path / "empty")], 10)
    with pytest.raises(DataError, match=r"x\.parquet has no column of contents .* only \['x'\]"):
        list(entries_of(str(tmp_path / "x.parquet")))
    with pytest.raises(DataError, match=r"broken\.parquet cannot be read as Parquet"):
        listing([str(tmp_path / "broken.parquet")], 10)
    with pytest.raises(DataError, match=r"there is no file or folder .*none"):
        listing([str(tmp_path / "none")], 10)
    with pytest.raises(MissingDataError, match=r"there is nothing at file://.*none"):
        listing([f"file://{tmp_path}/none"], 10)
    with pytest.raises(DataError, match="name at least one"):
        listing([], 10)


def test_rows_of_arrays_keep_their_size_and_kind(tmp_path):
    np.savez(tmp_path / "v.npz", x=np.eye(5, 7, dtype=np.float32))
    read = reading.decoded(entries_of(str(tmp_path / "v.npz")), None, None)
    ((places, stack),) = read.stacks
    assert places == [0, 1, 2, 3, 4]
    assert torch.equal(stack, torch.eye(5, 7))
    assert isinstance(listing([str(tmp_path / "v.npz")], 3), Listing)

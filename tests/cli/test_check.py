"""`shels split`, `shels train --validation` and `shels check` as a user meets them."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.cli.commands import done, fails, shels

QUICK = ["--steps", 60, "--device", "cpu"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Thirty images each of three digits, 16 pixels wide; a copy of a 0 among the 1s."""
    folder = tmp_path_factory.mktemp("photos")
    digits = load_digits()
    for name in (0, 1, 2):
        (folder / str(name)).mkdir()
        for row in np.flatnonzero(digits.target == name)[:30]:
            image = Image.fromarray((digits.images[row] * 15.9).astype(np.uint8)).resize((16, 16))
            image.save(folder / str(name) / f"{row:04}.png")
    (folder / "1" / "copy.png").write_bytes((folder / "0" / "0010.png").read_bytes())
    return folder


@pytest.fixture(scope="module")
def parts(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "copied"
    return done("split", photos, "--out", out, "--validation", 0.2, "--copy", "--likeness", 0.999), out


def test_split_says_what_went_where_and_what_shows_the_same(photos, tmp_path):
    result = done("split", photos, "--out", tmp_path, "--likeness", 0.999)
    assert result["parts"]["test"]["samples"] == 18
    assert result["classes"]["2"] == {"train": 24, "test": 6}
    assert [each["files"] for each in result["conflicts"]] == [["0/0010.png", "1/copy.png"]]
    with (tmp_path / "test.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    assert all((tmp_path / row["path"]).is_file() for row in rows)
    text = shels("split", photos, "--out", tmp_path / "again", "--likeness", 0.999).stdout
    assert "1 pair with two labels" in text
    assert "shels evaluate" in text


def test_a_training_on_what_split_wrote_is_to_be_evaluated_on_the_test_part(photos, tmp_path):
    done("split", photos, "--out", tmp_path, "--any-duplicates")
    line = ("train", tmp_path / "train.csv", "--steps", 5, "--device", "cpu", "--out", tmp_path / "m")
    assert f"shels evaluate {tmp_path / 'm'} {tmp_path / 'test.csv'}" in " ".join(shels(*line).stdout.split())
    (tmp_path / "test.csv").unlink()
    again = " ".join(shels(*line, "--force").stdout.split())
    assert f"shels evaluate {tmp_path / 'm'} {tmp_path / 'train.csv'}" in again


def test_split_never_replaces_lists_unasked_and_refuses_bad_usage(photos, tmp_path):
    done("split", photos, "--out", tmp_path, "--any-duplicates")
    assert "--force" in fails(2, "split", photos, "--out", tmp_path)
    done("split", photos, "--out", tmp_path, "--any-duplicates", "--force")
    (tmp_path / "validation.csv").write_text("path,label\n")  # its samples would be in the other parts, too
    assert "validation.csv is of another division" in fails(2, "split", photos, "--out", tmp_path, "--force")
    assert "leave nothing to train on" in fails(
        2, "split", photos, "--out", tmp_path / "b", "--test", 0.6, "--validation", 0.4
    )
    assert "contradict" in fails(
        2, "split", photos, "--out", tmp_path / "b", "--by", "folder", "--group", "a"
    )


def test_a_folder_of_validation_samples_beside_those_to_train_on_is_used_if_asked(parts, tmp_path):
    counts, folder = parts[0]["parts"], parts[1]
    trained = done("train", folder, "--validation", "val", *QUICK, "--out", tmp_path / "m")
    assert trained["training_samples"] == counts["train"]["samples"]
    assert trained["held_out_samples"] == counts["validation"]["samples"]
    found = done("check", tmp_path / "m", folder, "--validation", "val", "--folds", 2, "--device", "cpu")
    assert found["unseen_samples_are_certain"]
    assert found["unseen_samples"] == counts["validation"]["samples"]
    assert found["estimates"]["test_part"]["acceptance"]["n"] == counts["test"]["samples"]


def test_a_share_to_validate_on_is_held_out_of_each_class(tmp_path):
    trained = done(
        "train", "digits", "--known", "0,1,2", "--validation", 0.5, *QUICK, "--out", tmp_path / "m"
    )
    assert abs(trained["held_out_samples"] - trained["training_samples"]) <= 3


def test_validation_samples_must_be_there_and_of_the_known_classes(parts, tmp_path):
    assert "no file or folder" in fails(
        1, "train", parts[1], "--validation", "none", *QUICK, "--out", tmp_path / "m"
    )
    assert "validation_share" in fails(
        2, "train", "digits", "--validation", 1.5, *QUICK, "--out", tmp_path / "m"
    )
    (tmp_path / "other").mkdir()
    (parts[1] / "test" / "2").rename(tmp_path / "other" / "9")
    try:
        message = fails(
            1, "train", parts[1], "--validation", tmp_path / "other", *QUICK, "--out", tmp_path / "m"
        )
    finally:
        (tmp_path / "other" / "9").rename(parts[1] / "test" / "2")
    assert "has no sample of the classes" in message


@pytest.fixture(scope="module")
def checked(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checked")
    done("train", photos, *QUICK, "--validation", 0.3, "--out", folder / "m")
    page = folder / "check.html"
    return done("check", folder / "m", photos, "--folds", 3, "--report", page, "--device", "cpu"), folder


def test_check_gives_estimates_with_intervals_and_samples_to_look_at(checked):
    result, _ = checked
    folds, classes = (result["estimates"][name] for name in ("folds", "left_out_classes"))
    assert 0 <= folds["closed_set_accuracy"]["low"] <= folds["closed_set_accuracy"]["value"] <= 1
    assert classes["auroc"]["n"] == 3
    assert [point["share"] for point in result["operating_curve"]][::13] == [0.5, 0.999]
    assert result["duplicates"][0]["conflict"]
    assert {"name", "label", "predicted", "p_value", "novel"} == set(result["least_sure"][0])
    assert result["least_sure"][0]["name"].endswith(".png")


def test_check_tells_people_the_same(checked, photos):
    _, folder = checked
    result = shels("check", folder / "m", photos, "--folds", 3, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "known samples accepted" in result.stdout
    assert "The network was trained on the classes left out" in result.stdout
    assert "1 with two labels" in result.stdout


def test_the_page_needs_nothing_else_and_every_picture_has_words(checked):
    text = (checked[1] / "check.html").read_text()
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r'(src|href)="?(http|//)', text)
    pictures = re.findall(r"<img [^>]*>", text)
    assert len(pictures) > 12
    assert all(re.search(r'alt="[^"]+"', picture) for picture in pictures)
    assert text.count('role="img"') == 1
    for title in ("How good is it?", "What more acceptance costs", "Least sure", "Near duplicates"):
        assert f"<h2>{title}</h2>" in text


def test_check_refuses_a_page_that_is_none(checked, photos):
    assert "ends in .html" in fails(2, "check", checked[1] / "m", photos, "--report", "page.txt")


def test_fewer_than_no_samples_cannot_be_listed(checked, photos):
    assert "--most" in fails(2, "check", checked[0], photos, "--most", -1)


@pytest.mark.parametrize("command", ["split", "check"])
def test_help_has_an_example_and_fits_80_columns(command):
    result = shels(command, "--help")
    assert f"\n shels {command}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80

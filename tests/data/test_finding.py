"""Which files are read: in folders with links and strangers in them, in zips, in tables of paths."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shels.data import archives, finding, manner, own, reading, sources
from shels.errors import DataError, MissingDataError


def picture(value=7, size=(6, 5)):
    content = io.BytesIO()
    Image.new("RGB", size, (value,) * 3).save(content, "PNG")
    return content.getvalue()


def write(path, content=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture() if content is None else content)
    return path


def names(found, folder):
    return [str(Path(file.name).relative_to(folder)) for file in found.files]


def reasons(found):
    return {Path(each.name).name: each.reason for each in found.left_out}


# Folders --------------------------------------------------------------------------------------------------


def test_links_to_files_are_followed_and_broken_ones_are_named(tmp_path):
    real = write(tmp_path / "elsewhere" / "a.png")
    folder = tmp_path / "photos" / "cat"
    write(folder / "b.png")
    (folder / "good.png").symlink_to(real)
    (folder / "broken.png").symlink_to(tmp_path / "gone.png")
    (folder / "itself.png").symlink_to(folder / "itself.png")
    found = finding.class_files(tmp_path / "photos")
    assert names(found, folder) == ["b.png", "good.png"]
    assert reasons(found) == {
        "broken.png": f"is a link to {tmp_path / 'gone.png'}, which cannot be reached; mend or remove it",
        "itself.png": f"is a link to {folder / 'itself.png'}, which cannot be reached; mend or remove it",
    }
    with pytest.raises(MissingDataError, match=r"broken\.png is a link to .*gone\.png, which cannot be"):
        own.read_images([folder / "broken.png"])


def test_a_link_to_a_folder_goes_round_in_no_circle(tmp_path):
    write(tmp_path / "cat" / "a.png")
    (tmp_path / "cat" / "again").symlink_to(tmp_path)
    (tmp_path / "dog").symlink_to(tmp_path / "cat")  # a class folder may be a link
    found = finding.class_files(tmp_path)
    assert [(file.label, Path(file.name).name) for file in found.files] == [
        ("cat", "a.png"),
        ("dog", "a.png"),
    ]
    assert reasons(found) == {"again": "is a link to a folder, which is not followed"}


def test_hidden_files_are_no_data_and_other_files_are_counted(tmp_path):
    for name in ("cat/a.png", "cat/._a.png", "cat/.thumbs/b.png", "cat/@eaDir/c.png", "__MACOSX/d/d.png"):
        write(tmp_path / name)
    for name in ("cat/notes.txt", "cat/deep/movie.MOV", "cat/deep/movie2.mov", "cat/README"):
        write(tmp_path / name, b"no image")
    found = finding.class_files(tmp_path)
    assert names(found, tmp_path) == ["cat/a.png"]
    assert found.others == {".txt": 1, ".mov": 2, "README": 1}
    assert not found.left_out


def test_an_image_in_no_class_folder_is_named(tmp_path):
    write(tmp_path / "cat" / "a.png")
    write(tmp_path / "b.png")
    assert reasons(finding.class_files(tmp_path)) == {"b.png": "lies in no class folder"}


def test_a_pipe_among_images_is_named_and_not_waited_for(tmp_path):
    write(tmp_path / "cat" / "a.png")
    os.mkfifo(tmp_path / "cat" / "b.png")
    assert reasons(finding.class_files(tmp_path)) == {
        "b.png": "is a named pipe, not a file; put the file itself there"
    }


def test_a_folder_that_may_not_be_opened_is_named(tmp_path, monkeypatch):
    write(tmp_path / "cat" / "a.png")
    write(tmp_path / "cat" / "closed" / "b.png")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = finding.class_files(tmp_path)
    assert reasons(found) == {"closed": "cannot be opened (Permission denied)"}


# Zips -----------------------------------------------------------------------------------------------------


def zipped(path, members, **how):
    with zipfile.ZipFile(path, "w", **how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("around", ["", "photos/"])
def test_a_zip_of_class_folders_gives_the_same_samples_as_the_folders(tmp_path, around):
    members = {
        f"{label}/{number}.png": picture(10 * number) for label in ("cat", "dog") for number in range(5)
    }
    members["cat/deep/er.png"] = picture(99)
    for name, content in members.items():
        write(tmp_path / "folder" / name, content)
    extra = {"__MACOSX/cat/._a.png": b"", "cat/.DS_Store": b"", "cat/notes.txt": b"", "cat/": b""}
    path = zipped(tmp_path / "photos.zip", {around + name: each for name, each in (members | extra).items()})
    before = sorted(tmp_path.rglob("*"))
    data, folders = sources.load(path), sources.load(tmp_path / "folder")
    assert data.name == "photos"
    assert data.train.classes == ("cat", "dog")
    assert sorted(data.train.inputs[:, 0, 0, 0].tolist()) == sorted(folders.train.inputs[:, 0, 0, 0].tolist())
    assert data.train.labels.tolist() == folders.train.labels.tolist()
    assert sorted(tmp_path.rglob("*")) == before  # nothing was unpacked


def test_parts_in_a_zip_are_parts(tmp_path):
    members = {f"set/{part}/cat/1.png": picture() for part in ("train", "test", "val")}
    data = sources.load(zipped(tmp_path / "a.zip", members))
    assert (len(data.train), len(data.test)) == (1, 1)
    assert data.train.classes == ("cat",)


def test_one_class_in_a_zip_is_a_class(tmp_path):
    path = zipped(tmp_path / "a.zip", {"cat/1.png": picture(), "cat/2.png": picture()})
    assert sources.load(path).train.classes == ("cat",)


def test_an_image_in_no_class_folder_of_a_zip_is_named(tmp_path):
    found = archives.class_files(zipped(tmp_path / "a.zip", {"cat/1.png": picture(), "2.png": picture()}))
    assert reasons(found) == {"2.png": "lies in no class folder"}
    with pytest.raises(DataError, match=r"a\.zip holds no class folders"):
        archives.class_files(zipped(tmp_path / "a.zip", {"1.png": picture()}))


@pytest.mark.parametrize(
    "name", ["../up.png", "cat/../../up.png", "/root.png", "C:\\up.png", "cat\\..\\..\\x.png"]
)
def test_a_member_that_leads_out_of_a_zip_is_refused(tmp_path, name):
    path = zipped(tmp_path / "a.zip", {"cat/1.png": picture(), name: picture()})
    for reader in (sources.load, lambda path: own.read_images([path])):
        with pytest.raises(DataError, match=r"a\.zip: the member .* leads out of the archive"):
            reader(path)


def test_a_bomb_in_a_zip_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_LARGE", 10_000)
    members = {"cat/1.png": picture(), "cat/2.bmp": bytes(3_000_000)}
    path = zipped(tmp_path / "a.zip", members, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match=r"'cat/2\.bmp' would unpack to 3000000 bytes from \d{4},"):
        sources.load(path)


def test_members_that_lie_over_each_other_are_refused(tmp_path):
    path = zipped(tmp_path / "a.zip", {"cat/1.png": picture(), "cat/2.png": picture()})
    content = bytearray(path.read_bytes())
    place = content.find(b"PK\1\2")
    content[place + 20 : place + 24] = (10**6).to_bytes(4, "little")  # its packed size, in the directory
    path.write_bytes(content)
    with pytest.raises(DataError, match="members lie over each other"):
        sources.load(path)


def test_broken_encrypted_and_linked_members_are_left_out_and_named(tmp_path):
    path = zipped(tmp_path / "a.zip", {"cat/1.png": picture(), "cat/2.png": b"junk", "cat/4.png": picture(9)})
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("cat/3.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    content = bytearray(path.read_bytes())
    content[content.rfind(picture(9)) + 40] ^= 255  # its checksum no longer holds
    path.write_bytes(content)
    with manner.file_reading() as report:
        assert len(sources.load(path).train) == 1
    assert [(Path(each.name).name, each.label) for each in report.left_out] == [
        ("3.png", None),
        ("2.png", "cat"),
        ("4.png", "cat"),
    ]
    assert "Bad CRC-32" in report.left_out[2].reason


def test_what_is_no_zip_is_named(tmp_path):
    path = zipped(tmp_path / "a.zip", {"cat/1.png": picture()})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"a\.zip is not a whole zip archive"):
        sources.load(path)


def test_all_images_in_a_zip_are_inputs_by_name(tmp_path):
    path = zipped(tmp_path / "a.zip", {"b.png": picture(), "deep/er/a.png": picture()})
    assert own.read_images([path])[1] == [f"{path}/b.png", f"{path}/deep/er/a.png"]


# Tables of paths ------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    for number in range(4):
        write(tmp_path / "photos" / f"{number}.png", picture(number))
    write(tmp_path / "photos" / 'with, comma and "quotes".png', picture(50))
    return tmp_path


def table(folder, text, encoding="utf-8"):
    (folder / "labels.csv").write_bytes(text.encode(encoding))
    return folder / "labels.csv"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("path,label\nphotos/0.png,cat\nphotos/1.png,dog\n", "utf-8"),
        ("label,path\r\ncat,photos/0.png\r\ndog,photos/1.png", "utf-8"),
        ("Filename;Class\nphotos/0.png;cat\nphotos/1.png;dog\n", "utf-8-sig"),
        ("id\tImage Path\ttarget\n1\tphotos/0.png\tcat\n\n2\tphotos\\1.png\tdog\n", "utf-8"),
        ('"file","category"\n"photos/0.png","cat"\n"photos/1.png","dog"\n', "utf-8"),
        ("path,label,split\nphotos/0.png,cat,train\nphotos/1.png,dog,\nphotos/2.png,owl,val\n", "utf-8"),
    ],
)
def test_a_table_of_paths_and_labels_is_read_however_it_is_written(photos, text, encoding):
    data = sources.load(table(photos, text, encoding))
    assert data.name == "labels"
    assert data.train.classes == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 1]
    assert data.train.inputs[:, 0, 0, 0].tolist() == [0, 1]


def test_quoted_cells_and_absolute_paths_are_taken_as_they_are(photos):
    text = f'path,label\n"photos/with, comma and ""quotes"".png","a, b"\n{photos / "photos/1.png"},é\n'
    data = sources.load(table(photos, text))
    assert data.train.classes == ("a, b", "é")
    assert data.train.inputs[:, 0, 0, 0].tolist() == [50, 1]


def test_a_column_of_parts_makes_parts(photos):
    data = sources.load(table(photos, "path,label,split\nphotos/0.png,cat,Train\nphotos/1.png,cat,TEST\n"))
    assert data.train.inputs[:, 0, 0, 0].tolist() == [0]
    assert data.test.inputs[:, 0, 0, 0].tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "photos/0.png,cat\n",
            r"no column of paths, only \['photos/0.png', 'cat'\]; the first line must name",
        ),
        ("path,age\nphotos/0.png,3\n", r"no column of labels, only \['path', 'age'\]; the first line"),
        ("", "no column of paths"),
        ("path,label\n", "lists no image"),
        (
            "path,label\nphotos/0.png,cat\nphotos/0.png,dog\n",
            r"labels\.csv:3: .* is listed as 'dog', before as",
        ),
        ('path,label\n"photos/0.png,cat\n', "cannot be read as CSV"),
        ("path,label\nnone.png,cat\n", "no file of the class 'cat'|none.png is not there"),
    ],
)
def test_a_table_that_lacks_something_says_what(photos, text, message):
    with pytest.raises(DataError, match=message):
        sources.load(table(photos, text))


def test_a_table_in_another_encoding_is_refused(photos):
    with pytest.raises(DataError, match="is not in UTF-8"):
        sources.load(table(photos, "path,label\nphotos/0.png,é\n", "latin-1"))


def test_rows_without_a_file_or_a_label_are_left_out_and_named(photos):
    rows = [
        "photos/0.png,cat",
        "photos/none.png,cat",
        "photos/1.png,",
        ",cat",
        "photos/0.png,cat",
        "photos/2.png",
    ]
    path = table(photos, "path,label\n" + "\n".join(rows))
    with manner.file_reading() as report:
        assert len(sources.load(path).train) == 1
    assert [(Path(each.name).name, each.reason) for each in report.left_out] == [
        ("labels.csv:4", "has no label"),
        ("labels.csv:5", "has no path"),
        ("labels.csv:6", "names photos/0.png again"),
        ("labels.csv:7", "has no label"),
        ("none.png", "is not there"),
    ]


def test_a_path_that_goes_up_is_said_without_the_way_down_but_for_links(photos):
    for folder in ("lists", "elsewhere/lists"):
        (photos / folder).mkdir(parents=True)
        (photos / folder / "some.csv").write_text("path,label\n../photos/0.png,cat\n")
    (photos / "link").symlink_to(photos / "elsewhere" / "lists")
    write(photos / "elsewhere" / "photos" / "0.png", picture(9))
    found = [own.labelled_files(photos / folder / "some.csv").files[0].name for folder in ("lists", "link")]
    assert found == [str(photos / "photos/0.png"), str(photos / "link/../photos/0.png")]


def test_a_table_of_paths_alone_gives_inputs(photos):
    assert own.read_images([table(photos, "image\nphotos/1.png\n")])[1] == [str(photos / "photos/1.png")]


def test_files_are_found_without_being_read(photos):
    write(photos / "photos" / "bad.png", b"junk")
    text = "path,label\nphotos/0.png,cat\nphotos/bad.png,cat\n"
    assert len(own.labelled_files(table(photos, text)).files) == 2
    assert reading.typical_side(own.labelled_files(photos / "labels.csv").files) == 5
    assert np.array_equal(sources.load(table(photos, text.replace("bad", "1"))).train.labels, [0, 0])

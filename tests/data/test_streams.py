import zipfile
from collections import Counter
from itertools import islice

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from shels import runtime
from shels.data.samples import Samples
from shels.data.streams import StreamBatch, mixed_stream, paper_stream, read_stream
from shels.errors import DataError, MissingDataError, SettingsError

EACH = 12
NAMES = ("ant", "bee", "cow", "dog", "eel", "fox")
# Six classes of 12 samples, interleaved; a sample is its own number, so that it can be followed.
TEST = Samples(torch.arange(6.0 * EACH)[:, None], torch.arange(6 * EACH) % 6, NAMES, origin="the animals")
KNOWN, NOVEL = ("cow", "ant"), ("fox", "bee")


def paper(**changes):
    settings = {"known": KNOWN, "novel": NOVEL, "batch_size": 10, "seed": 3} | changes
    return paper_stream(TEST, settings.pop("known"), settings.pop("novel"), **settings)


def mixed(**changes):
    settings = {"known": KNOWN, "novel": ("fox", "bee", "dog"), "batches": 12, "batch_size": 10, "seed": 3}
    settings |= changes
    return mixed_stream(TEST, settings.pop("known"), settings.pop("novel"), **settings)


def content(batch):
    return batch.name, batch.inputs[:, 0].tolist(), batch.labels, batch.phase


def first_seen(batches):
    """Which classes appear in which batch for the first time, the known ones left out."""
    seen, out = set(KNOWN), {}
    for place, batch in enumerate(batches):
        new = set(batch.labels) - seen
        seen |= new
        if new:
            out[place] = new
    return out


# The paper's protocol


def test_three_known_epochs_come_before_each_novel_class_and_after_the_last():
    batches = list(paper(batch_size=1000))
    old, fox, every = {"cow", "ant"}, {"cow", "ant", "fox"}, {"cow", "ant", "fox", "bee"}
    assert [set(batch.labels) for batch in batches] == [
        *[old] * 3,
        {"fox"},
        *[fox] * 3,
        {"bee"},
        *[every] * 3,
    ]
    phases = ["known"] * 3 + ["novel"]
    assert [batch.phase for batch in batches] == phases + phases + ["known"] * 3
    assert [len(batch) for batch in batches] == [24, 24, 24, 12, 36, 36, 36, 12, 48, 48, 48]


def test_the_number_of_known_epochs_can_be_chosen():
    assert [batch.phase for batch in paper(known_epochs=1)] == ["known", "novel", "known", "novel", "known"]


def test_without_novel_classes_only_the_last_phase_is_left():
    assert [set(batch.labels) for batch in paper(novel=(), batch_size=99)] == [set(KNOWN)] * 3


@pytest.mark.parametrize("stream", [paper, mixed])
def test_each_sample_comes_with_its_own_label_and_at_most_once_in_a_batch(stream):
    for batch in stream():
        rows = batch.inputs[:, 0].long().tolist()
        assert len(set(rows)) == len(rows) == 10
        assert batch.labels == tuple(NAMES[row % 6] for row in rows)


@pytest.mark.parametrize("stream", [paper, mixed])
def test_a_stream_is_the_same_at_every_reading_and_another_with_another_seed(stream):
    once = [content(batch) for batch in stream()]
    assert once == [content(batch) for batch in stream()]
    assert not {name for name, *_ in once} & {batch.name for batch in stream(seed=4)}
    assert [rows for _, rows, *_ in once] != [content(batch)[1] for batch in stream(seed=4)]
    assert len({name for name, *_ in once}) == len(once)


def test_known_epochs_are_different_draws():
    first, second, third = (content(batch)[1] for batch in islice(paper(batch_size=24), 3))
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third != first


def test_over_many_streams_every_sample_is_drawn_about_as_often():
    counts = Counter(row for seed in range(400) for row in content(next(paper(batch_size=6, seed=seed)))[1])
    assert set(counts) == set(TEST.inputs[(TEST.labels == 0) | (TEST.labels == 2), 0].tolist())
    assert all(60 < count < 140 for count in counts.values())  # 100 expected, 8.7 the standard deviation


def test_later_novel_classes_do_not_change_the_batches_before_them():
    shorter, longer = paper(novel=("fox",)), paper(novel=("fox", "bee"))
    pairs = list(zip(shorter, longer, strict=False))
    assert len(pairs) == 7
    assert all(content(one) == content(other) for one, other in pairs)


@pytest.mark.parametrize("stream", [paper, mixed])
def test_a_batch_is_drawn_when_it_is_asked_for_and_by_a_generator_of_its_own(stream, monkeypatch):
    asked = []
    real = runtime.generator

    def noting(seed, *purpose):
        asked.append(purpose)
        return real(seed, *purpose)

    monkeypatch.setattr(runtime, "generator", noting)
    batches = stream()
    asked.clear()  # a mixed stream draws its arrivals at once
    for place in range(3):
        next(batches)
        assert asked.pop() == ("stream", place)
        assert not asked


def test_samples_of_images_stay_as_they_are():
    test = Samples(torch.arange(6 * 4, dtype=torch.uint8).view(6, 1, 2, 2), torch.arange(6) % 3, (7, 8, 9))
    batch = next(paper_stream(test, [7, 8], [9], batch_size=500, seed=0))
    assert batch.inputs.dtype == torch.uint8
    assert sorted(batch.inputs[:, 0, 0, 0].tolist()) == [0, 4, 12, 16]
    assert Counter(batch.labels) == {7: 2, 8: 2}


# The mixed protocol


def test_every_novel_class_appears_after_the_first_batch_and_before_the_last():
    for seed in range(60):
        batches = list(mixed(seed=seed))
        seen = first_seen(batches)
        assert len(batches) == 12
        assert not {0, 11} & set(seen)
        assert set().union(*seen.values()) == {"fox", "bee", "dog"}
        assert [place for place, batch in enumerate(batches) if batch.phase == "novel"] == list(seen)


def test_two_of_three_novel_classes_appear_at_once_and_never_three():
    for seed in range(60):
        assert sorted(len(new) for new in first_seen(mixed(seed=seed)).values()) == [1, 2]


def test_two_novel_classes_appear_at_once_in_about_half_of_the_streams():
    together = sum(len(first_seen(mixed(seed=seed, novel=NOVEL))) == 1 for seed in range(200))
    assert 70 < together < 130  # 100 expected, 7 the standard deviation


def test_the_batches_and_the_order_of_appearance_are_drawn():
    places, firsts = Counter(), Counter()
    for seed in range(300):
        seen = first_seen(mixed(seed=seed, batches=6))
        places.update(seen.keys())
        firsts.update(min(seen.items())[1])
    assert set(places) == {1, 2, 3, 4}
    assert max(places.values()) < 1.5 * min(places.values())
    assert max(firsts.values()) < 1.5 * min(firsts.values())


@pytest.mark.parametrize(
    ("batch_size", "alone", "each_of_two"), [(2, 1, 1), (5, 3, 2), (10, 5, 3), (16, 8, 4)]
)
def test_a_class_that_first_appears_fills_half_of_the_batch_or_two_a_quarter_each(
    batch_size, alone, each_of_two
):
    batches = list(mixed(batch_size=batch_size))
    for place, new in first_seen(batches).items():
        counts = Counter(batches[place].labels)
        assert len(batches[place]) == batch_size
        for name in new:
            assert counts[name] == (alone if len(new) == 1 else each_of_two)


def test_a_class_with_few_samples_appears_with_all_of_them_and_others_fill_the_batch():
    rows = [row for row in range(6 * EACH) if NAMES[row % 6] != "fox" or row < 12]
    few = TEST.take(torch.tensor(rows))  # 2 foxes
    batches = list(mixed_stream(few, KNOWN, ["fox"], batches=4, batch_size=10, seed=0))
    counts = Counter(batches[next(iter(first_seen(batches)))].labels)
    assert counts["fox"] == 2
    assert counts["cow"] + counts["ant"] == 8


def test_later_batches_mix_all_classes_that_have_appeared_in_random_order():
    batches = list(mixed(batch_size=1000))
    last = max(first_seen(batches))
    later = batches[last + 1 :]
    assert later
    for batch in later:
        assert Counter(batch.labels) == dict.fromkeys((*KNOWN, "fox", "bee", "dog"), EACH)
        assert list(batch.labels) != sorted(batch.labels)


def test_a_class_that_first_appears_is_spread_over_its_batch():
    batches = list(mixed())
    for place, new in first_seen(batches).items():
        is_new = [name in new for name in batches[place].labels]
        assert is_new != sorted(is_new)
        assert is_new != sorted(is_new, reverse=True)


@pytest.mark.parametrize("stream", [paper, mixed])
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"batch_size": 0}, SettingsError, "batch_size must be a whole number, [12] or more, got 0"),
        ({"batch_size": 2.5}, SettingsError, "batch_size must be a whole number, [12] or more, got 2.5"),
        ({"novel": ("yak",)}, DataError, "the animals has no class 'yak'; its classes: "),
        ({"novel": ("cow",)}, SettingsError, "class 'cow' is both known and novel"),
        ({"novel": ("bee", "bee")}, SettingsError, "listed twice"),
        ({"known": ("cow",)}, SettingsError, "at least 2 classes must be known"),
    ],
)
def test_what_cannot_be_a_stream_is_refused_before_the_first_batch(stream, changes, error, message):
    with pytest.raises(error, match=message):
        stream(**changes)


def test_settings_of_one_protocol_are_checked_too():
    with pytest.raises(SettingsError, match="known_epochs must be a whole number, 1 or more, got 0"):
        paper(known_epochs=0)
    with pytest.raises(SettingsError, match=r"batches must be a whole number, 5 or more .*, got 4"):
        mixed(batches=4)
    assert set().union(*first_seen(mixed(batches=5)).values()) == {"fox", "bee", "dog"}


def test_a_class_without_a_sample_is_refused():
    empty = TEST.take(TEST.labels != NAMES.index("bee"))
    with pytest.raises(DataError, match="the animals: class 'bee' has no sample"):
        paper_stream(empty, KNOWN, NOVEL, batch_size=10, seed=0)


# A batch


def test_a_batch_must_hold_good_samples_and_a_label_for_each():
    two = torch.zeros(2, 3)
    assert StreamBatch("b", two).labels is None
    with pytest.raises(DataError, match="b: 2 inputs but 1 labels"):
        StreamBatch("b", two, ("cow",))
    with pytest.raises(DataError, match="b: a batch must hold at least one sample"):
        StreamBatch("b", two[:0])
    with pytest.raises(DataError, match="b: sample 1 holds NaN"):
        StreamBatch("b", torch.tensor([[0.0], [torch.nan]]))
    with pytest.raises(SettingsError, match='phase must be "known", "novel" or "", got \'new\''):
        StreamBatch("b", two, phase="new")


# A stream on disk


def shade(path, value, mode="L", side=4):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (side, side), value if mode == "L" else (value,) * 3).save(path)


def shades(batch):
    return batch.inputs[:, 0, 0, 0].tolist()


def grey(*values, side=4):
    return np.stack([np.full((side, side), value, np.uint8) for value in values])


def test_a_directory_is_read_in_name_order_whatever_its_batches_are(tmp_path):
    np.savez(tmp_path / "0010.npz", x=grey(4, 5))
    np.savez(tmp_path / "0002.npz", x=grey(1, 2), y=np.array(["cow", "ant"]))
    shade(tmp_path / "0009" / "b.png", 30)
    shade(tmp_path / "0009" / "a.png", 20)
    shade(tmp_path / "0011" / "cow" / "x.png", 60)
    shade(tmp_path / "0011" / "ant" / "y.png", 50)
    batches = list(read_stream(tmp_path))
    assert [batch.name for batch in batches] == ["0002.npz", "0009", "0010.npz", "0011"]
    assert [shades(batch) for batch in batches] == [[1, 2], [20, 30], [4, 5], [50, 60]]
    assert [batch.labels for batch in batches] == [("cow", "ant"), None, None, ("ant", "cow")]
    assert {batch.phase for batch in batches} == {""}


def test_numbers_in_names_count_as_numbers(tmp_path):
    names = ["2.npz", "10.npz", "b1-2.npz", "b1-10.npz", "b2-1.npz"]
    for name in reversed(names):
        np.savez(tmp_path / name, x=grey(0))
    assert [batch.name for batch in read_stream(tmp_path)] == names


def test_names_that_are_equal_as_numbers_keep_one_order(tmp_path):
    for name in ("1.npz", "01.npz", "001.npz"):
        np.savez(tmp_path / name, x=grey(0))
    assert [batch.name for batch in read_stream(tmp_path)] == ["001.npz", "01.npz", "1.npz"]


def test_a_file_in_a_directory_is_one_batch_however_long(tmp_path):
    np.savez(tmp_path / "1.npz", x=np.zeros((7, 2)), y=np.arange(7))
    (batch,) = read_stream(tmp_path, batch_size=3)
    assert batch.inputs.shape == (7, 2)
    assert batch.labels == (0, 1, 2, 3, 4, 5, 6)


def test_one_npz_file_is_cut_into_batches_named_by_their_rows(tmp_path):
    x = np.random.default_rng(0).random((7, 2))
    np.savez(tmp_path / "day.npz", x=x, y=np.arange(7))
    batches = list(read_stream(tmp_path / "day.npz", batch_size=3))
    assert [b.name for b in batches] == ["day.npz#0000-0002", "day.npz#0003-0005", "day.npz#0006-0006"]
    assert np.array_equal(np.concatenate([batch.inputs for batch in batches]), x.astype(np.float32))
    assert [batch.labels for batch in batches] == [(0, 1, 2), (3, 4, 5), (6,)]


def test_an_npz_file_is_cut_by_500_where_nothing_else_is_said_and_may_have_no_labels(tmp_path):
    np.savez(tmp_path / "day.npz", x=np.zeros((12_001, 1)))
    batches = list(read_stream(tmp_path / "day.npz"))
    assert [len(batch) for batch in batches] == [500] * 24 + [1]
    assert batches[0].name == "day.npz#0000-0499"
    assert batches[-1].name == "day.npz#12000-12000"
    assert batches[0].labels is None


def test_hidden_files_are_no_batches(tmp_path):
    np.savez(tmp_path / "1.npz", x=grey(0))
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / ".2.npz").write_text("half written")
    (tmp_path / "__MACOSX").mkdir()
    assert [batch.name for batch in read_stream(tmp_path)] == ["1.npz"]


def test_images_are_brought_to_the_size_and_channels_asked_for(tmp_path):
    shade(tmp_path / "1" / "a.png", 200, "RGB", side=9)
    shade(tmp_path / "1" / "b.png", 100, side=5)
    np.savez(tmp_path / "2.npz", x=np.stack([grey(40, 50, side=6)] * 3, axis=-1))
    first, second = read_stream(tmp_path, size=8, channels="grey")
    assert first.inputs.shape == (2, 1, 8, 8)
    assert shades(first) == [200, 100]
    assert second.inputs.shape == (2, 1, 6, 6)  # arrays keep their size, as the model's preparation fits them
    assert shades(second) == [40, 50]
    assert next(read_stream(tmp_path / "2.npz", channels="rgb")).inputs.shape == (2, 3, 6, 6)


def test_vectors_stay_as_they_are_whatever_channels_are_asked_for(tmp_path):
    np.savez(tmp_path / "day.npz", x=np.ones((3, 5)))
    assert next(read_stream(tmp_path / "day.npz", size=8, channels="rgb")).inputs.shape == (3, 5)


def test_a_class_may_be_called_train(tmp_path):
    shade(tmp_path / "1" / "train" / "a.png", 9)
    assert next(read_stream(tmp_path)).labels == ("train",)


def test_a_batch_is_read_only_when_it_is_asked_for(tmp_path):
    np.savez(tmp_path / "1.npz", x=grey(7))
    (tmp_path / "2.npz").write_text("no zip archive")
    batches = read_stream(tmp_path)
    assert shades(next(batches)) == [7]
    with pytest.raises(DataError, match=r"2\.npz is not a whole \.npz file"):
        next(batches)


def test_a_path_that_is_no_stream_is_refused_at_once(tmp_path):
    with pytest.raises(MissingDataError, match=r"there is no stream .*none; give a directory of batches or"):
        read_stream(tmp_path / "none")
    with pytest.raises(DataError, match=r"holds no batch; put \.npz files or folders of images in it"):
        read_stream(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"notes\.txt is no stream; a stream is a directory"):
        read_stream(tmp_path / "notes.txt")
    with pytest.raises(DataError, match=r"notes\.txt is no batch; .* move everything else away"):
        read_stream(tmp_path)


def test_images_that_lie_in_no_batch_are_refused(tmp_path):
    shade(tmp_path / "a.png", 1)
    shade(tmp_path / "1" / "b.png", 1)
    with pytest.raises(DataError, match=r"a\.png is no batch; .*put images in a folder for each batch"):
        read_stream(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "zip", "csv", "txt", "parquet"])
def test_a_list_of_images_is_cut_into_batches(tmp_path, kind):
    folder, path = tmp_path / "loose", tmp_path / f"list.{kind}"
    files = [folder / f"{value}.png" for value in range(1, 6)]
    for value, file in enumerate(files, 1):
        shade(file, value)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, file.name)
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"image": [file.read_bytes() for file in files]}), path)
    else:
        path.write_text("path\n" * (kind == "csv") + "".join(f"loose/{file.name}\n" for file in files))
    path = folder if kind == "folder" else path
    batches = list(read_stream(path, batch_size=2))
    assert [shades(batch) for batch in batches] == [[1, 2], [3, 4], [5]]
    assert [batch.name for batch in batches] == [
        f"{path.name}#{rows}" for rows in ("0000-0001", "0002-0003", "0004-0004")
    ]
    assert [shades(batch) for batch in read_stream(path, batch_size=5)] == [[1, 2, 3, 4, 5]]


def test_an_empty_folder_and_a_half_sorted_one_are_no_batches(tmp_path):
    (tmp_path / "1").mkdir()
    with pytest.raises(DataError, match="holds no batch"):
        read_stream(tmp_path)
    shade(tmp_path / "2" / "a.png", 1)
    with pytest.raises(DataError, match=r"no image in the folder .*1"):
        next(read_stream(tmp_path))
    shade(tmp_path / "1" / "a.png", 1)
    shade(tmp_path / "1" / "cow" / "b.png", 1)
    with pytest.raises(DataError, match="1 holds images beside folders of images"):
        next(read_stream(tmp_path))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((2, 3))}, r"has no array 'x', only \['z'\]; save the inputs as x"),
        ({"x": np.zeros((0, 3))}, "x: the array is empty"),
        ({"x": np.float32(3)}, "x: the array is empty"),
        ({"x": np.zeros(3)}, "x: inputs must be images"),
        ({"x": np.array([[0.0], [np.nan]])}, "x: sample 1 holds NaN or infinity"),
        ({"x": np.full((2, 4, 4), 300)}, "must lie in 0-255, got 300 to 300"),
        (
            {"x": np.zeros((2, 3)), "y": np.zeros(3)},
            "2 inputs but 3 labels; give one label to each, or leave",
        ),
        ({"x": np.zeros((2, 3)), "y": np.zeros((2, 1))}, r"y: labels must have shape \(n,\)"),
        ({"x": np.zeros((2, 3)), "y": np.array([0, np.nan])}, "y: the label in row 1 is missing"),
    ],
)
def test_bad_arrays_are_refused_by_name_alone_and_in_a_directory(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    for path in (tmp_path, tmp_path / "bad.npz"):
        with pytest.raises(DataError, match=r"bad\.npz.*" + message):
            next(read_stream(path))


def test_a_bad_row_is_named_with_its_batch_after_the_good_ones(tmp_path):
    np.savez(tmp_path / "day.npz", x=np.array([[0.0], [1.0], [2.0], [np.inf]]))
    batches = read_stream(tmp_path / "day.npz", batch_size=2)
    assert next(batches).inputs.tolist() == [[0], [1]]
    with pytest.raises(DataError, match=r"day\.npz#0002-0003: x: sample 1 holds NaN or infinity"):
        next(batches)


def test_forms_that_do_not_exist_are_refused_at_once(tmp_path):
    np.savez(tmp_path / "1.npz", x=grey(0))
    with pytest.raises(SettingsError, match="size must be a whole number of pixels"):
        read_stream(tmp_path, size=0)
    with pytest.raises(SettingsError, match="unknown channels 'gray'"):
        read_stream(tmp_path, channels="gray")
    with pytest.raises(SettingsError, match="batch_size must be a whole number, 1 or more, got 0"):
        read_stream(tmp_path, batch_size=0)

"""What a learner says of data on disk is what it says of the same data in memory."""

import numpy as np

from shels.data.sources import load_named
from shels.learner.assessment import assess, file_verdicts


def test_verdicts_on_a_file_are_those_on_its_arrays(tmp_path, learner):
    inputs = load_named("digits").test.inputs[:20]
    np.savez(tmp_path / "x.npz", x=inputs[:, 0].numpy())
    rows = file_verdicts(learner, [tmp_path / "x.npz"])
    verdicts = learner.judge(inputs)
    assert [row.source for row in rows] == [f"{tmp_path / 'x.npz'}#{n}" for n in range(20)]
    assert [row.novel for row in rows] == verdicts.novel.tolist()
    assert [row.predicted for row in rows] == [learner.classes[at] for at in verdicts.predicted.tolist()]
    assert [row.score for row in rows] == verdicts.score.tolist()
    assert all((row.verdict == "novel") == row.novel for row in rows)


def test_measures_on_a_data_set_count_its_other_classes_as_novel(learner):
    test = load_named("digits").test
    found = assess(learner, "digits")
    known = sum(int(test.classes[label] in (0, 1, 2, 3)) for label in test.labels.tolist())
    assert (len(found.known), len(found.novel), found.left_out) == (known, len(test) - known, 0)
    assert found.part == "test"
    assert found.measures == learner.evaluate(found.known, found.novel)


def test_other_data_take_the_place_of_the_novel_classes(learner):
    found = assess(learner, "digits", novel_data="digits")
    assert len(found.novel) == len(load_named("digits").test)
    assert found.left_out == len(found.novel) - len(found.known)

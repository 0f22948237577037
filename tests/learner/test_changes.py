from __future__ import annotations

import re
import warnings
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from shels.config import Gaussian, Penalty, Slda
from shels.data.sources import load_named
from shels.errors import AccommodationError, DataError, SettingsError
from shels.learner.learner import Learner, learn
from shels.learner.pairing import LEAST_IMAGES, detector_beside
from shels.model.networks import Network


@pytest.fixture(scope="module")
def data():
    return load_named("digits")


def of(samples, *names):
    return samples.only(names).inputs


def names_given(learner, inputs):
    return [learner.classes[position] for position in learner.judge(inputs).predicted.tolist()]


def equal(first, second, inputs):
    """Whether two learners judge alike to the last bit."""
    one, two = first.judge(inputs), second.judge(inputs)
    alike = all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("score", "threshold", "p_value"))
    return alike and names_given(first, inputs) == names_given(second, inputs)


@pytest.fixture(scope="module")
def grown(learner, data):
    """The learner with digit 6 taken in."""
    return learner.accommodate(of(data.train, 6), 6)


# Taking in ------------------------------------------------------------------------------------------------


def test_a_class_is_taken_in_and_recognised(grown, learner, data):
    assert grown.classes == (0, 1, 2, 3, 6)
    verdicts = grown.judge(of(data.test, 6))
    right = (verdicts.predicted == 4) & ~verdicts.novel
    assert right.float().mean() > 0.85
    assert learner.judge(of(data.test, 6)).novel.float().mean() > 0.85
    assert grown.taught == (0, 1, 2, 3)


def test_what_was_taken_in_is_noted(grown, data):
    (note,) = grown.report["taken_in"]
    assert note["class"] == 6
    assert note["images"] == len(of(data.train, 6))
    assert note["method"] == "gaussian"
    assert note["seconds"] >= 0
    assert grown.report["last_change"] == {"kind": "accommodated", "name": 6, "images": note["images"]}


def test_taking_in_leaves_the_old_learner_as_it_was(learner, data):
    inputs = data.test.inputs
    before, scores = learner.judge(inputs), learner.class_scores(inputs)
    state = {name: value.clone() for name, value in learner.network.state_dict().items()}
    report, statistics, parts = dict(learner.report), learner.statistics, learner.detector.parts
    learner.accommodate(of(data.train, 7), 7)
    assert torch.equal(learner.class_scores(inputs), scores)
    assert torch.equal(learner.judge(inputs).score, before.score)
    assert torch.equal(learner.judge(inputs).predicted, before.predicted)
    assert all(torch.equal(value, state[name]) for name, value in learner.network.state_dict().items())
    assert learner.classes == (0, 1, 2, 3)
    assert learner.report == report
    assert learner.statistics is statistics
    assert learner.detector.parts is parts


def test_every_order_of_three_classes_gives_the_same_learner(learner, data):
    inputs, results = data.test.inputs, []
    for order in permutations((6, 7, 8)):
        new = learner
        for name in order:
            new = new.accommodate(of(data.train, name), name)
        verdicts = new.judge(inputs)
        limits = dict(zip(new.classes, new.detector.thresholds.tolist(), strict=True))
        columns = [new.classes.index(name) for name in (0, 1, 2, 3, 6, 7, 8)]
        results.append((names_given(new, inputs), verdicts, limits, new.class_scores(inputs)[:, columns]))
    given, first, limits, scores = results[0]
    assert {6, 7, 8} < set(given)
    for other_given, other, other_limits, other_scores in results[1:]:
        assert other_given == given
        assert torch.allclose(other.score, first.score, rtol=0, atol=1e-6)
        assert torch.equal(other.novel, first.novel)
        assert other_limits == pytest.approx(limits, abs=1e-6)
        assert torch.allclose(other_scores, scores, rtol=1e-6, atol=1e-6)


def test_every_order_of_small_classes_gives_the_same_thresholds(learner, data):
    found = []
    for order in ((6, 7), (7, 6)):
        new = learner
        for name in order:
            new = new.accommodate(of(data.train, name)[:10], name)
        found.append(dict(zip(new.classes, new.detector.thresholds.tolist(), strict=True)))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_a_small_class_keeps_its_threshold_when_one_taken_in_before_it_is_unlearned(learner, data):
    alone = learner.accommodate(of(data.train, 7)[:10], 7)
    both = learner.accommodate(of(data.train, 6), 6).accommodate(of(data.train, 7)[:10], 7)
    assert equal(both.unlearn(6), alone, data.test.inputs)


def test_five_images_are_enough(learner, data):
    assert LEAST_IMAGES == 5
    new = learner.accommodate(of(data.train, 6)[:5], 6)
    given = names_given(new, of(data.test, 6))
    assert given.count(6) / len(given) > 0.8
    accepted = ~new.judge(of(data.test, 6)).novel
    assert accepted.float().mean() > 0.5  # its threshold is not set in-sample, or hardly any would be


@pytest.mark.filterwarnings("ignore:.*images given as 9 look like known classes")
def test_ten_classes_later_the_old_ones_are_judged_as_before(learner, data, digits):
    inputs = digits[1].inputs
    before = learner.judge(inputs)
    new = learner
    for name in range(4, 10):
        new = new.accommodate(of(data.train, name), name)
    for name in range(4):
        new = new.accommodate(255 - of(data.train, name + 4), f"inverted {name + 4}")
    after = new.judge(inputs)
    assert len(new.classes) == 14
    assert torch.equal(new.detector.thresholds[:4], learner.detector.thresholds)
    same = after.predicted == before.predicted
    assert same.float().mean() > 0.9
    assert torch.equal(after.score[same], before.score[same])
    assert torch.equal(after.threshold[same], before.threshold[same])
    assert after.novel.float().mean() <= before.novel.float().mean()


# Bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_images_are_refused(learner, data, count):
    with pytest.raises(DataError, match=rf"5 different images or more, got {count} of class 6"):
        learner.accommodate(of(data.train, 6)[:count], 6)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_images_are_enough_where_they_are_said_to_be_and_a_warning_comes(
    learner, data, count, tmp_path
):
    with pytest.warns(UserWarning, match=f"{count} image"):
        new = learner.accommodate(of(data.train, 6)[:count], 6, least=1)
    given = names_given(new, of(data.test, 6))
    verdicts = new.judge(of(data.test, 6))
    mine = verdicts.predicted == 4
    assert given.count(6) / len(given) > 0.3
    assert (~verdicts.novel[mine]).float().mean() > 0.4  # not half of them where there is one image
    assert equal(new.unlearn(6), learner, data.test.inputs)
    new.save(tmp_path / "m")
    assert equal(Learner.load(tmp_path / "m", "cpu"), new, data.test.inputs)


def test_a_learner_that_holds_images_out_needs_five_whatever_is_said(digits, short_settings, data):
    brief = replace(short_settings.training, steps=50, check_every=50, patience=None)
    learner = learn(digits[0], replace(short_settings, accommodation=Slda(), training=brief), seed=0)
    with pytest.raises(DataError, match="5 different images or more, got 4"):
        learner.accommodate(of(data.train, 6)[:4], 6, least=1)


def test_a_label_that_exists_already_is_refused(learner, data):
    with pytest.raises(SettingsError, match="class 2 is known already"):
        learner.accommodate(of(data.train, 6), 2)


@pytest.mark.parametrize("label", [None, float("nan"), [6]])
def test_what_is_no_name_is_refused(learner, data, label):
    with pytest.raises(SettingsError, match="a class must have one name"):
        learner.accommodate(of(data.train, 6), label)


def test_the_answer_for_novel_samples_is_no_name(learner, data):
    with pytest.raises(SettingsError, match="-1 is the answer for novel samples"):
        replace(learner, novel_label=-1).accommodate(of(data.train, 6), -1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.expand(-1, 3, -1, -1), "convert them to grey"),
        (lambda x: x.flatten(1), "the model was trained on"),
        (lambda x: x[:, 0], "the model was trained on"),
        (lambda x: x[..., :0], "no values in it"),
        (lambda x: x.float() / 255 / torch.zeros(()), "NaN or infinity"),
        (lambda x: x.float(), "must lie in 0-1"),
        (lambda x: x.double() / 255, "must be float32"),
    ],
    ids=["channels", "vectors", "no channel", "empty", "NaN", "range", "type"],
)
def test_images_of_another_kind_are_refused(learner, data, change, message):
    with pytest.raises(DataError, match=message):
        learner.accommodate(change(of(data.train, 6)), 6)


def test_images_of_a_known_class_given_as_new_warn(learner, data):
    images = of(data.test, 2)
    known = r"\d+ of the 53 images given as 'two' look like the known class 2"
    with pytest.warns(UserWarning, match=known) as warned:
        learner.accommodate(images, "two")
    assert {each.filename for each in warned} == {__file__}  # where the caller can look


def test_images_of_several_known_classes_given_as_one_new_class_warn_of_each(learner, data):
    some = [of(data.test, label)[:20] for label in range(4)]  # no class has half of them
    with pytest.warns(UserWarning, match=r"given as 'all' look like known classes: ") as warned:
        learner.accommodate(torch.cat(some), "all")
    assert all(re.search(rf"\b{label} \(\d+\)", str(warned[0].message)) for label in range(4))


@pytest.mark.parametrize("way", [Gaussian(), Slda()], ids=lambda way: way.kind)
def test_an_image_passes_the_network_once_or_not_at_all_where_its_features_are_known(
    digits, short_settings, data, monkeypatch, way
):
    brief = replace(short_settings.training, steps=50, check_every=50, patience=None)
    learner = learn(digits[0], replace(short_settings, accommodation=way, training=brief), seed=0)
    images, passed, whole = of(data.train, 6), [], Network.views

    def counting(self, inputs):
        passed.append(len(inputs))
        return whole(self, inputs)

    views = learner.views(images)
    monkeypatch.setattr(Network, "views", counting)
    once = learner.accommodate(images, 6)
    assert sum(passed) == len(images)
    passed.clear()
    again = learner.accommodate(images, 6, features=views)
    assert passed == []
    assert equal(once, again, digits[2].inputs)


def test_a_new_class_with_some_strays_does_not_warn(learner, data):
    mixed = torch.cat([of(data.train, 6)[:60], of(data.train, 2)[:20]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learner.accommodate(mixed, 6).classes[-1] == 6


# Forgetting -----------------------------------------------------------------------------------------------


def test_unlearning_a_class_taken_in_gives_back_the_learner_before(learner, grown, data):
    back = grown.unlearn(6)
    assert back.classes == learner.classes
    assert equal(back, learner, data.test.inputs)
    assert torch.equal(back.class_scores(data.test.inputs), learner.class_scores(data.test.inputs))
    assert back.report["last_change"] == {"kind": "unlearned", "name": 6}
    assert grown.classes[-1] == 6


def test_unlearning_one_of_two_classes_gives_the_learner_of_the_other(learner, grown, data):
    both = grown.accommodate(of(data.train, 7), 7)
    only = learner.accommodate(of(data.train, 7), 7)
    assert equal(both.unlearn(6), only, data.test.inputs)


def test_unlearning_leaves_no_trace_in_what_counts_as_drift(learner, data):
    new = learner.accommodate(of(data.train, 6) // 4, "dark")
    strange = of(data.test, 7) // 4
    assert torch.equal(new.unlearn("dark").statistics.unlike(strange), learner.statistics.unlike(strange))


def test_unlearning_a_taught_class_warns_and_it_is_given_no_more(learner, data):
    with pytest.warns(UserWarning, match="the network was trained on 2"):
        new = learner.unlearn(2)
    assert new.classes == (0, 1, 3)
    assert new.taught == (0, 1, None, 3)  # the head keeps its row, which is no class's any more
    assert 2 not in names_given(new, data.test.inputs)
    assert new.judge(of(data.test, 2)).novel.float().mean() > 0.8


def test_a_class_taken_in_under_the_name_of_a_taught_one_is_unlearned_without_warning(learner, data):
    with pytest.warns(UserWarning, match="the network was trained on 2"):
        without = learner.unlearn(2)
    again = without.accommodate(of(data.train, 6), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.unlearn(2).classes == (0, 1, 3)


def test_two_classes_must_remain(learner):
    with pytest.warns(UserWarning, match="trained on"):
        two = learner.unlearn(0).unlearn(1)
    with pytest.raises(SettingsError, match="two classes must remain; without 3 there would be one"):
        two.unlearn(3)


# Names ----------------------------------------------------------------------------------------------------


def test_a_rename_changes_the_name_alone(learner, grown, data):
    new = grown.rename(6, "six").rename(0, "zero")
    assert new.classes == ("zero", 1, 2, 3, "six")
    assert new.taught == ("zero", 1, 2, 3)
    assert new.report["last_change"] == {"kind": "renamed", "from": 0, "to": "zero"}
    swap = {6: "six", 0: "zero"}
    expected = [swap.get(name, name) for name in names_given(grown, data.test.inputs)]
    assert names_given(new, data.test.inputs) == expected
    assert torch.equal(new.judge(data.test.inputs).score, grown.judge(data.test.inputs).score)
    assert grown.classes == (0, 1, 2, 3, 6)


def test_a_rename_to_itself_changes_nothing(learner):
    assert learner.rename(1, 1) is learner


def test_a_merged_class_is_predicted_as_the_other(learner, grown, data):
    new = grown.merge(6, 1)
    assert new.classes == (0, 1, 2, 3)
    assert new.report["last_change"] == {"kind": "merged", "from": 6, "to": 1}
    expected = [1 if name == 6 else name for name in names_given(grown, data.test.inputs)]
    assert names_given(new, data.test.inputs) == expected
    assert expected.count(1) > names_given(grown, data.test.inputs).count(1)
    assert torch.equal(new.judge(data.test.inputs).score, grown.judge(data.test.inputs).score)
    assert new.class_scores(data.test.inputs).shape[1] == 4


def test_after_merging_a_taught_class_into_a_later_one_positions_fit_names(grown, data):
    new = grown.merge(0, 6)
    assert new.classes == (1, 2, 3, 6)
    expected = [6 if name == 0 else name for name in names_given(grown, data.test.inputs)]
    assert names_given(new, data.test.inputs) == expected
    again = new.accommodate(of(data.train, 7), 7)
    assert again.classes == (1, 2, 3, 6, 7)
    assert names_given(again, of(data.test, 7)).count(7) > 40
    assert names_given(again, of(data.test, 0)).count(6) > 40


def test_unlearning_a_merged_class_forgets_both_parts(learner, data):
    new = learner.accommodate(of(data.train, 6), 6).accommodate(of(data.train, 7), 7).merge(7, 6)
    assert equal(new.unlearn(6), learner, data.test.inputs)


@pytest.mark.parametrize(
    "change",
    [
        lambda learner: learner.unlearn(8),
        lambda learner: learner.rename(8, 9),
        lambda learner: learner.merge(8, 1),
        lambda learner: learner.merge(1, 8),
    ],
    ids=["unlearn", "rename", "merge", "merge into"],
)
def test_a_class_that_is_not_there_is_refused(learner, change):
    with pytest.raises(SettingsError, match="unknown class '8'"):
        change(learner)


def test_a_rename_to_a_known_name_is_refused(learner):
    with pytest.raises(SettingsError, match="class 3 is known already"):
        learner.rename(1, 3)


def test_a_method_that_trains_cannot_merge(learner):
    settings = replace(learner.settings, accommodation=Penalty())
    entry, context = detector_beside(learner.network, {}, settings, learner.classes)
    trains = replace(learner, settings=settings, detector=entry.fit(context, ()))
    with pytest.raises(AccommodationError, match="'penalty' has one row of weights for a class"):
        trains.merge(1, 2)


def test_copies_of_images_change_nothing_but_a_warning(learner, data):
    images = of(data.train, 6)[:20]
    once = learner.accommodate(images, 6)
    with pytest.warns(UserWarning, match="60 of the 80 images of 6 are copies"):
        often = learner.accommodate(images.repeat(4, 1, 1, 1), 6)
    inputs = data.test.inputs
    assert torch.equal(often.judge(inputs).score, once.judge(inputs).score)
    assert torch.equal(often.detector.thresholds, once.detector.thresholds)


@pytest.mark.filterwarnings("ignore:.* are copies")
def test_one_image_many_times_is_one_image(learner, data):
    with pytest.raises(DataError, match="got 1 of class 6"):
        learner.accommodate(of(data.train, 6)[:1].repeat(30, 1, 1, 1), 6)


def test_images_that_differ_by_next_to_nothing_still_give_a_threshold(learner, data, tmp_path):
    images = of(data.train, 6)[:1].repeat(30, 1, 1, 1)
    images[:, 0, 0, 0] = torch.arange(30, dtype=torch.uint8)
    new = learner.accommodate(images, 6)
    assert new.detector.thresholds.isfinite().all()
    new.save(tmp_path / "m")
    assert Learner.load(tmp_path / "m", "cpu").classes == new.classes


def test_the_history_follows_a_class_through_its_names(learner, data):
    new = learner.accommodate(of(data.train, 6), "novel-1").rename("novel-1", "six")
    assert [note["class"] for note in new.report["taken_in"]] == ["six"]
    assert new.unlearn("six").report["taken_in"] == []

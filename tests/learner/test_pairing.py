"""Pairs of a detector and a learner: which are refused and why, and that the others work throughout."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn.base import clone

from shels.config import OWN, Adam, AgsCl, MeanMinusSd, NetworkSettings, Settings, TrainingSettings
from shels.config.presets import DEFAULT
from shels.data.samples import Samples
from shels.detection.registry import SCORES
from shels.errors import AccommodationError, SettingsError
from shels.estimator import OpenWorldClassifier
from shels.learner.learner import Learner, learn
from shels.learner.pairing import detector_name, groups, in_words, paired, score_name
from shels.learning.registry import LEARNERS

# Worked out by hand: scores of the last layer follow learners that give it a row for each class; scores that
# remember features follow those that leave features as they are; learners that keep samples fit anything
# anew. Nothing follows without the old classes' samples where a score is a mean over them all.
KEEPING = {"gdumb", "shels-gdumb", "joint"}
GROWING = {"proximal", "penalty", "ags-cl", "ewc", "lwf", "fine-tune"} | KEEPING
FROZEN = {"gaussian", "maha", "slda", "fecam", "ranpac"} | KEEPING
ALLOWED = {
    **dict.fromkeys(("msp", "max-logit", "energy", "gen", "ash", "shels"), GROWING),
    **dict.fromkeys(("knn", "mahalanobis", "mahalanobis-layers", "relative-mahalanobis"), FROZEN),
    **dict.fromkeys(("fused", "fused-learned"), FROZEN),
    **dict.fromkeys(("react", "vim", "fdbd", "openmax"), KEEPING),
    "odin": set(),
    "gaussian": {"gaussian"},
}


def pair(learner, detector, base=DEFAULT):
    return replace(base, accommodation=LEARNERS[learner].settings(), detector=detector)


def test_every_detector_has_its_place_in_the_table():
    assert set(ALLOWED) == {*SCORES, "gaussian"}


@pytest.mark.parametrize("detector", ALLOWED)
def test_a_detector_goes_with_its_learners_and_refuses_the_others_with_a_reason(detector):
    for learner in LEARNERS:
        if learner in ALLOWED[detector]:
            assert detector_name(pair(learner, detector)) == detector
            continue
        with pytest.raises(SettingsError) as refused:
            score_name(pair(learner, detector))
        opening, reason = str(refused.value).split(": ", 1)
        assert opening == f"detector {detector} does not go with learner {learner}"
        assert len(reason) > 20
        named = reason.rsplit("goes with" if detector != "gaussian" else "with learner", 1)[1]
        partners = {word.strip(": ") for word in named.replace(" alone", "").split(",")}
        assert partners == (ALLOWED[detector] or {"none"})


def test_every_learner_has_a_detector_of_its_own():
    own = {name: detector_name(pair(name, OWN)) for name in LEARNERS}
    assert own["gaussian"] == "gaussian"
    assert own["penalty"] == own["proximal"] == own["shels-gdumb"] == "shels"
    assert own["ewc"] == "max-logit"
    assert all(name in ALLOWED[detector] for name, detector in own.items())
    assert [score_name(pair(name, OWN)) for name in ("gaussian", "penalty")] == [OWN, OWN]
    assert score_name(pair("penalty", "shels")) == OWN  # the same by its name


def test_the_groups_are_all_detectors_with_their_learners():
    told = [(detector, set(learners)) for detectors, learners in groups() for detector in detectors]
    assert dict(told) == ALLOWED
    assert len(told) == len(ALLOWED)
    assert groups()[-1] == (["odin"], [])


def test_names_are_laid_over_settings_and_what_is_not_named_stays():
    assert paired(DEFAULT) == DEFAULT
    assert paired(DEFAULT, detector="knn") == replace(DEFAULT, detector="knn")
    ordinary = paired(DEFAULT, "ewc", "energy")
    assert (ordinary.network.head, ordinary.training.alpha) == ("linear", 0.0)
    assert in_words(ordinary) == "classes are named by ewc, novel samples are told by energy"
    assert in_words(DEFAULT) == "classes are named and novel samples are told by gaussian"


def test_a_learner_that_is_there_already_keeps_its_own_numbers():
    settings = replace(DEFAULT, accommodation=AgsCl(mu=0.5))
    assert paired(settings, "ags-cl").accommodation == AgsCl(mu=0.5)


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        ({"learner": "gausian"}, "unknown learner 'gausian'; did you mean 'gaussian'"),
        ({"detector": "mahalonobis"}, "unknown detector 'mahalonobis'; did you mean 'mahalanobis'"),
        ({"learner": "ewc", "detector": "knn"}, "detector knn does not go with learner ewc"),
        ({"detector": "energy"}, "detector energy does not go with learner gaussian"),
    ],
)
def test_wrong_names_and_pairs_are_refused(names, meant):
    with pytest.raises(SettingsError, match=meant):
        paired(DEFAULT, **names)


# Pairs that work ------------------------------------------------------------------------------------------

TINY = Settings(
    NetworkSettings("vectors"),
    TrainingSettings(Adam(3e-3), batch_size=32, steps=60, check_every=30),
    MeanMinusSd(k=2.0),
)
PAIRS = [
    ("gaussian", "knn"),
    ("gaussian", "fused"),
    ("gdumb", "fused"),
    ("ranpac", "fused-learned"),
    ("slda", "mahalanobis"),
    ("fecam", "relative-mahalanobis"),
    ("ewc", "max-logit"),
    ("penalty", "msp"),
    ("proximal", "energy"),
    ("gdumb", "energy"),
    ("joint", "vim"),
    ("shels-gdumb", "shels"),
]
QUICK = {
    "penalty": {"beta": 1.0, "rate_divisor": 1.0, "epochs": 60},
    "proximal": {"steps": 100, "grow": 130},  # more than are free
    "gdumb": {"share": 0.3},
    "shels-gdumb": {"share": 0.3, "learning_rate": 3e-3},
}
"""What learners need to take in a class of the toy problem."""


def cloud(classes, n, seed):
    """Samples of n vectors for each class, about corners of a cube far from each other."""
    draws = torch.Generator().manual_seed(seed)
    corners = torch.eye(6)[:, :6] * 4
    labels = torch.arange(len(classes)).repeat_interleave(n)
    rows = corners[torch.tensor(classes)[labels]] + 0.4 * torch.randn(len(labels), 6, generator=draws)
    return Samples(rows, labels, tuple(classes), origin="cloud")


@pytest.fixture(scope="module")
def taught():
    """Return a function that gives the learner of a pair, before and after it took in class 3."""
    made = {}

    def get(name, detector):
        if (name, detector) not in made:
            settings = paired(TINY, name, detector)
            quick = replace(settings.accommodation, **QUICK.get(name, {}))
            settings = replace(settings, accommodation=quick)
            before = learn(cloud([0, 1, 2], 60, 0), settings, seed=0, device="cpu")
            made[name, detector] = before, before.accommodate(cloud([3], 60, 1).inputs, 3)
        return made[name, detector]

    return get


pairs = pytest.mark.parametrize(("name", "detector"), PAIRS)


@pairs
def test_a_pair_knows_its_classes_and_notices_a_new_one(taught, name, detector):
    before, _ = taught(name, detector)
    assert (before.detector.name, before.detector.is_learner) == (detector, False)
    measured = before.evaluate(cloud([0, 1, 2], 40, 2), cloud([3], 40, 3))
    assert measured["closed_set_accuracy"] > 0.95
    assert measured["auroc"] > 0.8


@pairs
def test_a_pair_takes_a_class_in_and_names_it(taught, name, detector):
    _, after = taught(name, detector)
    assert after.classes == (0, 1, 2, 3)
    assert len(after.detector.thresholds) == 4
    assert after.detector.thresholds.isfinite().all()
    verdicts = after.judge(cloud([3], 40, 4).inputs)
    assert float((verdicts.predicted == 3).float().mean()) > 0.9
    assert float((~verdicts.novel).float().mean()) > 0.5


@pairs
def test_a_pair_that_was_loaded_gives_the_same_verdicts(taught, name, detector, tmp_path):
    inputs = cloud([0, 1, 2, 3, 4], 10, 5).inputs
    for number, learner in enumerate(taught(name, detector)):
        learner.save(tmp_path / str(number))
        again = Learner.load(tmp_path / str(number), "cpu")
        assert again.settings == learner.settings
        for field in ("predicted", "score", "threshold", "p_value"):
            assert torch.equal(getattr(again.judge(inputs), field), getattr(learner.judge(inputs), field))
        assert torch.allclose(again.probabilities(inputs), learner.probabilities(inputs))


def test_a_class_that_fused_scores_took_in_is_unlearned_exactly(taught, tmp_path):
    before, after = taught("gaussian", "fused")
    back, inputs = after.unlearn(3), cloud([0, 1, 2, 3, 4], 10, 5).inputs
    assert (back.classes, back.taught) == (before.classes, before.taught)
    for field in ("predicted", "score", "threshold", "p_value"):
        assert torch.equal(getattr(back.judge(inputs), field), getattr(before.judge(inputs), field))
    back.save(tmp_path / "m")
    assert torch.equal(Learner.load(tmp_path / "m", "cpu").judge(inputs).score, before.judge(inputs).score)


def test_fused_scores_forget_a_class_that_the_network_was_trained_on(taught, tmp_path):
    before, _ = taught("gaussian", "fused")
    fewer, inputs = before.unlearn(1), cloud([0, 1, 2], 30, 5).inputs
    assert fewer.taught == (0, None, 2)
    judged = fewer.judge(inputs)
    assert float(judged.novel[30:60].float().mean()) > 0.8
    assert float((~judged.novel[:30]).float().mean()) > 0.7
    fewer.save(tmp_path / "m")
    assert torch.equal(Learner.load(tmp_path / "m", "cpu").judge(inputs).novel, judged.novel)


@pytest.mark.parametrize(
    ("name", "detector"), [("gaussian", "knn"), ("gaussian", "fused"), ("ewc", "max-logit")]
)
def test_a_loaded_pair_can_take_in_the_next_class(taught, name, detector, tmp_path):
    _, after = taught(name, detector)
    after.save(tmp_path / "m")
    more = cloud([4], 60, 6).inputs
    told = [each.accommodate(more, 4).judge(more) for each in (after, Learner.load(tmp_path / "m", "cpu"))]
    assert torch.equal(told[0].predicted, told[1].predicted)
    assert torch.equal(told[0].score, told[1].score)
    assert float((told[0].predicted == 4).float().mean()) > 0.9


def test_a_pair_says_that_it_cannot_unlearn_or_merge_and_can_rename(taught):
    _, after = taught("gaussian", "knn")
    for change in (lambda: after.unlearn(0), lambda: after.merge(0, 1)):
        with pytest.raises(AccommodationError, match="detector knn does not"):
            change()
    renamed = after.rename(3, "three")
    assert renamed.classes == (0, 1, 2, "three")
    inputs = cloud([3], 5, 7).inputs
    assert torch.equal(renamed.judge(inputs).score, after.judge(inputs).score)


def test_units_that_a_new_class_brings_are_seen_by_the_score_too(taught):
    before, after = taught("proximal", "energy")
    widths = [each.detector.score.head.width for each in (before, after)]
    assert widths[1] > widths[0]
    assert after.detector.known.means.shape == (4, widths[1])
    assert not after.detector.known.means[:3, widths[0] :].any()


def test_a_classifier_in_python_takes_a_pair_by_its_settings():
    settings, known = paired(TINY, "slda", "knn"), cloud([0, 1, 2], 60, 0)
    made = clone(OpenWorldClassifier(settings=settings, random_state=0, device="cpu"))
    assert made.get_params()["settings"] == settings
    made.fit(known.inputs.numpy(), known.labels.numpy())
    assert made.learner_.detector.name == "knn"
    made.accommodate(cloud([3], 60, 1).inputs.numpy(), 3)
    assert (made.predict(cloud([3], 40, 4).inputs.numpy()) == 3).mean() > 0.5


def test_learning_refuses_a_pair_before_it_looks_at_the_samples():
    settings = pair("ewc", "knn", TINY)
    with pytest.raises(SettingsError, match="does not go with"):
        learn(cloud([0], 2, 0), settings, seed=0, device="cpu")

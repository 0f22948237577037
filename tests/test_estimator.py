from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import shels
from shels import OpenWorldClassifier
from shels.errors import DataError, SettingsError

NOVELTY = "decision_function tells known from novel, as in outlier detectors, not one class from another"
EXPECTED_FAILURES = {
    "check_classifiers_train": NOVELTY,
    "check_classifiers_classes": NOVELTY,
    "check_decision_proba_consistency": NOVELTY,
    "check_methods_subset_invariance": "float32 sums differ in the last digit with the size of the batch",
}


FEW = pytest.mark.filterwarnings("ignore:.*held-out scores cannot mark a share")  # small data, as meant


@FEW
@parametrize_with_checks(
    [OpenWorldClassifier(random_state=0, max_steps=300)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_the_estimator_follows_scikit_learn(estimator, check):
    check(estimator)


def images(classes=(0, 1, 2, 3), n=240):
    bunch = load_digits()
    chosen = np.isin(bunch.target, classes)
    return bunch.images[chosen][:n] / 16, bunch.target[chosen][:n]


@pytest.fixture(scope="module")
def fitted():
    return OpenWorldClassifier(random_state=0, max_steps=300).fit(*images())


def test_predict_gives_classes_and_minus_one_for_novel(fitted):
    known, labels = images(n=600)
    assert (fitted.predict(known[240:]) == labels[240:]).mean() > 0.8
    assert (fitted.predict(images((6, 7))[0]) == -1).mean() > 0.4
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    assert fitted.novel_label_ == -1


def test_decision_function_is_over_zero_exactly_for_known_verdicts(fitted):
    everything = np.concatenate([images()[0], images((6, 7))[0]])
    assert ((fitted.decision_function(everything) > 0) == (fitted.predict(everything) != -1)).all()


def test_class_scores_score_samples_and_probabilities_agree(fitted):
    x = images()[0]
    scores = fitted.class_scores(x)
    assert scores.shape == fitted.predict_proba(x).shape == (len(x), 4)
    known = fitted.predict(x) != -1
    assert (scores.argmax(axis=1)[known] == fitted.predict(x)[known]).all()
    assert np.allclose(
        fitted.score_samples(x) - fitted.decision_function(x),
        [part.threshold.float() for part in np.array(fitted.learner_.detector.parts)[scores.argmax(axis=1)]],
    )
    assert (scores.argmax(axis=1) == fitted.predict_proba(x).argmax(axis=1)).all()
    assert np.allclose(fitted.predict_proba(x).sum(axis=1), 1)


def test_strings_are_answered_with_strings_and_novel():
    x, y = images((0, 1))
    names = np.array(["zero", "one"])[y]
    clf = OpenWorldClassifier(random_state=0, max_steps=200).fit(x, names)
    assert clf.novel_label_ == "novel"
    answers = set(clf.predict(np.concatenate([x, images((6, 7))[0]])))
    assert answers == {"zero", "one", "novel"}


def test_a_novel_label_that_is_a_class_is_refused_before_training():
    x, y = images((0, 1))
    with pytest.raises(SettingsError, match="novel_label -1 is one of the classes"):
        OpenWorldClassifier().fit(x, np.where(y == 0, -1, 1))
    with pytest.raises(SettingsError, match="choose another"):
        OpenWorldClassifier(novel_label="novel").fit(x, np.array(["novel", "old"])[y])


@FEW
def test_it_works_in_a_pipeline_with_clone_and_cross_validation():
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), OpenWorldClassifier(random_state=0, max_steps=200))
    assert cross_val_score(clone(pipeline), x, y, cv=3).mean() > 0.75
    assert cross_val_score(OpenWorldClassifier(random_state=0, max_steps=100), *images(), cv=2).mean() > 0.6


def test_the_same_random_state_gives_the_same_answers():
    x, y = images((0, 1))
    scores = [OpenWorldClassifier(random_state=s, max_steps=60).fit(x, y).score_samples(x) for s in (3, 3, 4)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_a_torch_data_set_brings_its_own_labels(fitted):
    x, y = images((0, 1))
    data = torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(y))
    from_data = OpenWorldClassifier(random_state=0, max_steps=60).fit(data)
    from_arrays = OpenWorldClassifier(random_state=0, max_steps=60).fit(x, y)
    assert np.array_equal(from_data.score_samples(data), from_arrays.score_samples(x))
    with pytest.raises(SettingsError, match="without y"):
        OpenWorldClassifier().fit(data, y)


def test_save_and_load_give_the_same_answers(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = OpenWorldClassifier.load(tmp_path / "model", novel_label=99)
    x = np.concatenate([images()[0], images((6, 7))[0]])
    assert np.array_equal(loaded.decision_function(x), fitted.decision_function(x))
    assert np.array_equal(loaded.predict(x), np.where(fitted.predict(x) == -1, 99, fitted.predict(x)))
    assert loaded.classes_.tolist() == [0, 1, 2, 3]


def test_a_saved_novel_label_comes_back(tmp_path):
    x, y = images((0, 1))
    for name, labels, novel in (("a", y, "unknown"), ("b", np.where(y == 0, -1, 1), -9)):
        clf = OpenWorldClassifier(random_state=0, max_steps=60, novel_label=novel).fit(x, labels)
        clf.save(tmp_path / name)
        loaded = OpenWorldClassifier.load(tmp_path / name)
        assert loaded.novel_label_ == novel
        assert loaded.predict(x).tolist() == clf.predict(x).tolist()


def test_images_of_another_size_are_resized_at_prediction(fitted):
    x, y = images()
    larger = x.repeat(2, axis=1).repeat(2, axis=2)
    assert (fitted.predict(larger) == y).mean() > 0.6


def test_accept_sets_the_share_of_known_samples_accepted():
    x, y = images((0, 1, 2, 3, 4), n=900)
    order = np.random.default_rng(0).permutation(900)  # the data are sorted by writer
    x, y = x[order], y[order]
    loose, strict = (
        OpenWorldClassifier(random_state=0, max_steps=300, accept=share).fit(x[:600], y[:600])
        for share in (0.95, 0.6)
    )
    assert (loose.decision_function(x[600:]) > 0).mean() > 0.88
    assert 0.45 < (strict.decision_function(x[600:]) > 0).mean() < 0.75


def test_the_papers_preset_has_the_papers_rule():
    x, y = images((0, 1))
    clf = OpenWorldClassifier("paper", random_state=0, max_steps=400).fit(x, y)
    assert clf.learner_.settings.rule.kind == "mean-minus-sd"
    assert clf.learner_.settings.training.optimiser.learning_rate == 1e-4


def test_a_network_of_ones_own_is_used():
    chain = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
    x, y = images((0, 1))
    clf = OpenWorldClassifier(network=chain, random_state=0, max_steps=100).fit(x, y)
    assert clf.class_scores(x).shape == (len(x), 2)
    assert clf.learner_.network.head.weight.shape == (2, 16)
    assert clone(clf).network[1].out_features == 16


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.full((4, 8, 8), np.nan), "NaN"),
        (np.full((4, 8, 8), 300.0), "0-1"),
        (np.zeros((4, 8, 8, 5)), "channels"),
        (np.zeros((0, 8, 8)), "empty"),
    ],
)
def test_bad_images_are_refused_with_the_reason(fitted, x, message):
    with pytest.raises(DataError, match=message):
        fitted.predict(x)
    with pytest.raises(ValueError, match=message):
        OpenWorldClassifier().fit(x, np.arange(len(x)) % 2)


def test_labels_of_mixed_kinds_come_back_as_they_went_in():
    x, y = images((0, 1))
    labels = np.empty(len(y), dtype=object)
    labels[:] = [(1, "a")[value] for value in y]
    clf = OpenWorldClassifier(random_state=0, max_steps=100).fit(x, labels)
    assert set(clf.classes_) == {1, "a"}
    assert {type(answer) for answer in clf.predict(x)} <= {int, str}
    assert (clf.predict(x) == labels).mean() > 0.8


class Sized(torch.utils.data.Dataset):
    """Images of one size or of many, as a data set of one's own gives them."""

    def __init__(self, sides):
        x, self.labels = images((0, 1), n=60)
        self.images = [
            torch.nn.functional.interpolate(torch.tensor(image, dtype=torch.float32)[None, None], side)[0]
            for image, side in zip(x, sides * 60, strict=False)
        ]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.images[row], int(self.labels[row])


@FEW
@pytest.mark.parametrize("sides", [[12], [8, 16, 20]])
def test_a_data_set_is_brought_to_the_same_size_for_fit_and_predict(sides):
    clf = OpenWorldClassifier(random_state=0, max_steps=60, image_size=16).fit(Sized(sides))
    assert clf.learner_.preparation.shape == (1, 16, 16)
    seen = []
    real = clf.learner_.judge
    clf.learner_.judge = lambda inputs: seen.append(inputs.shape) or real(inputs)
    clf.predict(Sized(sides))
    assert seen == [(60, 1, 12, 12) if sides == [12] else (60, 1, 16, 16)]


@FEW
def test_finite_values_that_overflow_in_the_network_are_novel():
    x, y = load_iris(return_X_y=True)
    clf = OpenWorldClassifier(random_state=0, max_steps=100).fit(x, y)
    far = [[3e38, -3e38, 3e38, -3e38]]
    assert clf.predict(far).tolist() == [-1]
    assert clf.decision_function(far)[0] == -np.inf
    assert clf.predict_proba(far).sum() == pytest.approx(1)


def test_a_data_loader_is_refused_with_what_to_pass():
    loader = torch.utils.data.DataLoader(Sized([8]))
    with pytest.raises(SettingsError, match=r"fit\(loader.dataset\)"):
        OpenWorldClassifier().fit(loader)


def test_use_before_fit_says_so():
    with pytest.raises(NotFittedError):
        OpenWorldClassifier().predict(images()[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"network": "six-conv-265"}, "did you mean 'six-conv-256'"),
        ({"device": "gpu"}, "device must be"),
        ({"accept": 1.5}, "share must be"),
        ({"max_steps": 0}, "steps must be"),
        ({"random_state": -3}, "random_state must be"),
        ({"network": 5}, "network must be a name"),
        ({"settings": {}}, "settings must be a shels.config.Settings"),
        ({"novel_label": [1, 2]}, "novel_label must be one label"),
    ],
)
def test_bad_parameters_are_refused_with_the_rule(parameters, message):
    with pytest.raises(SettingsError, match=message):
        OpenWorldClassifier(**parameters).fit(*images((0, 1)))


def test_what_the_package_exports():
    assert dir(shels) == ["Learner", "OpenWorldAgent", "OpenWorldClassifier", "__version__"]
    assert shels.OpenWorldClassifier is OpenWorldClassifier
    with pytest.raises(AttributeError, match="no attribute 'Lerner'"):
        _ = shels.Lerner


def test_importing_the_package_loads_nothing_heavy():
    script = (
        "import sys, shels; print(sorted({'torch', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout == b"[]\n"

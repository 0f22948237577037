from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

from shels.config import (
    AcceptShare,
    Adam,
    Gaussian,
    MeanMinusSd,
    NetworkSettings,
    Penalty,
    Settings,
    TrainingSettings,
)
from shels.data.samples import Samples
from shels.learner.learner import Learner, learn
from shels.report import detection, trained
from shels.report.charts import model
from shels.report.drawing import Figure
from shels.report.evaluation import Decisions, Evaluation, evaluate
from shels.report.page import Gallery, Page, Section, Table, Thumbnail, html, thumbnail
from shels.report.words import percent

SETTINGS = Settings(
    network=NetworkSettings(),
    training=TrainingSettings(optimiser=Adam(3e-3), steps=120, check_every=40, batch_size=32),
    rule=MeanMinusSd(2.0),
)


def blobs(names, *, first=0, each=12, seed=0, shape=(16,)):
    """Samples around centres that lie far apart; `first` says which centre the first class has."""
    size = int(np.prod(shape))
    centres = torch.rand(60, size, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(len(names)).repeat_interleave(each)
    noise = torch.randn(len(labels), size, generator=torch.Generator().manual_seed(seed))
    inputs = (centres[first + labels] + 0.05 * noise).clamp(0, 1)
    return Samples(inputs.reshape(-1, *shape), labels, tuple(names))


def written(tmp_path, names, *, novel_names=("new",), shape=(16,), reload=False, title="A page"):
    learner = learn(blobs(names, shape=shape), SETTINGS, seed=0, device="cpu")
    if reload:
        learner.save(tmp_path / "model")
        learner = Learner.load(tmp_path / "model", device="cpu")
    known = blobs(names, seed=1, shape=shape)
    novel = blobs(novel_names, first=len(names), seed=2, shape=shape) if novel_names else None
    measures = learner.evaluate(known, novel)
    path = tmp_path / "page.html"
    detection.write(path, learner=learner, known=known, novel=novel, measures=measures, title=title)
    return path.read_text(encoding="utf-8"), measures


@pytest.fixture(scope="module")
def trained_by():
    """A short training for each method and rule, done once."""

    @cache
    def train(method, rule):
        settings = replace(SETTINGS, accommodation=method, rule=rule)
        return learn(blobs("abc", each=60), settings, seed=0, device="cpu")

    return train


class Reader(HTMLParser):
    """Every element with its attributes, and the text, as a browser would see them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words = [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


def assert_sound(text):
    """The page fetches nothing, runs nothing, describes every figure and repeats no id."""
    page = Reader(text)
    for tag, attrs in page.elements:
        assert tag not in ("script", "link", "iframe", "object", "base")
        for name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:image/png;base64,"))
        assert not any(name.startswith("on") for name in attrs)
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?(.)", text))
    assert "@import" not in text
    assert all(attrs["role"] == "img" and 0 < len(attrs["aria-label"]) < 130 for attrs in page.all("svg"))
    assert all(attrs["alt"] for attrs in page.all("img"))
    assert len(page.all("figure")) == len(page.all("svg")) + len(page.all("img"))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    return page


def test_a_share_is_shown_as_a_percentage_and_a_count_with_separators():
    table = Table(("Class", "Samples", "Right", "Nothing"), [("a", 12345, 0.9514, None)])
    page = Reader(html(Page("t", "l", [Section("s", [table])])))
    assert percent(0.9514) == "95.1\N{NO-BREAK SPACE}%"
    assert "a 12,345 95.1 % –" in page.text


def test_every_text_of_a_page_is_escaped():
    evil = "<b onclick='x'>\"&"
    blocks = [
        evil,
        Table((evil,), [(evil, evil)], evil),
        Gallery(evil, evil, [Thumbnail(b"png", (evil,))]),
        Figure("figure", lambda canvas: canvas.text(0, 0, evil), (400, 300), evil, evil),
    ]
    page = Page(evil, evil, [Section(evil, blocks)], [(evil, evil)], [Table((evil,), [(evil,)])], evil)
    reader = assert_sound(html(page))
    assert not reader.all("b")
    assert reader.text.count(evil) == 19
    assert reader.all("img")[0]["alt"] == reader.all("svg")[0]["aria-label"] == evil


def test_class_names_that_are_markup_or_formulas_appear_as_they_are(tmp_path):
    names = ["<b>bold</b>", "$\\frac{", "a & b", "速度"]
    text, _ = written(tmp_path, names, novel_names=("<script>alert(1)</script>",), title="<i>title</i>")
    page = assert_sound(text)
    assert not page.all("b")
    assert not page.all("i")
    for name in [*names, "<i>title</i>", "<script>alert(1)</script>"]:
        assert name in page.text
    assert "$\\frac{" in " ".join(page.words[page.words.index("known classes: share accepted and right") :])


def test_a_page_on_images_shows_all_figures_and_pictures(tmp_path):
    text, measures = written(tmp_path, [3, 1, 2], novel_names=(7, 5), shape=(3, 8, 8))
    page = assert_sound(text)
    assert len(page.all("svg")) == 5
    assert page.all("img")
    assert "Novel, found" in page.text
    assert "Some verdicts explained" in page.text
    assert "high-level features (" in page.text
    assert f"AUROC {measures['auroc']:.3f}" in page.text
    assert percent(measures["novel_accuracy"]).replace("\N{NO-BREAK SPACE}", " ") in page.text


def test_a_page_on_vectors_without_novel_samples_has_no_pictures_and_says_so(tmp_path):
    text, measures = written(tmp_path, ["cat", "dog"], novel_names=None)
    page = assert_sound(text)
    assert not page.all("img")
    assert "No sample of a novel class was shown" in page.text
    assert "AUROC" not in page.text
    assert percent(measures["acceptance"]).replace("\N{NO-BREAK SPACE}", " ") in page.text


def test_a_page_on_an_empty_set_of_novel_samples_is_one_without_them(tmp_path):
    learner = learn(blobs("ab"), SETTINGS, seed=0, device="cpu")
    known, none = blobs("ab", seed=1), blobs("cd").take(torch.zeros(0, dtype=torch.int64))
    path = tmp_path / "page.html"
    detection.write(
        path, learner=learner, known=known, novel=none, measures=learner.evaluate(known, none), title="t"
    )
    assert "No sample of a novel class was shown" in Reader(path.read_text("utf-8")).text


def test_a_page_on_43_classes_names_every_class_in_the_bars_and_in_the_matrix(tmp_path):
    names = [f"sign {i}" for i in range(43)]
    text, _ = written(tmp_path, names, novel_names=("x", "y"))
    page = assert_sound(text)
    assert all(page.words.count(name) >= 4 for name in names)  # bars, table, and both sides of the matrix


def test_a_learner_from_disk_gives_the_same_page_as_the_one_that_was_trained(tmp_path):
    (tmp_path / "a").mkdir()
    fresh = re.sub(r" in \d+ seconds?|on 20.*?UTC", "", written(tmp_path / "a", [0, 1, 2])[0])
    loaded = re.sub(r" in \d+ seconds?|on 20.*?UTC", "", written(tmp_path, [0, 1, 2], reload=True)[0])
    assert fresh == loaded


def test_a_learner_without_a_record_of_its_training_still_gets_a_page(tmp_path):
    learner = learn(blobs("ab"), SETTINGS, seed=0, device="cpu")
    learner.report = {}
    known = blobs("ab", seed=1)
    path = tmp_path / "page.html"
    detection.write(
        path, learner=learner, known=known, novel=None, measures=learner.evaluate(known), title="t"
    )
    page = assert_sound(path.read_text("utf-8"))
    assert not any("Training curve" in attrs["aria-label"] for attrs in page.all("svg"))


def test_a_known_class_without_test_samples_is_left_out_of_bars_and_matrix(tmp_path):
    learner = learn(blobs("abc"), SETTINGS, seed=0, device="cpu")
    known = blobs("abc", seed=1)
    known = known.take(known.labels != 1)
    path = tmp_path / "page.html"
    detection.write(
        path, learner=learner, known=known, novel=None, measures=learner.evaluate(known), title="t"
    )
    page = assert_sound(path.read_text("utf-8"))
    assert "b" not in page.words
    assert any("exclusivity between 2 classes" in attrs["aria-label"] for attrs in page.all("svg"))


def test_an_empty_group_of_pictures_says_that_it_is_empty():
    text = Reader(html(Page("t", "l", [Section("s", [Gallery("Novel, missed", "none of 12")])]))).text
    assert "Novel, missed none of 12" in text


@pytest.mark.parametrize(
    ("shape", "size"), [((1, 8, 8), (128, 128)), ((3, 28, 20), (80, 112)), ((3, 300, 200), (85, 128))]
)
def test_a_thumbnail_is_small_and_keeps_its_proportions(shape, size):
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    assert Image.open(io.BytesIO(thumbnail(image))).size == size


def test_a_thumbnail_of_few_pixels_keeps_each_as_a_square():
    image = np.arange(64, dtype=np.uint8).reshape(1, 8, 8)
    picture = np.asarray(Image.open(io.BytesIO(thumbnail(image))))
    assert (picture == np.kron(image[0], np.ones((16, 16), dtype=np.uint8))).all()


def decisions(scores):
    values = np.array(scores)
    return Decisions(None, None, values, values - 1, values <= 1, None)


def test_the_roc_figure_gives_the_area_that_counting_pairs_gives():
    known, novel = decisions([3.0, 2.0, 1.0]), decisions([2.0, 0.0])
    (figure,) = model.roc(Evaluation(None, known, novel, {}))
    assert "AUROC 0.750" in figure.alt  # 4 of 6 pairs, and a half for the tie
    assert "AUROC 0.750" in Reader(figure.svg()).text


def test_a_histogram_has_an_edge_at_the_threshold():
    for values in (np.array([-1.0, 0.5, 2.0]), np.array([3.0, 4.0]), np.zeros(3)):
        edges = model._bins(values)
        assert np.isclose(edges, 0).any()
        assert edges[0] <= min(values.min(), 0)
        assert edges[-1] >= max(values.max(), 0) * 0.99


@pytest.mark.parametrize(
    ("method", "rule", "said"),
    [
        (Gaussian(), AcceptShare(0.9), "linear discriminant on the features that all classes share"),
        (Gaussian(), AcceptShare(0.9), "if it lies farther from that class than the class's own samples do"),
        (Gaussian(), AcceptShare(0.9), "by these features or by the high-level ones. Its score"),
        (Gaussian(distance="sum"), AcceptShare(0.9), "features and the high-level ones together. Its score"),
        (Gaussian(), AcceptShare(0.9), "set to accept 90 % of what is assigned to each class"),
        (Gaussian(), MeanMinusSd(2.0), "mean score over held-out samples less 2 standard deviations"),
        (Penalty(), MeanMinusSd(1.0), "given the class that it is most like"),
        (Penalty(), MeanMinusSd(1.0), "mean training score less one standard deviation"),
    ],
)
def test_the_page_says_by_which_rule_the_learner_decides(trained_by, method, rule, said):
    section = trained.training(trained_by(method, rule))
    words = " ".join(section.blocks).replace("\N{NO-BREAK SPACE}", " ")
    assert said in words
    assert ("linear discriminant" in words) == isinstance(method, Gaussian)
    assert ("most like" in words) == isinstance(method, Penalty)


def test_the_page_says_what_the_network_is_and_what_held_out_samples_were_for(trained_by):
    learner = trained_by(Gaussian(), AcceptShare(0.9))
    assert "to choose the best state: that of step" in trained.training(learner).blocks[0]
    training = replace(learner.settings.training, keep="last")
    for backbone, frozen, said in (
        ("timm/resnet18", True, "The network, “timm/resnet18”, left as it is, and a layer behind it ("),
        ("timm/resnet18", False, "“timm/resnet18”, most of it trained too, and a layer"),
        ("own", False, "The network, a module of the user's own, most of it"),
    ):
        network = replace(learner.settings.network, backbone=backbone, frozen=frozen)
        settings = replace(learner.settings, network=network, training=training)
        words = trained.training(replace(learner, settings=settings)).blocks[0]
        assert said in words
        assert "held out to set the thresholds; the last weights count, with" in words


def test_exclusivity_is_shown_over_the_taught_classes_and_later_ones_are_counted(trained_by):
    learner = trained_by(Gaussian(), AcceptShare(0.9))
    later = learner.accommodate(blobs(["new"], first=3).inputs, "new")
    known = blobs(["b", "new", "c", "a"], seed=1)
    section = trained.inside(evaluate(later, known, None, later.evaluate(known)))[0]
    assert "exclusivity between 3 classes" in section.blocks[-1].alt
    assert "was taught 3 classes. It took in 1 class later." in trained.training(later).blocks[0]
    assert "later" not in trained.training(learner).blocks[0]

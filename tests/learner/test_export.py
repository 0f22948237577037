"""Exported files: onnxruntime, which knows nothing of shels, gives the same verdicts."""

from __future__ import annotations

import builtins
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

from shels import OpenWorldClassifier
from shels.config import Adam, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.detection.protocol import KnownSamples, Labelled
from shels.errors import DataError, ExportError, MissingExtraError, SettingsError
from shels.learner import export as exporting
from shels.learner import graph, onnx_file
from shels.learner.assessment import file_verdicts, inputs_to_check
from shels.learner.learner import Learner, learn, with_detector
from shels.learner.pairing import paired
from shels.learning.protocol import views_of
from shels.model.head import CosineHead
from shels.model.networks import Network

DOCS = Path(__file__).parents[2] / "docs" / "export.md"
BEFORE = Path(__file__).parents[1] / "fixtures" / "before"
OUTPUTS = ["class_index", "novel", "score", "threshold", "p_value", "class_scores"]


class Backbone(nn.Module):
    """Stands in for a network of other people's: it computes in its own way, and is no chain of layers."""

    origin = SimpleNamespace(name="stand-in", licence="Apache-2.0")

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)

    def forward(self, x):
        x = nn.functional.relu6(self.norm(self.stem(x)))
        return (x + self.depthwise(x)).mean(dim=(2, 3))


def on_backbone(training):
    """Make a learner whose network begins with such a module, its weights as they come."""
    torch.manual_seed(0)
    network = Network(nn.Sequential(Backbone(), nn.Linear(8, 32), nn.ReLU()), CosineHead(32, 4))
    nn.init.normal_(network.head.weight)
    preparation = Preparation((1, 8, 8))

    def labelled(places):
        part = training.take(places)
        return Labelled(views_of(network, part.inputs, preparation), part.labels)

    even = torch.arange(len(training)) % 2 == 0
    samples = KnownSamples(labelled(even), labelled(~even))
    from tests.conftest import SHORT

    return with_detector(network, training.classes, samples, preparation, SHORT, 0)


@pytest.fixture(scope="module")
def short():
    from tests.conftest import SHORT

    return replace(SHORT, training=TrainingSettings(Adam(1e-3), batch_size=32, steps=60, check_every=60))


@pytest.fixture(scope="module")
def every_digit(digits):
    return torch.cat([part.inputs for part in digits])


@pytest.fixture(scope="module", params=["gaussian", "shels", "fused", "vectors", "backbone", "eras"])
def exported(request, learner, digits, every_digit, short, tmp_path_factory):
    """Give a learner of each kind, its file open in onnxruntime, and inputs for both."""
    training, inputs, made = digits[0], every_digit, learner
    if request.param == "shels":
        made = learn(training, paired(short, "penalty"), seed=0, device="cpu")
    elif request.param == "fused":
        made = learn(training, paired(short, None, "fused"), seed=0, device="cpu")
    elif request.param == "backbone":
        made = on_backbone(training)
    elif request.param == "eras":  # thresholds set while there were fewer classes
        made = Learner.load(BEFORE / "ewc-msp", "cpu")
        inputs = inputs_to_check(made, "digits")
    elif request.param == "vectors":
        inputs = inputs.flatten(1).float()
        rows = Samples(training.inputs.flatten(1).float(), training.labels, training.classes)
        made = learn(rows, short, seed=0, device="cpu")
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    report = made.export(path, check=inputs)
    session = onnxruntime.InferenceSession(path)
    return SimpleNamespace(
        kind=request.param, learner=made, path=path, report=report, session=session, x=inputs
    )


def answers(session, inputs):
    return session.run(None, {session.get_inputs()[0].name: inputs.numpy()})


def test_onnxruntime_gives_the_same_verdicts_on_every_digit(exported):
    own = exported.learner.judge(exported.x)
    index, novel, score, threshold, p_value, scores = answers(exported.session, exported.x)
    assert (index == own.predicted.numpy()).all()
    tied = np.isclose(own.score, own.threshold, rtol=1e-4, atol=1e-6)  # a held-out sample at its threshold
    assert tied.mean() < 0.02
    assert (novel == own.novel.numpy())[~tied].all()
    assert 0 < novel.mean() < 1
    np.testing.assert_allclose(threshold, own.threshold, rtol=1e-5)
    new = slice(
        -300, None
    )  # of the test part: held-out samples tie with themselves, and a rank is all or nothing
    assert np.isclose(score[new], own.score[new], rtol=1e-3, atol=1e-4).mean() > 0.99
    assert (p_value[new] == own.p_value[new].numpy()).mean() > 0.99
    np.testing.assert_allclose(scores, exported.learner.class_scores(exported.x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size", [1, 64])
def test_a_batch_of_any_size_is_judged_as_all_are(exported, size):
    whole = answers(exported.session, exported.x[:64])
    parts = [answers(exported.session, part) for part in torch.split(exported.x[:64], size)]
    for together, alone in zip(whole[:2], zip(*parts, strict=True), strict=False):
        assert (together == np.concatenate(alone[:64])).all()


def test_the_report_says_what_was_compared(exported):
    found = exported.report.comparison
    assert found.inputs == min(1000, len(exported.x))
    assert (found.different, found.class_agreement) == (0, 1.0)
    assert found.verdict_agreement == pytest.approx(1 - found.ties / found.inputs)
    assert found.ties < 0.02 * found.inputs
    assert exported.report.bytes == exported.path.stat().st_size
    assert list(exported.path.parent.iterdir()) == [exported.path]


def test_the_file_says_what_it_is(exported):
    notes = exported.session.get_modelmeta().custom_metadata_map
    learner = exported.learner
    assert json.loads(notes["classes"]) == list(learner.classes)
    assert json.loads(notes["rule"])["kind"] == learner.settings.rule.kind
    assert notes["detector"] == learner.detector.name
    about = json.loads(notes["input"])
    assert about["shape"] == list(learner.preparation.shape)
    assert exported.session.get_inputs()[0].name == about["name"]
    assert [each.name for each in exported.session.get_outputs()] == OUTPUTS
    np.testing.assert_allclose(json.loads(notes["thresholds"]), learner.detector.thresholds)
    assert notes.get("licence") == ("stand-in: Apache-2.0" if exported.kind == "backbone" else None)
    if exported.kind == "vectors":
        np.testing.assert_allclose(json.loads(notes["mean"]), learner.preparation.mean)


def test_the_loop_in_the_documentation_says_what_shels_detect_says(
    learner, every_digit, tmp_path, monkeypatch, capsys
):
    learner.export(tmp_path / "model.onnx")
    for place, row in enumerate((0, -1), 1):  # a known digit and a novel one, at another size
        pixels = Image.fromarray(every_digit[row, 0].numpy()).resize((37, 21))
        pixels.save(tmp_path / f"photo{place}.png")
    code = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]
    assert "shels" not in code
    assert len(code.splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(DOCS), "exec"), {})
    shown = capsys.readouterr().out.splitlines()
    own = file_verdicts(learner, [Path("photo1.png"), Path("photo2.png")])
    assert shown == [f"{each.source} {each.verdict} p-value {each.p_value:.4f}" for each in own]


def test_eight_bits_are_smaller_and_their_loss_is_measured(learner, every_digit, tmp_path):
    whole = learner.export(tmp_path / "whole.onnx", check=every_digit)
    for name, check in (("static.onnx", every_digit), ("dynamic.onnx", None)):
        found = learner.export(tmp_path / name, check=check, int8=True)
        assert found.precision == "int8"
        assert found.bytes < whole.bytes
        session = onnxruntime.InferenceSession(tmp_path / name)
        assert session.get_modelmeta().custom_metadata_map["precision"] == "int8"
        index, novel, *_ = answers(session, every_digit)
        own = learner.judge(every_digit)
        same = (index == own.predicted.numpy()) & (novel == own.novel.numpy())
        if check is not None:
            assert found.comparison.verdict_agreement == pytest.approx(same.mean())
        assert same.mean() > 0.9


@pytest.mark.parametrize("count", [40, 100])
def test_any_number_of_images_fixes_the_ranges_of_eight_bits(learner, every_digit, tmp_path, count):
    found = learner.export(tmp_path / "model.onnx", check=every_digit[:count], int8=True)
    assert found.comparison.verdict_agreement > 0.9


def test_a_torch_program_judges_the_same(learner, every_digit, tmp_path):
    path = tmp_path / "model.pt2"
    assert learner.export(path, check=every_digit).comparison.different == 0
    extra = {"shels.json": ""}
    module = torch.export.load(path, extra_files=extra).module()
    own = learner.judge(every_digit)
    assert torch.equal(module(every_digit)[1], own.novel)
    assert json.loads(json.loads(extra["shels.json"])["classes"]) == [0, 1, 2, 3]


def test_a_file_that_judges_otherwise_is_not_written(learner, every_digit, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"what was here before")
    real = exporting.onnx_file.judge

    def wrong(model, inputs):
        found = real(model, inputs)
        return found._replace(novel=~found.novel)

    monkeypatch.setattr(exporting.onnx_file, "judge", wrong)
    with pytest.raises(ExportError, match=r"judges otherwise than the model on 8[0-9][0-9] of 828 inputs"):
        learner.export(path, check=every_digit)
    assert path.read_bytes() == b"what was here before"


def test_verdicts_that_turn_with_the_last_digits_are_ties(learner, every_digit):
    views = learner.views(every_digit)
    own = exporting._verdicts(learner, views)
    closest = int(np.abs(own.score - own.threshold).argmin())
    limit = learner.detector.parts[own.class_index[closest]]
    moved = replace(limit, threshold=torch.tensor(float(own.score[closest]) - 1e-7))
    parts = list(learner.detector.parts)
    parts[own.class_index[closest]] = moved
    near = replace(learner, detector=replace(learner.detector, parts=tuple(parts)))
    own = exporting._verdicts(near, views)
    novel = own.novel.copy()
    novel[closest] = ~novel[closest]
    far = int(np.abs(own.score - own.threshold).argmax())
    assert exporting.compared(near, every_digit, own._replace(novel=novel)).ties == 1
    novel[far] = ~novel[far]
    found = exporting.compared(near, every_digit, own._replace(novel=novel))
    assert (found.ties, found.different) == (1, 1)


def test_a_detector_that_cannot_be_written_is_refused_with_those_that_can(digits, short, tmp_path):
    made = learn(digits[0], paired(short, "gdumb", "openmax"), seed=0, device="cpu")
    with pytest.raises(
        ExportError, match=r"detector openmax .*Detectors that can be.*: shels, gaussian, fused"
    ):
        made.export(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_cannot_be_traced_is_refused_with_the_reason(learner, tmp_path):
    class Asking(nn.Module):
        def forward(self, x):
            return x if float(x.sum()) > 0 else -x  # waits for a value, of which a graph has none

    network = Network(nn.Sequential(Asking(), *learner.network.body), learner.network.head)
    with pytest.raises(ExportError, match="cannot be written as a graph"):
        replace(learner, network=network).export(tmp_path / "model.pt2")


@pytest.mark.parametrize("name", ["model.zip", "model", "."])
def test_other_names_are_refused_before_any_work(learner, tmp_path, name, monkeypatch):
    monkeypatch.setattr(graph, "program_of", lambda *_: pytest.fail("it was traced"))
    with pytest.raises(SettingsError, match=r"must end in \.onnx or \.pt2"):
        learner.export(tmp_path / name)


def test_what_cannot_be_asked_for_is_said_before_any_work(learner, tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "program_of", lambda *_: pytest.fail("it was traced"))
    with pytest.raises(SettingsError, match="int8 is for ONNX"):
        learner.export(tmp_path / "model.pt2", int8=True)
    with pytest.raises(SettingsError, match=r"must end in \.pt2, got"):
        learner.export(tmp_path / "model.onnx", form="torch")
    with pytest.raises(SettingsError, match="unknown format 'onxn'; did you mean 'onnx'"):
        learner.export(tmp_path / "model.onnx", form="onxn")
    with pytest.raises(DataError, match="2 inputs or more"):
        learner.export(tmp_path / "model.onnx", check=torch.zeros(1, 1, 8, 8))
    with pytest.raises(DataError, match="trained on grey images"):
        learner.export(tmp_path / "model.onnx", check=torch.zeros(4, 3, 8, 8))
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(SettingsError, match="is a folder"):
        learner.export(tmp_path / "folder.onnx")


def test_a_missing_package_is_named_with_the_command_that_installs_it(learner, tmp_path, monkeypatch):
    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)

    def absent(name, *given, **named):
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr("shels.learner.onnx_file.import_module", absent)
    with pytest.raises(MissingExtraError, match=r"needs onnxruntime: pip install 'shels\[onnx\]'"):
        learner.export(tmp_path / "model.onnx")


def test_the_estimator_exports_what_it_predicts(digits, tmp_path):
    images = digits[0].inputs.permute(0, 2, 3, 1).numpy()
    classifier = OpenWorldClassifier(random_state=0, max_steps=60, device="cpu")
    classifier.fit(images, digits[0].labels.numpy())
    report = classifier.export(tmp_path / "model.onnx", check=images)
    assert report.comparison.different == 0
    index, novel, *_ = answers(onnxruntime.InferenceSession(tmp_path / "model.onnx"), digits[0].inputs)
    said = np.where(novel, -1, classifier.classes_[index])
    assert (said == classifier.predict(images)).all()


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("shape", [(1,), (8,), (3, 9), (2, 3, 100), (2, 1100)])
def test_the_written_search_finds_what_torch_finds(shape, right):
    draw = torch.Generator().manual_seed(0)
    ordered = torch.randint(0, 20, shape, generator=draw).float()
    ordered[..., 6:8] = torch.inf  # as shorter lists are filled up
    ordered = ordered.sort(dim=-1).values

    class Search(nn.Module):
        def forward(self, x):
            asked = x.expand(*shape[:-1], -1).contiguous()
            return torch.searchsorted(ordered, asked, right=right).movedim(-1, 0)

    asked = torch.cat([torch.arange(-1.0, 22, 0.5), torch.tensor([torch.inf, -torch.inf, torch.nan])])
    model = onnx_file.to_onnx(graph.traced(Search(), asked), "x", ("places",))
    assert (onnx_file.run(model, asked)[0] == Search()(asked).numpy()).all()

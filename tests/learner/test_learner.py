from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, roc_auc_score
from torch import nn

from shels.config import (
    Adam,
    AgsCl,
    Ewc,
    FineTune,
    Gdumb,
    Lwf,
    MeanMinusSd,
    Penalty,
    Proximal,
    ShelsGdumb,
    TrainingSettings,
)
from shels.data.samples import Samples
from shels.errors import ArchitectureError, DataError, ModelFileError, SettingsError
from shels.learner.learner import Learner, learn
from shels.learner.storage import file_names, signed

PARTS = ("network", "preparation", "detector", "memory", "projection")
FOREIGN = {**dict.fromkeys(PARTS, "../../etc/passwd"), "class": []}


def test_a_short_training_knows_its_digits_and_notices_others(learner, digits):
    _, test, novel = digits
    measures = learner.evaluate(test, novel)
    assert measures["closed_set_accuracy"] > 0.95
    assert measures["auroc"] > 0.85
    assert 0.88 < measures["acceptance"] <= 1


def test_measures_agree_with_scikit_learn_on_the_learners_own_verdicts(learner, digits):
    _, test, novel = digits
    measures = learner.evaluate(test, novel)
    mine, others = learner.judge(test.inputs), learner.judge(novel.inputs)
    assert measures["closed_set_accuracy"] == pytest.approx(accuracy_score(test.labels, mine.predicted))
    answers = torch.where(mine.novel, -1, mine.predicted)
    assert measures["known_accuracy"] == pytest.approx(accuracy_score(test.labels, answers))
    known = np.concatenate([np.ones(len(test)), np.zeros(len(novel))])
    expected = roc_auc_score(known, torch.cat([mine.score, others.score]).numpy())
    assert measures["auroc"] == pytest.approx(expected)
    assert measures["per_novel_class"]["6"]["rejected"] == pytest.approx(
        float(others.novel[novel.labels == 0].float().mean())
    )


def test_features_do_not_depend_on_how_they_are_batched(learner, digits):
    inputs = digits[1].inputs[:50]
    torch.testing.assert_close(
        learner.features(inputs, batch_size=7), learner.features(inputs), atol=1e-5, rtol=1e-5
    )


def test_signatures_of_known_digits_are_exclusive(learner, digits):
    matrix = learner.exclusivity(digits[0])
    assert matrix.shape == (4, 4)
    assert np.allclose(matrix, matrix.T)
    assert (np.diag(matrix) == 0).all()
    assert matrix[~np.eye(4, dtype=bool)].mean() > 0.9


def test_held_out_samples_are_reported_and_are_not_training_samples(learner, digits):
    report = learner.report
    assert report["training_samples"] + report["held_out_samples"] == len(digits[0])
    assert report["held_out_samples"] == pytest.approx(0.12 * len(digits[0]), abs=2)
    assert 0.9 <= report["held_out"]["acceptance"] <= 1


def test_probabilities_sum_to_one_and_agree_with_the_predicted_class(learner, digits):
    inputs = digits[1].inputs
    probabilities = learner.probabilities(inputs)
    assert torch.allclose(probabilities.sum(1), torch.ones(len(inputs)))
    assert torch.equal(probabilities.argmax(1), learner.judge(inputs).predicted)


def test_save_and_load_give_the_same_verdicts(learner, digits, tmp_path):
    learner.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", device="cpu")
    mine, theirs = learner.judge(digits[2].inputs), loaded.judge(digits[2].inputs)
    for name in ("predicted", "score", "threshold", "p_value"):
        assert torch.equal(getattr(mine, name), getattr(theirs, name)), name
    assert loaded.classes == learner.classes == (0, 1, 2, 3)
    assert loaded.settings == learner.settings
    assert loaded.report == json.loads(json.dumps(learner.report))
    assert torch.equal(loaded.probabilities(digits[1].inputs), learner.probabilities(digits[1].inputs))


def test_saving_again_replaces_the_model_and_leaves_no_old_file(learner, short_settings, digits, tmp_path):
    learner.save(tmp_path / "model")
    before = {path.name for path in (tmp_path / "model").iterdir()}
    other = learn(digits[0], replace(short_settings, rule=MeanMinusSd()), seed=1, device="cpu")
    other.save(tmp_path / "model")
    after = {path.name for path in (tmp_path / "model").iterdir()}
    listed = json.loads((tmp_path / "model" / "model.json").read_text())["files"]
    assert after == {"model.json", *file_names(listed)}
    assert after & before == {"model.json"} | {name for name in before if name.startswith("memory")}
    assert Learner.load(tmp_path / "model", device="cpu").settings.rule == MeanMinusSd()


def test_saving_that_fails_midway_leaves_the_old_model_whole(
    learner, short_settings, digits, tmp_path, monkeypatch
):
    import shels.learner.storage

    learner.save(tmp_path / "model")
    expected = Learner.load(tmp_path / "model", device="cpu").judge(digits[1].inputs).score
    write = shels.learner.storage.write_whole

    def fail(path, content):
        if path.name == "model.json":
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(shels.learner.storage, "write_whole", fail)
    other = learn(digits[0], short_settings, seed=3, device="cpu")
    with pytest.raises(OSError, match="No space"):
        other.save(tmp_path / "model")
    assert torch.equal(Learner.load(tmp_path / "model", device="cpu").judge(digits[1].inputs).score, expected)


def with_network(settings, **network):
    """Short settings for another network: batch normalisation learns quickly."""
    training = TrainingSettings(Adam(3e-3), batch_size=32, steps=40, check_every=20)
    return replace(settings, network=replace(settings.network, **network), training=training)


@pytest.mark.parametrize("network", [{"architecture": "small-bn"}, {"scale": 16.0}, {"scale": None}], ids=str)
def test_normalisation_and_scale_are_saved_with_the_model(digits, short_settings, tmp_path, network):
    train, test, novel = digits
    learner = learn(train, with_network(short_settings, **network), seed=0, device="cpu")
    assert learner.evaluate(test, novel)["closed_set_accuracy"] > 0.9
    learner.save(tmp_path / "model")
    again = Learner.load(tmp_path / "model", device="cpu")
    assert again.settings == learner.settings
    assert torch.equal(again.judge(novel.inputs).score, learner.judge(novel.inputs).score)
    torch.testing.assert_close(again.probabilities(test.inputs), learner.probabilities(test.inputs))
    new = novel.take(novel.labels == 0)
    grown = again.accommodate(new.inputs, "new")
    assert (grown.judge(new.inputs).predicted == 4).float().mean() > 0.5


@pytest.mark.parametrize("way", [Penalty(), AgsCl(), Ewc(), Lwf(), ShelsGdumb()], ids=lambda way: way.kind)
def test_ways_that_hold_weights_refuse_averages_that_they_cannot_hold(digits, short_settings, way):
    settings = replace(with_network(short_settings, architecture="small-bn"), accommodation=way)
    settings = replace(settings, rule=MeanMinusSd())
    with pytest.raises(ArchitectureError, match="not the running averages of batch normalisation"):
        learn(digits[0], settings, seed=0, device="cpu")


@pytest.mark.parametrize("way", [Proximal(steps=10, grow=4), FineTune(epochs=1), Gdumb(epochs=1)], ids=str)
def test_other_ways_take_classes_into_a_network_with_normalisation(digits, short_settings, way):
    settings = replace(with_network(short_settings, architecture="small-bn"), accommodation=way)
    learner = learn(digits[0], replace(settings, rule=MeanMinusSd()), seed=0, device="cpu")
    new = digits[2].take(digits[2].labels == 0)
    grown = learner.accommodate(new.inputs, "new")
    assert grown.classes[-1] == "new"
    assert all(value.isfinite().all() for value in grown.network.state_dict().values())


def test_a_model_whose_variance_is_negative_is_refused(digits, short_settings, tmp_path):
    learner = learn(digits[0], with_network(short_settings, architecture="small-bn"), seed=0, device="cpu")
    learner.network.body[1].running_var[0] = -1.0
    learner.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"body\.1\.running_var"):
        Learner.load(tmp_path / "model", device="cpu")


def test_saving_into_a_directory_with_other_files_is_refused(learner, tmp_path):
    (tmp_path / "thesis.docx").write_text("ten years")
    with pytest.raises(ModelFileError, match=r"thesis\.docx"):
        learner.save(tmp_path)
    assert (tmp_path / "thesis.docx").read_text() == "ten years"
    with pytest.raises(ModelFileError, match="is a file"):
        learner.save(tmp_path / "thesis.docx")


def test_labels_that_json_cannot_hold_are_refused_on_saving(learner, tmp_path):
    odd = replace(learner, classes=((1, 2), "b", "c", "d"))
    with pytest.raises(ModelFileError, match="use text or numbers"):
        odd.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.fixture
def saved(learner, tmp_path):
    learner.save(tmp_path / "model")
    return tmp_path / "model"


def edit(path, **changes):
    document = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(signed(document | changes)))


def test_loading_a_directory_without_a_model_says_so(tmp_path):
    with pytest.raises(ModelFileError, match="holds no model"):
        Learner.load(tmp_path)
    with pytest.raises(ModelFileError, match="holds no model"):
        Learner.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(ModelFileError, match="holds no model"):
        Learner.load(tmp_path / "file")


@pytest.mark.parametrize("part", ["network", "detector"])
def test_a_truncated_missing_or_exchanged_file_is_named(saved, part):
    path = next(saved.glob(f"{part}-*.safetensors"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match=path.name):
        Learner.load(saved)
    changed = bytearray(content)
    changed[-1] ^= 1
    path.write_bytes(bytes(changed))
    with pytest.raises(ModelFileError, match="checksum"):
        Learner.load(saved)
    path.unlink()
    with pytest.raises(ModelFileError, match=path.name):
        Learner.load(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "pickle"}, "not a shels model"),
        ({"format_version": 1}, "format version 1"),
        ({"classes": [0, 1, 2]}, "4 thresholds for the classes"),
        ({"taught": [0, 1, 2]}, r"head\.weight must be \(3, 128\) float32, got \(4, 128\)"),
        ({"classes": [0, 1, 2, 2]}, "thresholds for the classes"),
        ({"thresholds": [1.0, 2.0, 3.0]}, "3 thresholds"),
        ({"thresholds": [1.0, 2.0, 3.0, "x"]}, r"thresholds\[3\] must be a finite number"),
        ({"thresholds": [1.0, 2.0, 3.0, float("nan")]}, r"thresholds\[3\] must be a finite number"),
        ({"thresholds": [1.0, 2.0, 3.0, 10**400]}, r"thresholds\[3\] must be a finite number"),
        ({"thresholds": [1.0, 2.0, 3.0, 4.0]}, "other thresholds than the detector file"),
        ({"format_version": True}, "format version True"),
        ({"settings": {}}, "does not describe a model"),
        ({"files": {}}, "files lacks network, preparation"),
        ({"files": {"network": "../../etc/passwd", "detector": "x"}}, "files lacks preparation"),
        ({"files": FOREIGN}, r"files\.network must be text like"),
        ({"network": [{"kind": "os.system", "command": "echo"}]}, "unknown layer"),
        (
            {"network": [{"kind": "Linear", "in_features": 1, "out_features": -1}]},
            "does not describe a model",
        ),
        ({"preparation": {"shape": [1, 8], "image_fit": "pad"}}, "does not"),
        ({"temperature": None}, "temperature must be"),
        ({"temperature": 0}, "temperature must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"preparation": {"shape": [1, 8, 8], "image_fit": "crop"}}, "image_fit must be"),
    ],
)
def test_an_edited_model_json_gives_a_clear_error(saved, changes, message):
    edit(saved, **changes)
    with pytest.raises(ModelFileError, match=message):
        Learner.load(saved)


@pytest.mark.parametrize(
    "changes", [{"thresholds": [-99.0] * 4}, {"seed": 5}, {"extra": 1}, {"classes": list("abcd")}]
)
def test_an_edit_that_would_make_sense_is_noticed_too(saved, changes):
    document = json.loads((saved / "model.json").read_text())
    (saved / "model.json").write_text(json.dumps(document | changes))
    with pytest.raises(ModelFileError, match="edited or damaged"):
        Learner.load(saved)


def test_a_model_json_that_nests_without_end_is_a_clear_error(saved):
    (saved / "model.json").write_text("[" * 200_000)
    with pytest.raises(ModelFileError, match="damaged"):
        Learner.load(saved)


def test_temporary_files_of_a_saving_that_was_cut_off_are_gone_after_the_next(learner, saved):
    (saved / ".model.json.0123abcd").write_text("half")
    (saved / ".network-0123456789ab.safetensors.0123abcd").write_text("half")
    (saved / ".keep").write_text("mine")
    learner.save(saved)
    assert sorted(path.name for path in saved.iterdir() if path.name.startswith(".")) == [".keep"]


def test_a_model_json_that_is_no_json_gives_a_clear_error(saved):
    (saved / "model.json").write_text('{"format": "shels-mod')
    with pytest.raises(ModelFileError, match="damaged"):
        Learner.load(saved)


def test_a_model_of_ones_own_chain_saves_and_loads(digits, short_settings, tmp_path):
    chain = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU()
    )
    settings = replace(short_settings, training=TrainingSettings(Adam(3e-3), steps=300, check_every=100))
    mine = learn(digits[0], settings, seed=0, device="cpu", chain=chain)
    mine.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", device="cpu")
    assert torch.equal(mine.judge(digits[1].inputs).score, loaded.judge(digits[1].inputs).score)
    assert mine.evaluate(digits[1])["closed_set_accuracy"] > 0.9


def test_vectors_are_learned_and_novel_ones_noticed(short_settings, tmp_path):
    draws = torch.Generator().manual_seed(0)
    centres = 4 * torch.eye(6, 10)
    labels = torch.arange(600) % 6
    inputs = centres[labels] + torch.randn(600, 10, generator=draws)
    samples = Samples(inputs * 100 + 1000, labels, tuple("abcdef"))
    mine = learn(samples.only("abcd"), short_settings, seed=0, device="cpu")
    measures = mine.evaluate(samples.only("abcd"), samples.only("ef"))
    assert measures["closed_set_accuracy"] > 0.95
    assert measures["auroc"] > 0.8
    mine.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", device="cpu")
    assert torch.equal(mine.judge(samples.inputs).score, loaded.judge(samples.inputs).score)


def test_one_class_alone_and_a_class_without_samples_are_refused(digits, short_settings):
    with pytest.raises(DataError, match="2 classes or more"):
        learn(digits[0].only([0]), short_settings, seed=0)
    empty = replace(digits[0], classes=(0, 1, 2, 3, "ghost"))
    with pytest.raises(DataError, match="'ghost' has no sample"):
        learn(empty, short_settings, seed=0)


def test_samples_of_which_none_can_be_held_out_are_refused(digits, short_settings):
    first = [int((digits[0].labels == position).nonzero()[0]) for position in range(4)]
    with pytest.raises(DataError, match="give every class 2 samples or more"):
        learn(digits[0].take(torch.tensor(first)), short_settings, seed=0)


def test_a_checkpoint_of_another_image_size_is_not_taken_up(digits, short_settings, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    sizes = [
        replace(short_settings, network=replace(short_settings.network, image_size=side)) for side in (8, 11)
    ]
    short = [replace(s, training=replace(s.training, steps=20, check_every=10)) for s in sizes]
    learn(digits[0], short[0], seed=0, device="cpu", checkpoint=path)
    with pytest.raises(ModelFileError, match="belongs to a training with other"):
        learn(digits[0], short[1], seed=0, device="cpu", checkpoint=path)


def test_samples_that_lack_a_known_class_can_be_evaluated(learner, digits):
    some = digits[1].only([2, 0])
    labels = torch.tensor([2, 0])[some.labels]
    expected = accuracy_score(labels, learner.judge(some.inputs).predicted)
    measures = learner.evaluate(some)
    assert measures["closed_set_accuracy"] == pytest.approx(expected)
    assert set(measures["per_class"]) == {"0", "2"}


def test_features_can_be_trained_on(learner, digits):
    weight = torch.ones(1, learner.network.head.weight.shape[1], requires_grad=True)
    (learner.features(digits[1].inputs[:3]) @ weight.T).sum().backward()
    assert bool((weight.grad != 0).any())


def test_inputs_of_another_kind_are_refused_with_what_was_expected(learner):
    with pytest.raises(DataError, match="grey images of 8x8 pixels, got RGB images of 8x8"):
        learner.judge(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(DataError, match="got vectors of 64 values"):
        learner.judge(torch.zeros(2, 64))


def test_a_rival_s_head_is_for_experiments_alone(digits, short_settings):
    settings = replace(short_settings, network=replace(short_settings.network, head="scaled-cosine"))
    with pytest.raises(SettingsError, match="for experiments"):
        learn(digits[0], settings, seed=0)

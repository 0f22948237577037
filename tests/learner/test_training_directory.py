"""The directory that a training writes to: checked, resumed from, never harmed."""

from dataclasses import replace

import pytest

from shels.config import Adam, TrainingSettings
from shels.errors import ModelFileError, SettingsError
from shels.learner.learner import Learner
from shels.learner.training_directory import TrainingDirectory, load_learner
from shels.runtime import finished


class StoppedError(Exception):
    pass


@pytest.fixture
def settings(short_settings):
    training = TrainingSettings(Adam(1e-3), batch_size=32, steps=40, check_every=20)
    return replace(short_settings, training=training)


def stop_after(step):
    def progress(now):
        if now.check is not None and now.step == step:
            raise StoppedError

    return progress


def test_a_training_that_was_stopped_goes_on_where_it_is_safe(tmp_path, digits, settings):
    first = TrainingDirectory(tmp_path / "m")
    with pytest.raises(StoppedError):
        finished(first.training(digits[0], settings, seed=0, device="cpu"), each=stop_after(20))
    assert first.safe_step == 20
    with pytest.raises(ModelFileError, match="holds a training that was cut off"):
        load_learner(tmp_path / "m", "cpu")
    second = TrainingDirectory(tmp_path / "m")
    second.train(digits[0], settings, seed=0, device="cpu")
    assert second.resumed_from == 20
    assert not second.checkpoint.exists()
    assert load_learner(tmp_path / "m", "cpu").classes == (0, 1, 2, 3)


def test_the_checkpoint_of_another_training_goes_only_by_force(tmp_path, digits, settings):
    with pytest.raises(StoppedError):
        finished(
            TrainingDirectory(tmp_path).training(digits[0], settings, seed=0, device="cpu"),
            each=stop_after(20),
        )
    with pytest.raises(ModelFileError):
        TrainingDirectory(tmp_path).train(digits[0], settings, seed=1, device="cpu")
    learner = TrainingDirectory(tmp_path, force=True).train(digits[0], settings, seed=1, device="cpu")
    assert learner.seed == 1


def test_a_training_that_could_not_be_saved_is_not_thrown_away_by_force(
    tmp_path, digits, settings, monkeypatch
):
    refused = []

    def refuse(self, directory):
        refused.append(directory)
        raise ModelFileError(f"{directory} holds other files; name a directory for the model alone")

    target = TrainingDirectory(tmp_path, force=True)
    monkeypatch.setattr(Learner, "save", refuse)
    with pytest.raises(ModelFileError, match="holds other files"):
        target.train(digits[0], settings, seed=0, device="cpu")
    monkeypatch.undo()
    assert len(refused) == 1
    again = TrainingDirectory(tmp_path, force=True)
    again.train(digits[0], settings, seed=0, device="cpu")
    assert again.resumed_from == 40


def test_a_seed_that_no_saved_model_may_have_is_refused_before_training(tmp_path, digits, settings):
    with pytest.raises(SettingsError, match="seed must be a whole number, 0 or more"):
        TrainingDirectory(tmp_path / "m").train(digits[0], settings, seed=-1, device="cpu")
    assert not (tmp_path / "m").exists()


def test_a_finished_model_is_refused_unless_forced(tmp_path, learner):
    learner.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="already holds a finished model"):
        TrainingDirectory(tmp_path / "m").check()
    TrainingDirectory(tmp_path / "m", force=True).check()


def test_a_directory_made_for_a_training_that_left_nothing_is_removed(tmp_path, digits, settings):
    def stop(now):
        raise StoppedError

    with pytest.raises(StoppedError):
        finished(
            TrainingDirectory(tmp_path / "m").training(digits[0], settings, seed=0, device="cpu"), each=stop
        )
    assert not (tmp_path / "m").exists()

"""What only a GPU can show; run by `make test-gpu`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.config import NetworkSettings
from shels.learner.learner import Learner, learn, learning
from shels.runtime import finished

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(scope="module")
def on_gpu(digits, short_settings):
    return learn(digits[0], short_settings, seed=0, device="cuda")


def test_a_gpu_learns_what_the_cpu_learns(on_gpu, learner, digits):
    mine, theirs = on_gpu.evaluate(digits[1], digits[2]), learner.evaluate(digits[1], digits[2])
    assert mine["closed_set_accuracy"] == pytest.approx(theirs["closed_set_accuracy"], abs=0.03)
    assert mine["auroc"] == pytest.approx(theirs["auroc"], abs=0.1)


def test_a_model_saved_on_a_gpu_judges_alike_on_the_cpu(on_gpu, digits, tmp_path):
    on_gpu.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", device="cpu")
    mine, theirs = on_gpu.judge(digits[1].inputs), loaded.judge(digits[1].inputs)
    torch.testing.assert_close(mine.score.cpu(), theirs.score, rtol=5e-3, atol=1e-2)
    assert float((mine.novel.cpu() == theirs.novel).float().mean()) > 0.98


def test_vectors_and_imagenet_pixels_are_prepared_on_the_gpu(digits, short_settings):
    vectors = replace(digits[0], inputs=digits[0].inputs.flatten(1).float())
    assert (
        learn(vectors, short_settings, seed=0, device="cuda").evaluate(vectors)["closed_set_accuracy"] > 0.9
    )
    colour = replace(digits[0], inputs=digits[0].inputs.expand(-1, 3, -1, -1))
    settings = replace(short_settings, network=NetworkSettings(pixels="imagenet"))
    assert learn(colour, settings, seed=0, device="cuda").evaluate(colour)["closed_set_accuracy"] > 0.9


def test_a_training_on_a_gpu_resumes_from_its_checkpoint(digits, short_settings, tmp_path):
    path, steps = tmp_path / "checkpoint.safetensors", []

    def work():
        return learning(digits[0], short_settings, seed=0, device="cuda", checkpoint=path)

    cut = work()
    next(now for now in cut if now.step == 150)
    cut.close()
    again = finished(work(), each=lambda now: steps.append(now.step))
    assert steps[0] == 100
    assert again.evaluate(digits[1])["closed_set_accuracy"] > 0.95

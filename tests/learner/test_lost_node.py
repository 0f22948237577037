"""A cluster that loses a node while it judges."""

from __future__ import annotations

import time

import pytest
from PIL import Image

from shels.cluster import connected
from shels.data.sources import load_named
from shels.learner import cluster_judging
from shels.learner.cluster_judging import work_on
from shels.learner.judging import judging
from shels.runtime import finished
from tests.clusters import cluster_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray Data's of its own settings


@pytest.mark.slow
def test_a_node_that_is_lost_on_the_way_costs_no_row(learner, tmp_path, monkeypatch):
    begun, verdicts = [], cluster_judging._verdicts
    monkeypatch.setattr(cluster_judging, "_verdicts", lambda *given: begun.append(given) or verdicts(*given))
    model = tmp_path / "model"
    learner.save(model)
    big = tmp_path / "big"
    big.mkdir()
    inputs = load_named("digits").train.inputs[:, 0]
    for number in range(6000):
        Image.fromarray(inputs[number % len(inputs)].numpy()).save(big / f"{number:04d}.png")
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    finished(judging(learner, model, [str(big)], here, rows=1280))
    with cluster_of({}, {}, {}) as (it, nodes), connected(it.address) as joined:
        assert len(joined.workers()) == 3
        work = work_on(joined, model, learner.preparation)

        def losing(listed, groups):
            for number, each in enumerate(work(listed, groups)):
                if number == 3:
                    it.remove_node(nodes[1], allow_graceful=False)
                    while len(joined.workers()) > 2:  # until Ray knows of it, which takes some seconds
                        time.sleep(0.2)
                yield each

        finished(judging(learner, model, [str(big)], there, rows=1280, work=losing))
    names = sorted(path.name for path in here.glob("part-*"))
    assert len(names) == 5
    assert all((there / name).read_bytes() == (here / name).read_bytes() for name in names)
    slices = [len(given[1]) for given in begun]
    assert len(slices) > 1, "the loss went unnoticed"
    assert slices[-1] < slices[0]

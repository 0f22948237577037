"""Verdicts of a cluster of two nodes are those of this process, to the last bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from shels.agent.agent import OpenWorldAgent
from shels.agent.ahead import Ahead
from shels.agent.cluster_looking import ClusterLookers
from shels.cluster import connected
from shels.data.sources import load_named
from shels.data.streams import read_stream
from shels.errors import ClusterError, DataError
from shels.learner.cluster_judging import work_on
from shels.learner.judging import judging
from shels.runtime import finished
from tests.clusters import cluster_of

COUNT = 300
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray Data's of its own settings


@pytest.fixture(scope="module")
def cluster():
    with cluster_of({}, {}) as (it, _), connected(it.address) as joined:
        yield joined


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cluster") / "digits"
    place.mkdir()
    for number, image in enumerate(load_named("digits").test.inputs[:COUNT, 0]):
        Image.fromarray(image.numpy()).save(place / f"{number:04d}.png")
    (place / "0044.png").write_bytes(b"no image")
    return place


@pytest.fixture(scope="module")
def model(learner, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster") / "model"
    learner.save(directory)
    return directory


def parts(out):
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}


def test_a_cluster_writes_what_this_process_writes(cluster, learner, model, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)  # paths are relative to where the command was given
    judge = partial(judging, learner, model, ["digits", "digits/0000.png"], rows=90)
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    finished(judge(here))
    work = work_on(cluster, model, learner.preparation)
    result = finished(judge(there, work=work))
    assert (result.counts.samples, result.counts.unreadable, result.parts) == (COUNT, 1, 4)
    assert parts(there) == parts(here)
    assert len(parts(here)) == 4
    (there / "part-00001.parquet").unlink()  # as after a crash
    inode = (there / "part-00002.parquet").stat().st_ino
    asked = []
    again = finished(judge(there, work=lambda listed, groups: asked.extend(groups) or work(listed, groups)))
    assert (again.kept, sum(map(len, asked))) == (3, 90)
    assert parts(there) == parts(here)
    assert (there / "part-00002.parquet").stat().st_ino == inode


def test_a_node_that_does_not_see_the_images_is_named_before_anything_is_judged(cluster, learner, model):
    from shels.data.finding import ImageFile
    from shels.data.listing import ListedPart, Listing, Walked

    nowhere = Walked("/no/such/folder", lambda _: iter([ImageFile("a", Path("/no/such/folder/a.png"))]))
    listed = Listing((nowhere,), (1,), (ListedPart(1, ""),), 1)
    with pytest.raises(ClusterError, match="does not see /no/such/folder; put it where every node sees it"):
        list(work_on(cluster, model, learner.preparation)(listed, [range(1)]))


def test_an_error_of_the_model_comes_back_as_it_is(cluster, learner, model, tmp_path):
    import numpy as np

    np.savez(tmp_path / "v.npz", x=np.zeros((3, 5), np.float32))
    work = work_on(cluster, model, learner.preparation)
    with pytest.raises(DataError, match="vectors"):
        finished(judging(learner, model, [str(tmp_path / "v.npz")], tmp_path / "v.csv", work=work))


def events(learner, stream, lookers):
    agent = OpenWorldAgent(learner)
    batches = ((batch, None) for batch in read_stream(stream, size=8, channels="grey", batch_size=100))
    if lookers is not None:
        ahead = Ahead(lambda: agent.learner, lookers)
        batches, agent.look = ahead.read(batches), ahead.look
    found = [
        (event.kind, event.batch, dict(event.facts)) for batch, _ in batches for event in agent.observe(batch)
    ]
    return [
        (kind, batch, {name: facts[name] for name in facts if name != "seconds"})
        for kind, batch, facts in found
    ]


@pytest.mark.slow
def test_an_agent_decides_the_same_where_a_cluster_looks_at_batches_before_it(cluster, learner, tmp_path):
    folder = tmp_path / "stream"
    folder.mkdir()
    for number, image in enumerate(load_named("digits").train.inputs[:600, 0]):
        Image.fromarray(image.numpy()).save(folder / f"{number:04d}.png")
    plain = events(learner, folder, None)
    assert {"accommodated", "observed"} <= {kind for kind, _, _ in plain}
    assert events(learner, folder, ClusterLookers(cluster)) == plain

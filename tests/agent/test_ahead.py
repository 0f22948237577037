"""Batches that are read and looked at ahead: the agent's events are those of a run that does neither."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from itertools import islice

import pytest
import torch
from PIL import Image

from shels.agent.ahead import Ahead, Threads
from shels.agent.observation import AgentSettings
from shels.agent.opened_stream import StreamSpec
from shels.agent.stream_run import StreamRun, opened_run
from shels.data.streams import StreamBatch
from shels.errors import DataError


@pytest.fixture
def stream(data, tmp_path):
    """Digits as files in a folder: what is new comes in every batch, until it is learned."""
    folder = tmp_path / "stream"
    folder.mkdir()
    for number, image in enumerate(data.train.inputs[:500, 0]):
        Image.fromarray(image.numpy()).save(folder / f"{number:04d}.png")
    return folder


def watched(model, stream, batches=None):
    spec = StreamSpec(str(stream), batch_size=100)
    with opened_run(model, spec, AgentSettings(), device="cpu") as run:
        for batch in islice(run.remaining(), batches):
            list(run.observe(batch))
        return run.result()


def lines(model):
    found = [json.loads(line) for line in (model / "events.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if name not in ("time", "seconds")} for line in found]


def test_events_are_those_of_a_run_that_reads_each_batch_when_it_comes(home, stream, tmp_path, monkeypatch):
    models = [shutil.copytree(home.directory, tmp_path / name) for name in ("ahead", "cut off", "plain")]
    watched(models[0], stream)
    watched(models[1], stream, batches=2)
    result = watched(models[1], stream)
    assert (result["batches"], result["skipped"]) == (5, 2)
    monkeypatch.setattr(StreamRun, "_ahead", lambda self, found: (each for each in found))
    watched(models[2], stream)
    expected = lines(models[2])
    assert {"alarm", "accommodated", "observed"} <= {line["kind"] for line in expected}
    assert lines(models[0]) == expected
    assert lines(models[1]) == expected


def batches(count, fault_at=None):
    for number in range(count):
        if number == fault_at:
            raise DataError(f"batch {number} is broken")
        yield StreamBatch(str(number), torch.full((2, 1, 8, 8), number, dtype=torch.uint8)), None


def test_what_another_network_made_of_a_batch_is_not_taken(learner):
    ahead = Ahead(lambda: learner, Threads())
    other = replace(learner, network=copy.deepcopy(learner.network))
    asked = []
    other.views = lambda inputs: asked.append(inputs) or learner.views(inputs)
    for batch, _ in ahead.read(batches(3)):
        if batch.name == "1":
            ahead.look(other, batch)
            assert len(asked) == 1
            assert asked[0] is batch.inputs
        else:
            assert torch.equal(ahead.look(learner, batch).high, learner.views(batch.inputs).high)


def test_few_batches_are_read_ahead_and_a_fault_waits_for_its_turn(learner):
    read = []

    def counted():
        for each in batches(40, fault_at=12):
            read.append(each)
            yield each

    ready = Ahead(lambda: learner, Threads()).read(counted())
    assert [next(ready)[0].name for _ in range(3)] == ["0", "1", "2"]
    assert len(read) <= 3 + 5
    with pytest.raises(DataError, match="batch 12 is broken"):
        list(ready)
    assert [batch.name for batch, _ in read] == [str(number) for number in range(12)]

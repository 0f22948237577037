"""A run or a change that is killed at any moment and started again ends as if it had not been."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import torch

from shels.agent.agent import Supply
from shels.agent.home import Home
from shels.agent.observation import AgentSettings, ProposalSettings
from shels.agent.opened_stream import StreamSpec, open_stream
from shels.agent.separation import SeparationSettings
from shels.agent.stream_run import StreamRun
from shels.agent.versioned import VersionedLearner
from tests.agent.crashes import moments


def of(samples, *names):
    return samples.only(names).inputs


def without_times(event):
    return {name: value for name, value in event.items() if name not in ("time", "seconds")}


def end(home):
    """Everything that two ends of a run must have in common."""
    models = sorted((home.directory / "models").iterdir())
    versions = {}  # the files of a version are called after their content
    for model in models:
        classes = json.loads((model / "model.json").read_text())["classes"]
        versions[model.name] = classes, sorted(path.name for path in model.iterdir())
    buffers = {
        name: (int(tensors["order"]), tensors["inputs"].numpy().tobytes())
        for name, tensors in home.buffered().items()
    }
    files = sorted(
        str(path.relative_to(home.directory))
        for path in home.directory.rglob("*")
        if "models/" not in str(path) and path.name != ".lock"
    )
    return {
        "version": home.version,
        "versions": versions,
        "log": [without_times(event) for event in home.events()],
        "buffers": buffers,
        "files": files,
    }


@pytest.fixture(scope="module")
def stream(data, learner, tmp_path_factory):
    """Batches in which: two classes are new; too few of one; more of it; known ones are dark; one; none."""
    eight, nine = (of(data.test, name)[learner.judge(of(data.test, name)).novel] for name in (8, 9))
    known = of(data.test, 0, 1, 2, 3)
    both = torch.cat([of(data.test, 6)[:30], of(data.test, 7)[:30]])
    batches = [both, eight[:8], eight[8:30], known[60:100] // 4, nine[:30], known[:40]]
    folder = tmp_path_factory.mktemp("stream")
    for place, batch in enumerate(batches):
        np.savez(folder / f"{place}.npz", x=batch[:, 0].numpy())
    return folder


def supply(request):
    """Answer as somebody who knows the second class, and gives too few images of the third."""
    answers = {"novel-2": Supply(name="second"), "novel-3": Supply(request.inputs[:3], "few")}
    return answers.get(request.name, Supply(by="agent"))


def live(directory, stream):
    """Run a model over a stream, as `shels run` does."""
    home = Home(directory)
    home.settle()
    opened = open_stream(StreamSpec(str(stream)), home.load("cpu"), log=home.events())
    quick = AgentSettings(proposals=ProposalSettings(separation=SeparationSettings(trials=1)))
    with home.lock():
        home.adopt()
        run = StreamRun(home, opened, quick, device="cpu")
        run.agent.supplier = supply
        for batch in run.remaining():
            for _ in run.observe(batch):
                pass
    return home


SLOW = [pytest.param(part, marks=pytest.mark.slow) for part in (1, 2)]


@pytest.mark.parametrize("part", [0, *SLOW])  # every third moment, and with the slow tests all of them
def test_a_run_killed_at_any_moment_and_run_again_ends_as_if_nothing_had_happened(
    learner, stream, tmp_path, monkeypatch, part
):
    (tmp_path / "copies").mkdir()
    learner.save(tmp_path / "m")
    with moments(tmp_path / "m", tmp_path / "copies") as found:
        home = live(tmp_path / "m", stream)
    expected = end(home)
    assert home.load("cpu").classes == (0, 1, 2, 3, "novel-1", "second", "novel-4")
    assert [event["kind"] for event in expected["log"]] == [
        *("started", "observed", "alarm", "accommodating", "accommodated", "accommodating", "accommodated"),
        *("resumed", "observed", "alarm", "undecided", "resumed", "observed", "alarm", "declined", "resumed"),
        *("observed", "alarm", "drift", "resumed"),
        *("observed", "alarm", "accommodating", "accommodated", "resumed", "observed"),
    ]
    assert found.operations > 200
    assert len(found.copies) > 80
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power is cut from here on
    for copy in found.copies[part::3]:
        assert end(live(copy, stream)) == expected, copy
        shutil.rmtree(copy)


@pytest.fixture(scope="module")
def grown(learner, data, tmp_path_factory):
    """A home with three classes that have no names yet; the last of them is two."""
    home = Home(tmp_path_factory.mktemp("grown") / "home")
    home.begin(learner)
    model = VersionedLearner(learner, home)
    for number, names in enumerate([(6,), (7,), (8, 9)], start=1):
        model.accommodate(f"novel-{number}", f"novel-{number}", of(data.train, *names))
    return home.directory


CHANGES = {
    "accommodate": lambda model: model.accommodate("novel-9", "novel-9", torch.rand(9, 1, 8, 8)),
    "rename": lambda model: model.rename("novel-1", "six"),
    "merge": lambda model: model.merge("novel-2", "novel-1"),
    "split": lambda model: model.split("novel-3"),
    "unlearn": lambda model: model.unlearn("novel-2"),
    "rollback": lambda model: model.rollback(2),
    "refit": lambda model: model.refit(model.learner),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_killed_at_any_moment_is_made_whole_or_undone_whole(grown, tmp_path, change, monkeypatch):
    def opened(directory):
        home = Home(directory)
        return VersionedLearner(home.load("cpu"), home)

    def apply(directory):
        torch.manual_seed(0)
        CHANGES[change](opened(directory))

    shutil.copytree(grown, tmp_path / "home")
    (tmp_path / "copies").mkdir()
    before = end(Home(tmp_path / "home"))
    with moments(tmp_path / "home", tmp_path / "copies") as found:
        apply(tmp_path / "home")
    expected, undone = end(Home(tmp_path / "home")), 0
    assert len(expected["log"]) == len(before["log"]) + 1
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for copy in found.copies:
        model = opened(copy)
        state = end(model.home)
        assert list(model.learner.classes) == state["versions"][f"{state['version']:04d}"][0]
        if state != expected:
            with model.home.lock():
                pass  # whoever works there next removes what was half written
            assert end(model.home) == before, copy
            undone += 1
            apply(copy)
        assert end(model.home) == expected, copy
    assert 0 < undone < len(found.copies) or change == "rollback"

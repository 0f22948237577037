"""Killed at any moment under traffic: nothing acknowledged is lost or counts twice, and all records agree."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
import torch

from shels.agent import events
from shels.agent.home import Home
from shels.agent.inbox import numbers_of
from shels.agent.index import EventIndex
from shels.agent.workbench import Workbench

from .conftest import NPY, npy


class Traffic:
    """What was sent and what was acknowledged, over all lives of a service."""

    def __init__(self, images, seed):
        self.images, self.draw = images, random.Random(seed)
        self.sent, self.acknowledged, self.changes = {}, {}, {}
        self.errors, self.answers = [], 0

    def during(self, port, answers, kill):
        """Send until so many answers have come, then kill a little later."""
        ended = threading.Event()
        works = [self.observe, self.observe, self.annotate]
        threads = [threading.Thread(target=self.guarded, args=(work, port, ended)) for work in works]
        httpx.get(f"http://127.0.0.1:{port}/v2/health/live", timeout=60)
        for thread in threads:
            thread.start()
        enough, latest = self.answers + answers, time.monotonic() + 30
        while self.answers < enough and time.monotonic() < latest and not self.errors:
            time.sleep(0.001)
        time.sleep(self.draw.uniform(0, 0.1))
        kill()
        ended.set()
        for thread in threads:
            thread.join()

    def guarded(self, work, port, ended):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            while not ended.is_set():
                try:
                    work(client)
                    self.answers += 1
                except httpx.HTTPError:  # killed
                    return
                except BaseException as error:
                    self.errors.append(error)
                    raise

    def observe(self, client):
        lost = [key for key in list(self.sent) if key not in self.acknowledged]
        key = (
            self.draw.choice(lost)
            if lost and self.draw.random() < 0.5
            else f"k{len(self.sent)}-{self.draw.random()}"
        )
        rows = self.sent.setdefault(key, sorted(self.draw.sample(range(len(self.images)), 5)))
        answer = client.post(
            "/observe", content=npy(self.images[rows]), headers=NPY | {"Idempotency-Key": key}
        )
        assert answer.status_code == 200, answer.text
        self.acknowledged[key] = answer.json()["observed"]

    def annotate(self, client):
        numbers = [image["number"] for group in client.get("/groups").json() for image in group["images"]]
        if len(numbers) < 5:
            return
        chosen = self.draw.sample(numbers, 5)
        how = self.draw.choice(
            [{"name": f"c{self.draw.random()}"}, {"verdict": "rubbish"}, {"verdict": "not novel"}]
        )
        answer = client.post("/groups/rest/name", json={**how, "images": chosen})
        assert answer.status_code in (200, 422), answer.text
        if answer.status_code == 200:
            change = answer.json()["change"]
            self.changes[change["id"]] = change
            if self.draw.random() < 0.6:
                undone = client.post(f"/changes/{change['id']}/undo")
                assert undone.status_code == 200, undone.text
                self.changes[undone.json()["change"]["id"]] = undone.json()["change"]


def check(directory: Path, traffic: Traffic) -> None:
    """Compare the home with what was sent and acknowledged."""
    assert not traffic.errors
    home = Home(directory)
    with home.lock():
        bench = Workbench(home, "cpu")
        log = home.log.placed()
        observed = [line for _, line in log if line["kind"] == events.OBSERVED]
        keys = Counter(line["key"] for line in observed)
        assert max(keys.values(), default=1) == 1, "a key counts twice"
        assert set(traffic.acknowledged) <= set(keys), "an acknowledged observation is lost"
        assert set(keys) <= set(traffic.sent)
        assert bench.index.observed_since(0) == (5 * len(keys), sum(line["novel"] for line in observed))
        _check_images(bench, observed, traffic)
        places = dict(log)
        for change in traffic.changes.values():
            assert places[change["id"]]["kind"] == change["kind"], "an acknowledged change is lost"
            assert places[change["id"]]["version"] == change["version"]
        _check_versions(bench, [line for _, line in log])
        bench.index.close()
        assert not (directory / "pending.json").exists()


def _check_images(bench: Workbench, observed, traffic: Traffic) -> None:
    numbers = [number for line in observed for number in numbers_of(line["members"])]
    assert len(numbers) == len(set(numbers)), "two images have one number"
    assert bench.inbox.numbers() == sorted(numbers)
    for line in observed[-20:]:
        kept = bench.inbox.inputs(numbers_of(line["members"]))
        sent = {traffic.images[row].tobytes() for row in traffic.sent[line["key"]]}
        assert {each.numpy()[0].tobytes() for each in kept} <= sent
    said = {number for change in bench.changes if change.counts for number in change.members}
    assert set(bench.waiting()) == set(numbers) - {n for n in said if n in bench.said}


def _check_versions(bench: Workbench, log) -> None:
    changed = [line for line in log if events.changes_model(line)]
    made = [line["version"] for line in log if events.makes_version(line)]
    assert made == list(range(2, 2 + len(made))), "each version has one line, in order"
    assert bench.home.versions() == list(range(1, 2 + len(made)))
    assert bench.home.version == (changed[-1]["version"] if changed else 1)
    for change in bench.changes:
        if change.kind == events.ACCOMMODATED and change.counts:
            assert change.facts["name"] in bench.learner.classes
    stored = bench.index._database.execute("select place, line from events order by place").fetchall()
    fresh = EventIndex.__new__(EventIndex)
    fresh.home, fresh._lock, fresh._place = bench.home, threading.RLock(), -1
    from shels.agent.index import _connected

    fresh._database = _connected(Path(":memory:"))
    fresh._catch_up()
    assert stored == fresh._database.execute("select place, line from events order by place").fetchall()


def killed(directory, images, times, seed, changes=0):
    """Kill so many times, and on until so many changes were acknowledged: a busy machine takes longer."""
    traffic = Traffic(images, seed)
    command = [sys.executable, "-m", "tests.service.killable", str(directory)]
    parent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    try:
        for number in range(3 * times):
            if number >= times and len(traffic.changes) >= changes:
                break
            parent.stdin.write("\n")
            parent.stdin.flush()
            process, port = map(int, parent.stdout.readline().split())
            answers = traffic.draw.randint(0, 12)
            traffic.during(port, answers, lambda process=process: os.kill(process, signal.SIGKILL))
            assert parent.stdout.readline() == "ended\n"
            check(directory, traffic)
    finally:
        parent.communicate(timeout=30)
    return traffic


@pytest.fixture
def images(known, novel):
    return torch.cat([torch.from_numpy(novel), torch.from_numpy(known[:40])]).numpy()


def test_killed_three_times_under_traffic_nothing_is_lost(directory, images):
    traffic = killed(directory, images, 3, seed=0)
    assert traffic.acknowledged


@pytest.mark.slow
def test_killed_a_hundred_times_under_traffic_nothing_is_lost(directory, images):
    traffic = killed(directory, images, 100, seed=1, changes=20)
    assert len(traffic.acknowledged) > 100
    assert len(traffic.changes) >= 20

"""Units over a real cluster of several nodes: what they come to, also where a node or the driver is lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread, Timer

import numpy as np
import pytest

import shels
from shels.cluster import connected
from shels.data.sources import load_named
from shels.errors import ClusterError
from shels.experiments import engine
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.executors import Terms, driven
from shels.experiments.methods import METHODS
from shels.experiments.on_ray import OnRay
from shels.experiments.records import Records
from shels.experiments.units import UnitFolder
from tests.clusters import STORE
from tests.experiments.short_trials import figures_of, short_trials

COUNT = 3
COMMAND = ["within/digits", "incremental/digits", "--methods", "shels,gaussian,slda"]


@pytest.fixture(scope="module")
def trials():
    return short_trials(COUNT)


@pytest.fixture(scope="module")
def wanted(trials, tmp_path_factory):
    """The figures of these trials, run in this process."""
    records = Records(tmp_path_factory.mktemp("one"))
    list(engine.run(trials, records, lambda name, _: load_named(name), device="cpu"))
    return figures_of(records)


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def added(cluster, **env):
    return cluster.add_node(num_cpus=1, object_store_memory=STORE, env_vars={**os.environ, **env})


@pytest.fixture(scope="module")
def other_code(cluster, tmp_path_factory):
    """A node whose shels is of another version."""
    copy = tmp_path_factory.mktemp("other")
    shutil.copytree(Path(shels.__file__).parent, copy / "shels")
    (copy / "shels/_version.py").write_text('__version__ = "0.0.1"\n')
    node = added(cluster, PYTHONPATH=str(copy))
    yield node
    cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def with_data(cluster, tmp_path_factory):
    """A node that has MNIST, or seems to; no other has any data but the digits."""
    folder = tmp_path_factory.mktemp("data")
    np.savez(folder / "mnist.npz", y_train=np.zeros(1, int), y_test=np.zeros(1, int))
    node = added(cluster, SHELS_DATA=str(folder))
    yield node
    cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def connection(cluster):
    """One for all tests, so that processes of the nodes are used again."""
    with connected(cluster.address) as it:
        yield it


@pytest.fixture
def on_ray(connection, records):
    return OnRay(records, Terms(device="cpu"), 1, connection)


def name_of(node, on_ray):
    [name] = [each.name for each in on_ray.cluster.nodes() if each.id == node.node_id]
    return name


# On the way -------------------------------------------------------------------------------------------


def test_a_killed_driver_is_followed_by_the_same_command_and_nothing_is_done_twice(
    cluster, trials, wanted, records, on_ray
):
    folder = UnitFolder(records.directory)
    driver = start_driver(cluster, records)
    until(lambda: list(folder.path.glob("*.jsonl")) or driver.poll() is not None)
    driver.kill()
    driver.wait()
    stamps = {path: path.stat().st_mtime_ns for path in folder.path.glob("*.jsonl")}
    list(driven(trials, records, on_ray))
    assert figures_of(records) == wanted
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}  # what was done was not done again


def test_a_process_that_is_lost_again_and_again_is_a_failed_unit(trials, records, on_ray):
    def leave(*given):
        os._exit(3)

    on_ray._task = on_ray.ray.remote(max_retries=0)(leave)
    advances = list(driven(trials[:1], records, on_ray))
    [failed] = [each for each in advances if each.kind == "failed"]
    assert failed.message.startswith("its process was lost 6 times: ")


# Before the first unit ----------------------------------------------------------------------------------


def test_nodes_without_the_data_or_with_other_code_are_left_out(other_code, with_data, on_ray):
    names = {node: name_of(node, on_ray) for node in (other_code, with_data)}
    *left_out, fit = on_ray.check(CATALOGUE["within/mnist"].trials(METHODS["shels"], 1))
    assert fit == f"1 node of the cluster takes units: {names[with_data]}"
    assert len(left_out) == 3
    [version] = [note for note in left_out if note.startswith(names[other_code])]
    assert "is left out: it has shels 0.0.1+" in version
    others = [note for note in left_out if note != version]
    assert all("has no mnist; run `shels data download mnist`" in note for note in others)


def test_where_no_node_can_run_anything_the_run_does_not_begin(on_ray, records):
    trials = CATALOGUE["within/fmnist"].trials(METHODS["shels"], 1)
    with pytest.raises(ClusterError, match=r"no node of the cluster can run this; .* has no fmnist"):
        on_ray.check(trials)
    assert not records.any()


# On the way ---------------------------------------------------------------------------------------------


def test_a_lost_node_a_node_of_other_code_and_a_bad_unit_leave_the_figures_as_they_are(
    cluster, other_code, trials, wanted, records, on_ray
):
    doomed, bad = added(cluster), replace(trials[0], known=(0, 1, 99), seed=5)
    name = name_of(doomed, on_ray)

    def lose():
        until(lambda: doomed.node_id in {note.where for note in on_ray.folder.notes().values()})
        cluster.remove_node(doomed, allow_graceful=False)

    loss = Thread(target=lose)
    loss.start()
    advances = list(driven([bad, *trials], records, on_ray))  # nobody has checked the nodes before
    loss.join()
    assert figures_of(records) == wanted
    [failed] = [each for each in advances if each.kind == "failed"]
    assert failed.trials == (bad,)
    assert "99" in failed.message
    lost = f"{name} was lost; what ran there is begun again elsewhere"
    others = {each.message for each in advances if each.kind == "note"} - {lost}  # told if it is seen in time
    assert all("is left out: it has shels 0.0.1+" in note for note in others)


# At random moments --------------------------------------------------------------------------------------


LONGER = {"count": 8, "epochs": 6}


@pytest.fixture(scope="module")
def longer():
    return short_trials(**LONGER)


@pytest.fixture(scope="module")
def undisturbed(connection, longer, tmp_path_factory):
    """What these trials come to in this process, and how many seconds they take on the cluster."""
    here, there = (Records(tmp_path_factory.mktemp(name)) for name in ("here", "there"))
    list(engine.run(longer, here, lambda name, _: load_named(name), device="cpu"))
    began = time.monotonic()
    list(driven(longer, there, OnRay(there, Terms(device="cpu"), 1, connection)))
    return figures_of(here), time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_a_node_is_lost_at_a_random_moment(cluster, longer, undisturbed, records, on_ray, turn):
    wanted, seconds = undisturbed
    doomed, moment = added(cluster), random.Random(turn).uniform(0, 0.7 * seconds)
    loss = Timer(moment, cluster.remove_node, [doomed], {"allow_graceful": False})
    loss.start()
    began = time.monotonic()
    list(driven(longer, records, on_ray))
    spent = time.monotonic() - began
    loss.join()
    told = f"lost after {moment:.1f} s of {spent:.1f} s; {seconds:.1f} s without it"
    print(told)  # noqa: T201 - for a reader of the ten moments
    assert moment < spent
    assert figures_of(records) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_the_driver_is_lost_at_a_random_moment(cluster, longer, undisturbed, records, on_ray, turn):
    wanted, seconds = undisturbed
    driver, moment = start_driver(cluster, records, **LONGER), random.Random(turn).uniform(0, 0.7 * seconds)
    until(on_ray.folder.notes)  # the first units are under way
    time.sleep(moment)
    assert driver.poll() is None
    driver.kill()
    driver.wait()
    before = set(on_ray.folder.path.glob("*.jsonl"))
    stamps = {path: path.stat().st_mtime_ns for path in before}
    list(driven(longer, records, on_ray))
    told = f"killed {moment:.1f} s after its first unit began, {len(before)} of {LONGER['count']} units done"
    print(told)  # noqa: T201 - for a reader of the ten moments
    assert figures_of(records) == wanted
    assert stamps == {path: path.stat().st_mtime_ns for path in before}


def start_driver(cluster, records, count=COUNT, epochs=1):
    command = [sys.executable, "-m", "shels", "reproduce", *COMMAND, "--no-report"]
    command += ["--trials", str(count), "--epochs", str(epochs), "--device", "cpu"]
    command += ["--out", str(records.directory), "--cluster", cluster.address]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(event, seconds=120):
    end = time.monotonic() + seconds
    while not event():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)

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
from threading import Thread

import pytest

import shels
from shels.cluster import connected
from shels.data.sources import load_named
from shels.errors import ClusterError
from shels.experiments import engine
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.executors import Terms, driven
from shels.experiments.methods import METHODS
from shels.experiments.on_ray import OnRay, problem_of_node, versions
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
    until(lambda: done_units(folder) or driver.poll() is not None)
    driver.kill()
    driver.wait()
    before = done_units(folder)
    list(driven(trials, records, on_ray))
    assert figures_of(records) == wanted
    assert before.items() <= done_units(folder).items()  # what was done was not done again


def test_a_process_that_is_lost_again_and_again_is_a_failed_unit(trials, records, on_ray):
    def leave(*given):
        os._exit(3)

    on_ray._task = on_ray.ray.remote(max_retries=0)(leave)
    advances = list(driven(trials[:1], records, on_ray))
    [failed] = [each for each in advances if each.kind == "failed"]
    assert failed.message.startswith("its process was lost 6 times: ")


# Before the first unit ----------------------------------------------------------------------------------


def test_a_node_of_other_code_is_left_out_with_the_reason(other_code, trials, on_ray):
    left_out, fit = on_ray.check(trials)
    assert left_out.startswith(f"{name_of(other_code, on_ray)} is left out: it has shels 0.0.1+")
    assert fit.startswith("2 nodes of the cluster take units: ")


def test_where_no_node_has_the_data_the_run_does_not_begin(other_code, on_ray, records):
    trials = CATALOGUE["within/mnist"].trials(METHODS["shels"], 1)
    with pytest.raises(ClusterError, match="no node of the cluster can run this") as caught:
        on_ray.check(trials)
    assert str(caught.value).count("has no mnist; run `shels data download mnist`") == 2
    assert str(caught.value).count("it has shels 0.0.1+") == 1
    assert not records.any()


def test_what_keeps_a_node_from_running_trials_is_said(tmp_path, trials):
    seen, mine = tmp_path / ".seen", versions()
    assert problem_of_node(seen, trials, None, mine).startswith(f"it does not see {tmp_path}; --out must be")
    seen.touch()
    assert problem_of_node(seen, trials, None, mine) == ""
    other = mine | {"torch": "1.0"}
    assert "and the driver 1.0; install the same on all nodes" in problem_of_node(seen, trials, None, other)
    network = replace(trials[0].settings.network, weights="vgg16.safetensors")
    pretrained = replace(trials[0], settings=replace(trials[0].settings, network=network))
    assert "give --weights a whole path" in problem_of_node(seen, [pretrained], None, mine)


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
def longer_wanted(longer, tmp_path_factory):
    records = Records(tmp_path_factory.mktemp("longer"))
    list(engine.run(longer, records, lambda name, _: load_named(name), device="cpu"))
    return figures_of(records)


def done_units(folder):
    return {path: path.stat().st_mtime_ns for path in folder.path.glob("*.jsonl")}


def at_a_moment(turn, folder):
    """Wait for a random moment of a run: some units are done and others under way, and a little longer."""
    draw = random.Random(turn)
    count, more = draw.randrange(LONGER["count"] - 2), draw.uniform(0, 1.5)
    until(lambda: folder.notes() and len(done_units(folder)) >= count, 300)
    time.sleep(more)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_a_node_is_lost_at_a_random_moment(cluster, longer, longer_wanted, records, on_ray, turn):
    doomed, lost = added(cluster), []

    def lose():
        at_a_moment(turn, on_ray.folder)
        lost.append(len(done_units(on_ray.folder)))
        cluster.remove_node(doomed, allow_graceful=False)

    loss = Thread(target=lose)
    loss.start()
    list(driven(longer, records, on_ray))
    loss.join()
    print(f"lost with {lost[0]} of {LONGER['count']} units done")  # noqa: T201 - for a reader of the moments
    assert lost[0] < LONGER["count"]
    assert figures_of(records) == longer_wanted


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_the_driver_is_lost_at_a_random_moment(cluster, longer, longer_wanted, records, on_ray, turn):
    driver = start_driver(cluster, records, **LONGER)
    at_a_moment(turn, on_ray.folder)
    assert driver.poll() is None
    driver.kill()
    driver.wait()
    before = done_units(on_ray.folder)
    list(driven(longer, records, on_ray))
    print(f"lost with {len(before)} of {LONGER['count']} units done")  # noqa: T201 - for a reader of the moments
    assert figures_of(records) == longer_wanted
    assert before.items() <= done_units(on_ray.folder).items()  # what was done was not done again


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

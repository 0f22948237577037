"""Units of work on disk, and the driver that takes them up, mostly run where the test is."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from shels import files
from shels.data.sources import load_named
from shels.errors import DataError, MissingDataError, ModelFileError
from shels.experiments import engine, executors, units
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.executors import Elsewhere, Ending, InProcess, Terms, driven, failed_whole, in_words
from shels.experiments.methods import METHODS
from shels.experiments.processes import ProcessPool
from shels.experiments.records import Records
from shels.experiments.units import Unit, UnitFolder, code_version, planned_units, run_unit
from tests.cli.commands import done, fails, shels
from tests.experiments.short_trials import figures_of, short_trials


class Inline(Elsewhere):
    """Runs units one after another where the test is; `ran` has their ids."""

    def __init__(self, records, block=1):
        super().__init__(records, Terms(device="cpu"), block)
        self.ran, self._queue = [], []

    def check(self, trials):
        return []

    def _start(self, unit):
        self._queue.append(unit)

    def _ended(self, seconds):
        unit = self._queue.pop(0)
        self.ran.append(unit.id)
        try:
            return [Ending(unit, run_unit(self.folder, unit.id, "here", device="cpu"))]
        except Exception as error:  # noqa: BLE001 - as executors do
            return [failed_whole(unit, in_words(error))]

    def _place(self, where):
        return where

    def _stop(self):
        self._queue.clear()


@pytest.fixture(scope="module")
def trials():
    """Two trials of within/digits and two of learning by each of two methods, on two networks."""
    return short_trials(2)


@pytest.fixture(scope="module")
def wanted(trials, tmp_path_factory):
    """The figures of these trials, run in this process without units."""
    records = Records(tmp_path_factory.mktemp("one"))
    list(engine.run(trials, records, lambda name, _: load_named(name), device="cpu"))
    return figures_of(records)


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


def run(trials, records):
    executor = Inline(records)
    return executor, list(driven(trials, records, executor))


def test_a_unit_has_the_trials_of_a_block_of_seeds_that_train_alike():
    within = CATALOGUE["within/digits"]
    trials = [trial for name in ("shels", "shels-gaussian") for trial in within.trials(METHODS[name], 5)]
    sizes = [(len(unit.trials), sorted({t.seed for t in unit.trials})) for unit in planned_units(trials, 2)]
    assert sizes == [(4, [0, 1]), (4, [2, 3]), (2, [4])]  # both methods judge the same networks


def test_the_id_follows_trials_and_code_and_not_the_order():
    first, second = CATALOGUE["within/digits"].trials(METHODS["shels"], 2)
    unit = Unit((first, second), "1")
    assert unit.id == Unit((second, first), "1").id
    others = [Unit((first,), "1"), Unit((first, second), "2"), Unit((replace(first, seed=7), second), "1")]
    assert len({unit.id, *(other.id for other in others)}) == 4


def test_the_code_version_follows_every_line_of_the_package(tmp_path, monkeypatch):
    before = code_version()
    package = tmp_path / "shels"
    package.mkdir()
    (package / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(units, "files", lambda name: package)
    first = code_version.__wrapped__()
    (package / "a.py").write_text("x = 2\n")
    assert len({before, first, code_version.__wrapped__()}) == 3


def test_units_come_to_the_figures_of_a_run_in_one_process(trials, wanted, records):
    executor, advances = run(trials, records)
    assert figures_of(records) == wanted
    assert len(executor.ran) == len(set(executor.ran)) == 2
    tally = next(each.tally for each in reversed(advances) if each.kind == "tally")
    assert (tally.waiting, tally.running, tally.done, tally.failed) == (0, (), 2, 0)
    left = sorted(path.suffix for path in executor.folder.path.iterdir())
    assert left == [".json"] * 2 + [".jsonl"] * 2  # neither notes nor checkpoints


def test_a_unit_that_others_have_done_is_taken_up_and_not_run(trials, wanted, records):
    folder = UnitFolder(records.directory)
    first, *others = planned_units(trials, 1)
    folder.plan([first])
    run_unit(folder, first.id, "elsewhere", device="cpu")
    assert not records.any()  # only the driver writes there
    executor, _ = run(trials, records)
    assert sorted(executor.ran) == sorted(unit.id for unit in others)
    assert figures_of(records) == wanted


def test_a_run_in_this_process_takes_up_what_units_have_done(trials, wanted, records, monkeypatch):
    run(trials, records)
    records.path.unlink()
    monkeypatch.setattr(engine, "run_all", None)  # nothing may be run
    here = InProcess(records, lambda name, _: load_named(name), "cpu")
    assert len([each for each in driven(trials, records, here) if each.kind == "finished"]) == len(wanted)
    assert figures_of(records) == wanted


def test_units_of_other_code_are_neither_taken_up_nor_run(trials, records):
    folder, unit = UnitFolder(records.directory), replace(planned_units(trials, 1)[0], code="0.0+1")
    folder.plan([unit])
    assert folder.planned() == []
    with pytest.raises(DataError, match=r"is of version 0\.0\+1, and .* runs here; plan again"):
        run_unit(folder, unit.id, "here")


def test_a_unit_that_always_fails_leaves_the_others_alone(trials, wanted, records):
    bad = replace(trials[0], known=(0, 1, 99), seed=5)
    _, advances = run([bad, *trials], records)
    [failed] = [each for each in advances if each.kind == "failed"]
    assert failed.trials == (bad,)
    assert "99" in failed.message
    assert figures_of(records) == wanted
    again, _ = run([bad, *trials], records)
    assert len(again.ran) == 1  # and it is tried again


def test_an_error_that_nobody_expected_is_told_by_its_first_line(trials, records, monkeypatch):
    def broken(*given):
        raise ZeroDivisionError("by nought\nand more")

    monkeypatch.setattr(engine, "run_all", broken)
    _, advances = run(trials[:1], records)
    [failed] = [each for each in advances if each.kind == "failed"]
    assert failed.message == "ZeroDivisionError: by nought"


def full(*given):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_of_a_worker_is_said_and_leaves_no_half_file(trials, records, monkeypatch):
    unit = planned_units(trials[:1], 1)[0]
    folder = UnitFolder(records.directory)
    folder.plan([unit])
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        _, advances = run(trials[:1], records)
    [failed] = [each for each in advances if each.kind == "failed"]
    assert "No space left on device" in failed.message
    assert str(folder.path) in failed.message
    assert not folder.is_done(unit)
    assert not list(folder.path.glob(".*.jsonl.*"))
    run(trials[:1], records)
    assert len(figures_of(records)) == 1


def test_a_full_disk_of_the_driver_loses_no_unit(trials, wanted, records, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Records, "append", lambda *_: (_ for _ in ()).throw(ModelFileError("the disk is full")))
        _, advances = run(trials, records)
    messages = {each.message for each in advances if each.kind == "failed"}
    assert messages == {"the disk is full"}
    again, _ = run(trials, records)
    assert again.ran == []
    assert figures_of(records) == wanted


def test_a_damaged_file_of_a_unit_is_run_again(trials, wanted, records):
    run(trials, records)
    records.path.unlink()
    folder = UnitFolder(records.directory)
    path = next(folder.path.glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.warns(UserWarning, match="was damaged and is removed"):
        again, _ = run(trials, records)
    assert again.ran == [path.stem]
    assert figures_of(records) == wanted


def test_a_file_that_does_not_come_is_said_to_lie_in_another_folder(trials, records, monkeypatch):
    monkeypatch.setattr(executors, "_SHARED", 0.0)
    monkeypatch.setattr(UnitFolder, "keep", lambda *_: None)
    _, advances = run(trials[:1], records)
    [failed] = [each for each in advances if each.kind == "failed"]
    assert "--out must be a folder that is the same on all nodes" in failed.message


def test_a_training_that_was_cut_off_goes_on_and_comes_to_the_same(trials, wanted, records, monkeypatch):
    unit = planned_units(trials[:1], 1)[0]
    folder, honest = UnitFolder(records.directory), engine.run_all
    folder.plan([unit])

    def cut_off(*given):
        for advance in honest(*given):
            if advance.kind == "measuring":
                raise KeyboardInterrupt
            yield advance

    monkeypatch.setattr(engine, "run_all", cut_off)
    with pytest.raises(KeyboardInterrupt):
        run_unit(folder, unit.id, "here", device="cpu")
    assert list(folder.scratch(unit).rglob("*.safetensors"))
    monkeypatch.setattr(engine, "run_all", honest)
    run(trials[:1], records)
    key = trials[0].key
    assert figures_of(records) == {key: wanted[key]}
    assert not folder.scratch(unit).exists()


# Processes on this machine ------------------------------------------------------------------------------


def test_a_process_that_dies_takes_its_unit_alone_and_the_same_command_ends_it(trials, wanted, records):
    pool = ProcessPool(records, Terms(device="cpu"), 1, count=2)
    killed, failed = False, []
    for advance in driven(trials, records, pool):
        if not killed and pool._workers and pool._workers[0].unit:
            os.kill(pool._workers[0].process.pid, signal.SIGKILL)
            killed = True
        failed += [advance] if advance.kind == "failed" else []
    assert [each.message for each in failed] == ["its process died (SIGKILL)"]
    assert len(figures_of(records)) == len(trials) - len(failed[0].trials)
    run(trials, records)
    assert figures_of(records) == wanted


# The commands -------------------------------------------------------------------------------------------

DIGITS = ["within/digits", "--trials", 2, "--epochs", 1]


def test_units_are_planned_run_by_their_ids_and_taken_up_by_the_same_command(tmp_path, monkeypatch):
    out = ["--out", tmp_path / "r"]
    planned = shels("reproduce", *DIGITS, "--plan", *out).stdout.split()
    assert len(planned) == 2
    listed = done("reproduce", *DIGITS, "--plan", *out)["units"]
    assert [(each["id"], each["seeds"]) for each in listed] == [(planned[0], [0]), (planned[1], [1])]
    for name in planned:
        assert shels("reproduce", "--unit", name, "--device", "cpu", *out).exit_code == 0
    assert "done before" in shels("reproduce", "--unit", planned[0], *out).stdout
    assert shels("reproduce", *DIGITS, "--plan", *out).stdout == ""  # nothing is left to be done
    monkeypatch.setattr(engine, "run_all", None)
    document = done("reproduce", *DIGITS, "--device", "cpu", "--no-report", *out)
    assert (document["done"], document["wanted"]) == (2, 2)


def test_a_unit_that_nobody_planned_is_refused_with_the_command_that_plans(tmp_path):
    message = fails(1, "reproduce", "--unit", "ab", "--out", tmp_path)
    assert f"has no unit 'ab'; `shels reproduce EXPERIMENT --plan --out {tmp_path}`" in message
    with pytest.raises(MissingDataError):
        UnitFolder(tmp_path).unit("ab")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["within/digits", "--cluster", "ray://h:1"], "ray job submit --address http://h:8265"),
        (["within/digits", "--cluster", "auto", "--processes", 2], "--cluster and --processes contradict"),
        (["within/digits", "--unit", "ab"], "--unit and EXPERIMENT contradict"),
        (["within/digits", "--processes", 0], "--processes must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_run(tmp_path, given, message):
    assert message in fails(2, "reproduce", *given, "--device", "cpu", "--out", tmp_path)


def test_a_command_without_cluster_imports_no_ray(tmp_path):
    arguments = ["reproduce", "within/digits", "--trials", "1", "--epochs", "1", "--device", "cpu"]
    arguments += ["--no-report", "--out", str(tmp_path)]
    code = (
        "import sys\nfrom shels.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "sys.exit(any(name.partition('.')[0] == 'ray' for name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 1

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace

import pytest

from shels.errors import DataError, MissingDataError, ModelFileError, ShelsError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.records import Records
from shels.experiments.trials import TrialResult

TRIALS = CATALOGUE["within/digits"].trials(METHODS["shels"], 30)
IMPORTS = """
import os, signal, sys
from pathlib import Path
from shels.experiments.records import Records
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.trials import TrialResult
trials = CATALOGUE["within/digits"].trials(METHODS["shels"], 30)
records = Records(Path(sys.argv[1]))
def result(seed, size=10):
    return TrialResult(trials[seed], {"auroc": 0.9}, 1.0, "cpu", {}, {"checks": ["x" * 10] * size})
"""


def result(seed, auroc=0.9):
    return TrialResult(TRIALS[seed], {"auroc": auroc}, 1.0, "cpu", {"shels": "0"}, {"stacked": 2})


@contextmanager
def running(script, *arguments):
    """Run a script in a process of its own, which is killed at the end."""
    command = [sys.executable, "-c", IMPORTS + script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def records(tmp_path):
    """Three results in a log."""
    records = Records(tmp_path / "out")
    for seed in range(3):
        records.append(result(seed))
    return records


def seeds(records):
    """Read anew from disk, where a warning is an error."""
    return [each.trial.seed for each in Records(records.directory).results()]


def test_results_come_back_whole_and_in_order(records):
    assert Records(records.directory).results() == records.results() == [result(seed) for seed in range(3)]


def test_the_log_is_one_line_of_json_a_result(records):
    lines = (records.directory / "trials.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [result(seed).record() for seed in range(3)]


def test_a_trial_is_found_by_all_that_decides_it(records):
    assert records.find(TRIALS[1]) == result(1)
    assert records.find(TRIALS[5]) is None
    shorter = CATALOGUE["within/digits"].trials(METHODS["shels"], 2, epochs=1)[1]
    assert records.find(shorter) is None


def test_of_a_trial_written_twice_the_last_counts_and_comes_last(records):
    records.append(result(0, auroc=0.5))
    for each in (records, Records(records.directory)):
        assert each.find(TRIALS[0]).metrics == {"auroc": 0.5}
        assert [found.trial.seed for found in each.results()] == [1, 2, 0]


def test_what_another_writes_is_seen(records):
    assert records.find(TRIALS[4]) is None
    Records(records.directory).append(result(4))
    assert records.find(TRIALS[4]) == result(4)
    Records(records.directory).append(result(6))
    records.append(result(5))
    assert [found.trial.seed for found in records.results()] == [0, 1, 2, 4, 6, 5]


def test_no_results_at_all_name_the_command_that_makes_them(tmp_path):
    with pytest.raises(MissingDataError, match=f"shels reproduce EXPERIMENT --out {tmp_path}"):
        Records(tmp_path).results()
    assert Records(tmp_path).find(TRIALS[0]) is None
    assert list(tmp_path.iterdir()) == []


def test_making_records_touches_nothing(tmp_path):
    Records(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_last_line_cut_off_anywhere_is_left_out_and_the_next_does_not_stick_to_it(records):
    whole = records.path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for end in [*range(start, len(whole), 37), len(whole) - 2]:
        records.path.write_bytes(whole[:end])
        assert seeds(records) == [0, 1]
        records.append(result(7))
        assert seeds(records) == [0, 1, 7]
        assert records.path.read_bytes().count(b"\n") == 3


def test_a_last_line_that_lacks_its_end_alone_is_kept(records):
    records.path.write_bytes(records.path.read_bytes()[:-1])
    assert seeds(records) == [0, 1, 2]
    records.append(result(7))
    assert seeds(records) == [0, 1, 2, 7]


def test_a_log_of_nothing_but_a_cut_off_line_starts_afresh(records):
    records.path.write_bytes(records.path.read_bytes()[:50])
    assert seeds(records) == []
    records.append(result(7))
    assert seeds(records) == [7]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"experiment": "within',
        b"\x00\x00\xff",
        b"[1, 2]",
        b'"text"',
        b"{}",
        json.dumps(result(1).record() | {"known": 5}).encode(),
        json.dumps(result(1).record() | {"settings": {}}).encode(),
        json.dumps(result(1).record() | {"metrics": {"auroc": float("nan")}}).encode(),
    ],
)
def test_a_damaged_line_in_the_middle_is_left_out_with_a_warning_that_names_it(records, damage):
    lines = records.path.read_bytes().split(b"\n")
    records.path.write_bytes(b"\n".join([lines[0], damage, *lines[2:]]))
    with pytest.warns(UserWarning, match=r"trials\.jsonl, line 2 is left out") as caught:
        found = Records(records.directory).results()
    assert [each.trial.seed for each in found] == [0, 2]
    assert caught[0].filename == __file__


def test_empty_lines_do_no_harm(records):
    records.path.write_bytes(records.path.read_bytes().replace(b"\n", b"\n\n"))
    assert seeds(records) == [0, 1, 2]


def test_what_json_cannot_hold_is_refused_and_leaves_the_log_alone(records):
    before = records.path.read_bytes()
    for bad in (result(4, auroc=float("nan")), replace(result(4), details={"net": object()})):
        with pytest.raises(DataError, match=r"within/digits, shels, seed 4 cannot be written"):
            records.append(bad)
    assert records.path.read_bytes() == before


def test_a_named_pipe_in_place_of_the_results_is_refused_and_not_waited_on(tmp_path):
    os.mkfifo(tmp_path / "trials.jsonl")
    with pytest.raises(DataError, match=r"trials\.jsonl is a named pipe, not a file"):
        Records(tmp_path).results()


def test_a_directory_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for directory in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ModelFileError, match="cannot be written to"), Records(directory).held():
            pytest.fail("work was done")


def test_a_log_that_is_a_directory_is_told(tmp_path):
    (tmp_path / "trials.jsonl").mkdir()
    with pytest.raises(DataError, match="is a directory, not a file"):
        Records(tmp_path).results()
    with pytest.raises(ModelFileError, match="cannot be written to"):
        Records(tmp_path).append(result(0))


def test_one_run_at_a_time_holds_a_directory(records):
    other = Records(records.directory)
    with records.held():
        with pytest.raises(ShelsError, match="another run is writing"), other.held():
            pytest.fail("two runs hold it")
        with pytest.raises(ShelsError, match="another run is writing"):
            other.append(result(9))
        assert len(other.results()) == 3
        with records.held():
            records.append(result(4))
        with pytest.raises(ShelsError, match="another run is writing"):  # the inner one let go of nothing
            other.append(result(9))
    other.append(result(9))
    assert seeds(records) == [0, 1, 2, 4, 9]


def test_another_process_is_kept_out_until_this_one_dies_by_any_death(records):
    script = "with records.held(): print('held', flush=True); signal.pause()"
    with running(script, records.directory) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ShelsError, match="another run is writing"):
            records.append(result(4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        records.append(result(4))
    assert seeds(records) == [0, 1, 2, 4]


def test_two_processes_that_write_as_they_can_lose_nothing(tmp_path):
    script = """
import time
from shels.errors import ModelFileError
for seed in range(int(sys.argv[2]), 30, 2):
    while True:
        try:
            records.append(result(seed, 2000))
            break
        except ModelFileError:
            time.sleep(0.001)
"""
    with running(script, tmp_path, 0) as even, running(script, tmp_path, 1) as odd:
        assert even.wait(60) == odd.wait(60) == 0
    assert sorted(seeds(Records(tmp_path))) == list(range(30))


# Under this limit the system writes as much of the line as fits, and no more: a disk that is full.
FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (records.path.stat().st_size + 700,) * 2)
"""


def test_a_line_that_does_not_fit_on_the_disk_is_not_there_at_all(records):
    before = records.path.read_bytes()
    script = f"""{FULL}
from shels.errors import ModelFileError
try:
    records.append(result(4, 200))
except ModelFileError as error:
    print(error)
"""
    with running(script, records.directory) as process:
        said = process.stdout.read()
    assert "cannot be written to" in said
    assert "unharmed" in said
    assert records.path.read_bytes() == before


def test_killed_with_half_a_line_on_disk_the_log_is_read_and_goes_on(records):
    before = records.path.read_bytes()
    script = f"""{FULL}
os.ftruncate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
records.append(result(4, 200))
"""
    with running(script, records.directory) as process:
        assert process.wait(60) == -signal.SIGKILL
    assert len(records.path.read_bytes()) == len(before) + 700
    assert seeds(records) == [0, 1, 2]
    records.append(result(4))
    assert seeds(records) == [0, 1, 2, 4]
    assert records.path.read_bytes().startswith(before)


def test_killed_at_any_moment_the_log_holds_whole_results_in_order(tmp_path):
    records = Records(tmp_path)
    script = """
print("ready", flush=True)
for seed in range(30):
    records.append(result(seed, 20_000))
"""
    chance = random.Random(0)
    for _ in range(4):
        with running(script, tmp_path) as process:
            process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = seeds(records) if records.path.exists() else []
        assert len(found) == len(set(found))
        records.append(result(29))
        assert seeds(records)[-1] == 29
        records.path.unlink()


def test_looking_for_trials_between_writes_reads_the_log_once(records, monkeypatch):
    records.results()
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda _: pytest.fail("read again"))
    for seed in range(10, 20):
        assert records.find(TRIALS[seed]) is None
        records.append(result(seed))
        assert records.find(TRIALS[seed]) == result(seed)

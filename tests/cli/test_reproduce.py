"""`shels reproduce` as a user meets it, with an engine that only pretends to train."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from shels import runtime
from shels.cli import live_table
from shels.cli.display import duration
from shels.cli.live_table import LEGEND, LiveTable, seeds, time_line, trial_line
from shels.data import sources
from shels.experiments import engine
from shels.experiments.advances import Advance, Tally
from shels.experiments.catalogue import CATALOGUE, FAMILIES
from shels.experiments.records import Records
from shels.experiments.status import RunStatus
from shels.experiments.trials import MEASURES
from tests.cli.commands import fails, shels
from tests.experiments.pretended import learned, result_of, trials_of

DIGITS = ["reproduce", "within/digits", "--device", "cpu", "--no-report"]


class Engine:
    """Runs like the real one: method by method, a stack each, every result on disk before it is told.

    fail: experiments that do not work. stop_after: finished trials before somebody presses Ctrl-C.
    """

    def __init__(self, fail=(), stop_after=None):
        self.fail, self.stop_after = set(fail), stop_after
        self.asked, self.options = [], []

    def run(self, trials, records, source, *, device="auto", most_together=None):
        self.asked.append([(trial.experiment, trial.method, trial.seed) for trial in trials])
        self.options.append((device, most_together))
        finished = 0
        for key in dict.fromkeys((trial.experiment, trial.method) for trial in trials):
            stack = tuple(trial for trial in trials if (trial.experiment, trial.method) == key)
            yield Advance("loading", stack)
            yield Advance("training", stack, 0.5)
            if key[0] in self.fail:
                yield Advance("failed", stack, message="the loss became nan")
                continue
            yield Advance("measuring", stack, 0.9)
            for trial in stack:
                if finished == self.stop_after:
                    raise KeyboardInterrupt
                finished += 1
                records.append(result_of(trial))
                yield Advance("finished", (trial,), 1.0, result_of(trial))


@pytest.fixture
def pretend(monkeypatch):
    """Return a function that puts an engine in the place of the real one."""

    def put(**behaviour):
        fake = Engine(**behaviour)
        monkeypatch.setattr(engine, "run", fake.run)
        return fake

    return put


@pytest.fixture
def weights(tmp_path):
    """A file that seems to hold VGG16's pretrained weights."""
    path = tmp_path / "files/vgg16.safetensors"
    path.parent.mkdir()
    save_file({"x": np.zeros(1)}, path)
    return path


@pytest.fixture
def data_dir(tmp_path):
    """A data directory in which every named set seems to lie."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in sources.NAMED:
        np.savez(folder / f"{name}.npz", y_train=np.zeros(1, int), y_test=np.zeros(1, int))
    return folder


def test_the_help_has_examples_and_fits_80_columns():
    result = shels("reproduce", "--help")
    assert "\n shels reproduce within/digits" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_each_trial_gets_a_line_and_the_table_comes_last(tmp_path, pretend):
    fake = pretend()
    methods = ["--methods", "shels,standard-linear", "--together", 2]
    result = shels(*DIGITS, "--trials", 2, *methods, "--out", tmp_path / "r")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1] == (
        "2/4 within/digits shels trial 1: known 51.0 %, novel 51.0 %, combined 51.0 %, AUROC 51.0 %, 2.0 s"
    )
    table = result.stdout[result.stdout.index("experiment") :]
    assert len(re.findall(r"within/digits +2/2 +50\.5±0\.7", table)) == 2
    assert "shels, done" in table
    assert "standard-linear, done" in table
    assert f"results      {tmp_path / 'r/trials.jsonl'}" in lines
    assert fake.options == [("cpu", 2)]


def test_trials_on_record_are_never_run_again(tmp_path, pretend):
    fake = pretend()
    assert shels(*DIGITS, "--trials", 2, "--out", tmp_path).exit_code == 0
    more = shels(*DIGITS, "--trials", 3, "--out", tmp_path)
    assert f"2 of 3 trials are in {tmp_path / 'trials.jsonl'} already" in more.stderr
    assert shels(*DIGITS, "--trials", 3, "--out", tmp_path).exit_code == 0
    assert fake.asked[1:] == [[("within/digits", "shels", 2)]]


def test_another_length_of_training_makes_other_trials(tmp_path, pretend):
    fake = pretend()
    assert shels(*DIGITS, "--trials", 1, "--out", tmp_path).exit_code == 0
    assert shels(*DIGITS, "--trials", 1, "--epochs", 1, "--out", tmp_path).exit_code == 0
    assert [trial.settings.training.epochs for trial in _on_record(tmp_path)] == [None, 1]
    assert len(fake.asked) == 2


def test_a_failed_stack_leaves_the_others_and_is_tried_again(tmp_path, pretend, data_dir):
    pretend(fail=["within/svhn"])
    command = ["reproduce", "within/svhn", "within/digits", "--trials", 2, "--no-report"]
    command += ["--methods", "shels", "--out", tmp_path / "r", "--data-dir", data_dir]
    result = shels(*command)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "failed: within/svhn shels 0-1: the loss became nan",
        "error: 2 of 4 trials have no result; the same command tries them again",
        "  within/svhn shels, trial 0-1: the loss became nan",
    ]
    assert "shels, 2 failed" in result.stdout
    again = pretend()
    assert shels(*command).exit_code == 0
    assert again.asked == [[("within/svhn", "shels", 0), ("within/svhn", "shels", 1)]]


def test_json_is_one_document_also_where_trials_fail(tmp_path, pretend, data_dir):
    pretend(fail=["within/svhn"])
    names = ["within/svhn", "across/mnist-fmnist", "--trials", 2, "--data-dir", data_dir]
    names += ["--methods", "shels"]
    result = shels("reproduce", *names, "--no-report", "--json", "--out", tmp_path / "r")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["done"] == 2
    assert document["report"] == []
    svhn, across = document["rows"]
    assert svhn["missing"] == [{"trial": n, "reason": "the loss became nan"} for n in (0, 1)]
    assert svhn["metrics"]["auroc"]["published"]["contains_ours"] is None
    known = across["metrics"]["known_accuracy"]
    assert known["mean"] == pytest.approx(0.505)
    assert known["n"] == 2
    assert known["published"] == {"mean": 0.8465, "sd": 0.0042, "contains_ours": False}


def test_interrupted_it_says_what_is_safe_and_goes_on(tmp_path, pretend):
    pretend(stop_after=2)
    result = shels(*DIGITS, "--trials", 3, "--out", tmp_path)
    assert result.exit_code == 1
    assert result.stderr == (
        f"interrupted: 2 of 3 trials are done, and safe in {tmp_path / 'trials.jsonl'}; "
        "the same command goes on with the others\n"
    )
    again = pretend()
    assert shels(*DIGITS, "--trials", 3, "--out", tmp_path).exit_code == 0
    assert again.asked == [[("within/digits", "shels", 2)]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["within/fmnits"], "did you mean 'within/fmnist'?"),
        (["within/digits", "--methods", "shels,shel-gaussian"], "did you mean 'shels-gaussian'?"),
        (["within/digits", "--methods", ","], "--methods names no method"),
        (["within/digits", "--methods", "ewc,replay"], "within/digits is about detection"),
        (
            ["incremental/digits", "--methods", "post-hoc"],
            "choose from: gaussian, gaussian-rectified, proximal, penalty, maha",
        ),
        (["paper", "incremental/digits", "--methods", "shels"], "incremental/digits is about learning"),
        (["incremental", "--methods", "shels"], "incremental/mnist is about learning"),
        ([], "name an experiment, such as within/fmnist"),
        (["within/digits", "--precision", "float16"], "unknown precision 'float16'"),
        (["within/digits", "--precision", "bfloat16"], "--precision bfloat16 needs a GPU"),
        (["within/digits", "--together", 0], "--together must be 1 or more, got 0"),
        (["within/digits", "--trials", 0], "1 or more, got 0"),
        (["within/digits", "--epochs", 0], "epochs must be"),
        (["within/digits", "--device", "tpu"], "device must be"),
        (["within/digits", "--weights", "vgg16.safetensors"], "none of these does"),
    ],
)
def test_wrong_words_are_refused_before_anything_happens(tmp_path, pretend, given, said):
    fake = pretend()
    assert said in fails(2, "reproduce", *given, "--out", tmp_path / "r")
    assert fake.asked == []
    assert not (tmp_path / "r").exists()


def methods_of(fake):
    """Which methods each experiment was run with."""
    found = {}
    for experiment, method, _ in fake.asked[0]:
        found.setdefault(experiment, []).append(method)
    return found


BOTH = ["reproduce", "within/digits", "incremental/digits", "--trials", 1, "--no-report"]


def test_each_experiment_takes_the_usual_methods_of_its_task(tmp_path, pretend):
    fake = pretend()
    result = shels(*BOTH, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    own = ["gaussian", "gaussian-rectified", "proximal", "penalty"]
    assert methods_of(fake) == {"within/digits": ["shels"], "incremental/digits": own}
    assert "note:" not in result.stderr


def test_a_family_of_both_tasks_gives_each_experiment_its_own(tmp_path, pretend):
    fake = pretend()
    result = shels(*BOTH, "--methods", "own,msp,bounds", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert methods_of(fake) == {
        "within/digits": ["shels", "shels-gaussian", "shels-fused", "shels-fused-learned", "msp"],
        "incremental/digits": ["gaussian", "gaussian-rectified", "proximal", "penalty", "fine-tune", "joint"],
    }


def test_experiments_of_a_family_that_no_method_suits_are_left_out_with_one_note_a_task(
    tmp_path, pretend, data_dir, weights
):
    fake = pretend()
    command = ["reproduce", "paper", "--trials", 1, "--no-report", "--data-dir", data_dir]
    result = shels(*command, "--methods", "ewc,msp,maha-agent", "--out", tmp_path / "r", "--weights", weights)
    assert result.exit_code == 0, result.output
    notes = [line for line in result.stderr.splitlines() if "left out" in line]
    assert notes == []
    assert len(methods_of(fake)) == len(FAMILIES["paper"])
    fake = pretend()
    result = shels(*command, "--methods", "ewc", "--out", tmp_path / "s")
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: left out")]
    assert len(notes) == 2
    assert "none of --methods is for detection: within/mnist, within/fmnist" in notes[0]
    assert notes[1].endswith("none of --methods is for open-world: open-world/mnist, open-world/fmnist")
    assert set(methods_of(fake)) == {"incremental/mnist", "incremental/fmnist", "incremental/gtsrb"}


def test_without_methods_an_experiment_of_the_paper_is_run_with_those_that_it_is_about(
    tmp_path, pretend, data_dir
):
    fake = pretend()
    given = [
        "within/mnist",
        "incremental/gtsrb",
        "--no-report",
        "--data-dir",
        data_dir,
        "--out",
        tmp_path / "r",
    ]
    assert shels("reproduce", *given).exit_code == 0
    ran = methods_of(fake)
    assert list(dict.fromkeys(ran["within/mnist"])) == ["shels", "scaled-cosine", "shels-gaussian"]
    assert len(ran["within/mnist"]) == 30
    assert {"penalty", "ags-cl", "gdumb", "shels-gdumb", "slda", "joint"} < set(ran["incremental/gtsrb"])
    assert ran["incremental/gtsrb"].count("penalty") == 3  # as many trials as the paper has


def test_of_a_family_what_lacks_its_data_is_left_out_with_how_to_get_it(tmp_path, pretend, data_dir):
    fake = pretend()
    (data_dir / "svhn.npz").unlink()
    (data_dir / "gtsrb.npz").write_bytes(b"no archive")
    given = ["paper", "--trials", 1, "--methods", "shels", "--no-report", "--data-dir", data_dir]
    result = shels("reproduce", *given, "--out", tmp_path / "r")
    assert result.exit_code == 0, result.output
    ran = ["within/mnist", "within/fmnist", "within/cifar10", "within/cifar10@printed"]
    ran += ["across/mnist-fmnist", "across/fmnist-mnist"]
    assert [name for name in methods_of(fake) if name.startswith(("within/", "across/"))] == ran
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    left, absent, damaged, weights = notes[-4:]
    names = "within/svhn, within/gtsrb, within/gtsrb@trained-images, across/gtsrb-cifar10, "
    names += "across/gtsrb-cifar10@trained-images, across/gtsrb-svhn, across/gtsrb-svhn@trained-images"
    assert left.startswith(f"note: left out, as not all that they need is here: {names}, across/svhn-")
    assert "across/cifar10-svhn" in left
    assert absent.startswith(f"note: {data_dir} has no svhn; run `shels data download svhn`, or name another")
    assert "gtsrb.npz is not a whole .npz file" in damaged
    assert weights.endswith("weights are not given; name their file with --weights")


def test_an_experiment_of_a_family_that_is_also_named_must_have_its_data(tmp_path, pretend, data_dir):
    fake = pretend()
    (data_dir / "svhn.npz").unlink()
    given = ["within", "within/svhn", "--data-dir", data_dir, "--out", tmp_path / "r"]
    assert f"{data_dir} has no svhn; run `shels data download svhn`" in fails(1, "reproduce", *given)
    assert fake.asked == []


def test_a_family_of_which_nothing_is_here_is_an_error(tmp_path, pretend):
    fake = pretend()
    message = fails(1, "reproduce", "within", "--data-dir", tmp_path / "nowhere", "--out", tmp_path / "r")
    assert "nowhere has no mnist, no fmnist" in message
    assert fake.asked == []


def test_the_time_is_estimated_before_anything_runs(tmp_path, pretend, data_dir, monkeypatch):
    pretend()
    monkeypatch.setattr(runtime, "device_name", lambda place: "cpu")
    given = [
        "--methods",
        "shels",
        "--no-report",
        "--data-dir",
        data_dir,
        "--out",
        tmp_path / "r",
        "--device",
        "cpu",
    ]
    unknown = shels("reproduce", "within/mnist", "--trials", 2, *given)
    assert "estimate" not in unknown.stderr
    known = shels("reproduce", "within/mnist", "within/fmnist", "--trials", 7, *given)
    said = "estimate: about 10 s for 5 trials, by what such took; unknown for 7 trials, as none like them"
    assert f"{said} was timed on cpu" in known.stderr.splitlines()
    other = shels("reproduce", "within", "--trials", 1, "--epochs", 3, *given)
    number = len(FAMILIES["within"])
    assert (
        f"estimate: unknown for {number} trials, as none like them was timed on cpu"
        in other.stderr.splitlines()
    )


def test_a_method_that_no_experiment_asks_for_is_noted(tmp_path, pretend):
    fake = pretend()
    result = shels(*DIGITS, "--trials", 1, "--methods", "shels,ewc,own", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "note: left out, as no experiment asks for learning: ewc\n" in result.stderr
    own = ["shels", "shels-gaussian", "shels-fused", "shels-fused-learned"]
    assert methods_of(fake) == {"within/digits": own}


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path, pretend):
    fake = pretend()
    (tmp_path / "file").write_text("mine")
    assert "cannot be written to" in fails(1, *DIGITS, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert fake.asked == []


@pytest.mark.parametrize("file", ["current", "model.json"])
def test_a_models_folder_is_no_place_for_results(tmp_path, pretend, file):
    (tmp_path / file).write_text("0001\n")
    (tmp_path / "events.jsonl").write_text('{"kind": "started"}\n')
    said = fails(1, *DIGITS, "--trials", 1, "--out", tmp_path)
    assert f"{tmp_path} holds a model; name another directory for results" in said
    assert {path.name for path in tmp_path.iterdir()} == {file, "events.jsonl"}


def test_a_folder_in_use_is_left_to_the_other_run(tmp_path, pretend):
    fake = pretend()
    with Records(tmp_path).held():
        assert "another run" in fails(1, *DIGITS, "--out", tmp_path)
    assert fake.asked == []


def test_missing_data_are_named_all_at_once_with_how_to_get_them(tmp_path, pretend, data_dir):
    fake = pretend()
    for name in ("svhn", "gtsrb"):
        (data_dir / f"{name}.npz").unlink()
    given = ["within/mnist", "across/svhn-gtsrb", "--data-dir", data_dir, "--out", tmp_path / "r"]
    message = fails(1, "reproduce", *given)
    assert f"{data_dir} has no svhn, no gtsrb" in message
    assert "`shels data download svhn`, `shels data download gtsrb`" in message
    assert fake.asked == []
    assert not (tmp_path / "r").exists()


def test_damaged_data_are_refused_before_training(tmp_path, pretend, data_dir):
    pretend()
    (data_dir / "mnist.npz").write_bytes(b"no archive")
    given = ["within/mnist", "--data-dir", data_dir, "--out", tmp_path / "r"]
    assert "mnist.npz is not a whole .npz file" in fails(1, "reproduce", *given)


def test_finished_trials_need_no_data(tmp_path, pretend, data_dir):
    pretend()
    command = ["reproduce", "within/mnist", "--trials", 1, "--no-report", "--out", tmp_path / "r"]
    assert shels(*command, "--data-dir", data_dir).exit_code == 0
    assert shels(*command, "--data-dir", tmp_path / "nowhere").exit_code == 0


def test_weights_go_to_vgg16_alone(tmp_path, pretend, data_dir):
    pretend()
    weights = tmp_path / "vgg16.safetensors"
    given = ["reproduce", "across/cifar10-svhn", "within/mnist", "--trials", 1, "--no-report"]
    given += ["--data-dir", data_dir, "--out", tmp_path / "r", "--weights", weights, "--methods", "shels"]
    assert "does not exist" in fails(1, *given)
    save_file({"x": np.zeros(1)}, weights)
    assert shels(*given).exit_code == 0
    assert [trial.settings.network.weights for trial in _on_record(tmp_path / "r")] == [str(weights), None]


def test_vgg16_without_weights_is_noted(tmp_path, pretend, data_dir):
    pretend()
    given = ["across/cifar10-svhn", "--trials", 1, "--no-report", "--data-dir", data_dir]
    result = shels("reproduce", *given, "--out", tmp_path / "r")
    assert "note: VGG16 starts fresh in across/cifar10-svhn" in result.stderr


def test_the_report_covers_all_that_the_folder_holds(tmp_path, pretend, monkeypatch):
    pretend()
    given = []

    def write(results, directory):
        given.append(len(results))
        return [directory / "summary.csv", directory / "report.html"]

    monkeypatch.setattr("shels.report.experiments.write_report", write)
    for method in ("shels", "standard-linear"):
        command = ["reproduce", "within/digits", "--trials", 2, "--methods", method, "--out", tmp_path]
        result = shels(*command)
        assert result.exit_code == 0, result.output
        assert f"report       {tmp_path / 'report.html'}" in result.stdout
    assert given == [2, 4]


def test_a_trial_that_two_folders_hold_is_counted_once(tmp_path, pretend):
    pretend()
    command = ["reproduce", "within/digits", "--trials", 2, "--methods", "shels", "--no-report"]
    assert shels(*command, "--out", tmp_path / "run").exit_code == 0
    assert shels("report", tmp_path / "run", "--pack", tmp_path / "packed").exit_code == 0
    again = shels("report", tmp_path / "run", tmp_path / "packed", "--pack", tmp_path / "both")
    assert again.stdout.startswith("2 trials of 1 experiment")


def test_a_report_that_fails_costs_no_result(tmp_path, pretend, monkeypatch):
    pretend()

    def write(results, directory):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shels.report.experiments.write_report", write)
    result = shels("reproduce", "within/digits", "--trials", 1, "--json", "--out", tmp_path)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["done"] == 1
    assert "the results are safe, but the report could not be written" in result.stderr


def test_the_list_names_experiments_families_and_methods():
    shown = shels("reproduce", "--list", columns=160).stdout
    assert "across/mnist-fmnist" in shown
    assert f"{len(FAMILIES['paper'])} experiments at once" in shown
    lines = [line.split() for line in shown.splitlines()]
    place = next(n for n, words in enumerate(lines) if words[:1] == ["within/gtsrb"])
    assert lines[place + 1][:2] == ["within/gtsrb@trained-images", "detection"]
    assert lines[place + 1][-4:] == ["…", "on", "trained", "images"]
    assert "shels-gaussian" in shown
    assert "14 methods at once" in shown
    narrow = [line.split() for line in shels("reproduce", "--list", columns=80).stdout.splitlines()]
    assert ["within/gtsrb@trained-images", "10", "…", "on", "trained", "images"] in narrow
    listed = json.loads(shels("reproduce", "--list", "--json").stdout)
    shels_row = {"name": "shels", "title": "SHELS", "task": "detection", "family": "own"}
    assert shels_row in listed["methods"]
    assert {each["task"] for each in listed["experiments"]} == {"detection", "learning", "open-world"}
    assert {each["trials"] for each in listed["experiments"]} >= {3, 10}
    assert listed["families"]["within"][0] == "within/mnist"
    bases = {each["name"]: each["base"] for each in listed["experiments"]}
    assert bases["within/cifar10@printed"] == bases["within/cifar10"] == "within/cifar10"
    assert listed["method_families"]["closed-form"][:4] == ["maha", "slda", "fecam", "ranpac"]


def test_names_in_the_list_are_never_broken_to_be_copied():
    shown = shels("reproduce", "--list", columns=80).stdout
    assert all(name in shown for name in CATALOGUE)


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 24 lines, and what is written to it."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=24, highlight=False)
    monkeypatch.setattr(live_table, "results", lambda: console)
    return console


def _shown(console, view):
    with console.capture() as shown:
        console.print(view)
    return shown.get()


def test_in_a_terminal_the_table_stays_in_place(tmp_path, pretend, terminal):
    pretend()
    result = shels(*DIGITS, "--trials", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "trial 1:" not in result.stdout
    screen = terminal.file.getvalue()
    assert "\x1b[?25l" in screen  # the cursor is hidden while the table is drawn over and over
    assert "50.5±0.7" in screen


def test_the_live_table_tells_what_goes_on_beside_what_was_published(tmp_path, terminal):
    trials = [*trials_of("within/fmnist"), *trials_of("within/digits")]
    view = LiveTable(RunStatus(trials, Records(tmp_path)), quiet=False)
    view.update(Advance("training", tuple(trials[:3]), 0.43))
    shown = _shown(terminal, view)
    assert "shels, training 43 %" in shown
    assert "77.7±2.7" in shown
    assert "shels, waiting" in shown
    assert "0 of 6 trials done" in shown
    view.update(Advance("finished", tuple(trials[:1]), 1.0, result_of(trials[0])))
    assert "1/3" in _shown(terminal, view)


def test_the_live_table_tells_how_units_stand_and_where_they_run(tmp_path, terminal, capsys):
    trials = trials_of("within/digits")
    view = LiveTable(RunStatus(trials, Records(tmp_path)), quiet=False)
    for place, unit in enumerate("ab"):
        view.update(Advance("training", (trials[place],), 0.5, unit=unit))
    view.update(Advance("failed", (trials[0],), message="class 99 is not there", unit="a"))
    view.update(Advance("tally", (), tally=Tally(1, ("node2",), 0, 1)))
    view.update(Advance("note", (), message="node1 was lost"))
    shown = _shown(terminal, view)
    assert "1 unit waiting, 1 running (node2), 0 done, 1 failed" in shown
    assert "shels, training 50 %" in shown
    assert "left" in shown
    told = capsys.readouterr().err.splitlines()
    assert told == ["failed: within/digits shels 0: class 99 is not there", "note: node1 was lost"]


def test_a_mean_within_the_published_interval_is_marked(tmp_path, terminal):
    trial = trials_of("within/fmnist", count=1)[0]
    view = LiveTable(RunStatus([trial], Records(tmp_path)), quiet=False)
    result = replace(result_of(trial), metrics=dict(zip(MEASURES, (0.7768, 0.6, 0.9, 0.79), strict=True)))
    view.update(Advance("finished", (trial,), 1.0, result))
    shown = _shown(terminal, view)
    assert "✓77.7±2.7" in shown
    assert shown.count("✓") == 3


def test_rows_that_do_not_fit_give_way_to_those_under_way(tmp_path, terminal):
    names = [each.name for family in ("within", "across") for each in FAMILIES[family] if not each.variant]
    names.append("within/digits")
    trials = [trial for name in names for trial in trials_of(name, count=1)]
    view = LiveTable(RunStatus(trials, Records(tmp_path)), quiet=False)
    view.update(Advance("training", (trials[-1],), 0.2))
    shown = _shown(terminal, view)
    assert trials[-1].experiment in shown
    assert "and 6 more rows; 0 of all 14 are done" in shown
    assert len(shown.splitlines()) <= 24


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_time_left_comes_from_finished_trials_and_the_pace_of_the_stack(tmp_path):
    clock = Clock()
    digits, fmnist = trials_of("within/digits", count=4), trials_of("within/fmnist", count=2)
    status = RunStatus([*digits, *fmnist], Records(tmp_path), clock)
    assert status.left() == (0, 6)
    assert time_line(status).endswith("time left not known yet")
    stack = tuple(digits[:2])
    status.update(Advance("loading", stack))
    clock.now += 50  # loading does not count
    status.update(Advance("training", stack, 0.2))
    clock.now += 6
    status.update(Advance("training", stack, 0.5))
    assert status.left() == pytest.approx((10 + 2 * 10, 2))  # 20 s for two: ten left, ten for each to come
    clock.now += 10
    for trial in stack:
        status.update(Advance("finished", (trial,), 1.0, result_of(trial, seconds=7)))
    assert status.left() == pytest.approx((14, 2))
    assert time_line(status).endswith("over 14 s left: nothing is known yet of 2 trials")
    status.update(Advance("failed", tuple(fmnist), message="no"))
    assert status.left() == pytest.approx((14, 0))
    assert time_line(status) == "2 of 6 trials done, 1 min 06 s so far, about 14 s left"


def test_durations_and_numbers_are_written_as_people_say_them(tmp_path):
    assert [duration(s) for s in (0.4, 59.6, 185, 7800)] == ["0 s", "1 min 00 s", "3 min 05 s", "2 h 10 min"]
    trials = trials_of("within/digits", count=8)
    assert seeds(trials[:3] + trials[4:5] + trials[6:]) == "0-2, 4, 6-7"


def _on_record(directory):
    return [result.trial for result in Records(directory).results()]


def test_a_line_of_learning_tells_the_measures_of_learning():
    trial = trials_of("incremental/digits", "gaussian", count=2)[1]
    assert trial_line(learned(trial)) == (
        "incremental/digits gaussian trial 1: final 91.0 %, added 81.0 %, forgetting 6.0 %, "
        "with rejection 71.0 %, AUROC 96.0 %"
    )


@pytest.mark.parametrize("width", [80, 100])
def test_detection_and_learning_have_a_table_each_that_fits(tmp_path, monkeypatch, width):
    console = Console(file=io.StringIO(), width=width, height=24, color_system=None)
    monkeypatch.setattr(live_table, "results", lambda: console)
    learning = [*trials_of("incremental/fmnist", "gdumb-scratch"), *trials_of("incremental/gtsrb", "joint")]
    view = LiveTable(RunStatus([*trials_of("within/fmnist"), *learning], Records(tmp_path)), quiet=False)
    for trial in learning[:3]:
        view.update(Advance("finished", (trial,), 1.0, learned(trial)))
    lines = _shown(console, view).splitlines()
    assert len(lines) <= 24
    heads = [line.split() for line in lines if line.strip().startswith("experiment")]
    assert heads == [
        ["experiment", "done", "known", "novel", "combined", "AUROC"],
        ["experiment", "done", "final", "added", "forgetting", "rejection", "AUROC"],
    ]
    place = next(n for n, line in enumerate(lines) if "incremental/fmnist" in line)
    assert lines[place].split() == ["incremental/fmnist", "3/3", "91.0", "81.0", "6.0", "71.0", "96.0"]
    assert lines[place + 1].split() == ["gdumb-scratch,", "done", *["±1.0"] * 5]


def test_rows_of_both_kinds_that_do_not_fit_give_way_to_those_under_way(tmp_path, terminal):
    ways = {"detection": "shels", "learning": "gaussian"}
    names = [each.name for each in CATALOGUE.values() if each.task in ways and not each.variant]
    rows = [(name, ways[CATALOGUE[name].task]) for name in names if len(CATALOGUE[name].sweep) == 1]
    trials = [trial for row in rows for trial in trials_of(*row, 1)]
    view = LiveTable(RunStatus(trials, Records(tmp_path)), quiet=False)
    view.update(Advance("training", (trials[-1],), 0.2))
    shown = _shown(terminal, view)
    assert trials[-1].experiment in shown
    assert f"0 of all {len(trials)} are done" in shown
    assert len(shown.splitlines()) <= 24


def test_the_table_of_learning_that_stays_has_no_word_of_published_figures(tmp_path, capsys, terminal):
    trials = trials_of("incremental/mnist", "slda", count=1)
    view = LiveTable(RunStatus(trials, Records(tmp_path)), quiet=False)
    view.update(Advance("finished", tuple(trials), 1.0, learned(trials[0])))
    view.final()
    assert capsys.readouterr().out.strip() == LEGEND
    assert "90.0" in terminal.file.getvalue()

"""The command line as a user meets it: what it prints, where, and how it leaves."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from shels._version import __version__
from shels.cli.display import plain
from tests.cli.commands import fails, shels

TRAIN = ["train", "digits", "--known", "0,1,2", "--device", "cpu"]


def network_files(model):
    return sorted(path.name for path in model.glob("network-*.safetensors"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "model"
    result = shels(*TRAIN, "--steps", 40, "--out", out)
    assert result.exit_code == 0, result.output
    assert "classes      0, 1, 2\n" in result.stdout
    assert f"shels evaluate {out} digits" in result.stdout
    return out


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Two images each of the digits 0, 1, 2 and 7, in folders called so."""
    folder = tmp_path_factory.mktemp("pictures")
    digits = load_digits()
    for name in (0, 1, 2, 7):
        (folder / str(name)).mkdir()
        for row in np.flatnonzero(digits.target == name)[:2]:
            image = Image.fromarray((digits.images[row] * 15.9).astype(np.uint8))
            image.save(folder / str(name) / f"{row}.png")
    return folder


def test_ctrl_c_while_the_program_starts_is_one_line():
    interrupting = """
import builtins
from shels.cli import main

plain = builtins.__import__
def interrupted(name, *rest):
    if name == "shels.cli.app":
        raise KeyboardInterrupt
    return plain(name, *rest)
builtins.__import__ = interrupted
main()
"""
    run = subprocess.run([sys.executable, "-c", interrupting], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "error: interrupted\n")


def test_help_answers_without_importing_torch():
    code = "import sys, shels.cli.app; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "shels", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "evaluate" in shown.stdout
    assert "torch" not in shown.stderr


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["detect"], ["data"], ["demo"]])
def test_every_help_has_an_example_and_fits_80_columns(command):
    result = shels(*command, "--help")
    assert result.exit_code == 0
    assert f"\n shels {' '.join(command)}".rstrip() in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_no_command_shows_the_help_and_version_the_version():
    assert "Start here" in shels().stdout
    assert shels("--version").stdout == f"shels {__version__}\n"


def test_a_finished_training_leaves_a_model_and_no_checkpoint(model):
    names = sorted(path.name.split("-")[0] for path in model.iterdir())
    assert names.count("class") == 3
    rest = ["detector", "memory", "model.json", "network", "preparation", "projection"]
    assert [name for name in names if name != "class"] == rest


def test_train_prints_one_json_document(tmp_path):
    result = shels(*TRAIN, "--steps", 20, "--sd", 1, "--json", "--out", tmp_path / "m")
    document = json.loads(result.stdout)
    assert document["classes"] == [0, 1, 2]
    assert document["novel_classes"] == [3, 4, 5, 6, 7, 8, 9]
    assert document["steps"] == 20
    assert document["resumed_from"] is None
    assert json.loads((tmp_path / "m/model.json").read_text())["settings"]["rule"]["kind"] == "mean-minus-sd"


def test_the_authors_first_five_classes_are_known_by_default(tmp_path):
    result = shels("train", "digits", "--authors-order", 0, "--steps", 20, "--json", "--out", tmp_path / "m")
    assert json.loads(result.stdout)["classes"] == [9, 5, 2, 4, 7]


def test_options_are_laid_over_the_preset(tmp_path):
    extra = ["--epochs", 1, "--learning-rate", 0.01, "--batch-size", 16, "--alpha", 0, "--accept", 0.9]
    result = shels(*TRAIN, *extra, "--size", 12, "--json", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    settings = json.loads((tmp_path / "m/model.json").read_text())["settings"]
    assert settings["training"]["epochs"] == 1
    assert settings["training"]["steps"] is None
    assert "steps_by_root" not in settings["training"]
    assert settings["training"]["optimiser"]["learning_rate"] == 0.01
    assert settings["training"]["optimiser"]["schedule"]["kind"] == "cosine"
    assert settings["training"]["batch_size"] == 16
    assert settings["network"]["image_size"] == 12
    assert settings["rule"] == {"kind": "accept-share", "share": 0.9, "calibration": "separate"}


def test_a_finished_model_is_kept_unless_forced(model):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    message = fails(1, *TRAIN, "--steps", 20, "--out", model)
    assert "already holds a finished model" in message
    assert "--force" in message
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_force_replaces_a_model_by_the_new_one(tmp_path):
    for seed in (0, 1):
        result = shels(*TRAIN, "--steps", 10, "--seed", seed, "--force", "--out", tmp_path / "m")
        assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "m/model.json").read_text())["seed"] == 1


def test_a_folder_with_other_files_is_refused_before_training(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("shels.data.inputs.load_known", lambda *_, **__: pytest.fail("data were loaded"))
    assert "notes.txt" in fails(1, *TRAIN, "--out", tmp_path)


KILLED_AFTER_ONE_CHECKPOINT = """
import os, signal, sys
from shels.training import loop
from shels.cli import main

def write_and_die(contents):
    real(contents)
    os.kill(os.getpid(), signal.SIGKILL)

real, loop.write_together = loop.write_together, write_and_die
sys.argv = ["shels", *sys.argv[1:]]
main()
"""


def test_a_killed_training_goes_on_to_the_same_network(tmp_path):
    command = [*TRAIN, "--epochs", "12", "--out"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    died = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_ONE_CHECKPOINT, *command, str(cut)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # sums depend on it, in the last bit
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert not (cut / "model.json").exists()
    assert "was cut off" in fails(1, "evaluate", cut, "digits")
    assert "belongs to a training with other" in fails(1, *command, cut, "--seed", 5)
    resumed = shels(*command, cut)
    assert resumed.exit_code == 0, resumed.output
    assert "resuming from step " in resumed.stderr
    assert shels(*command, whole).exit_code == 0
    assert network_files(cut) == network_files(whole)
    assert not (cut / "checkpoint.safetensors").exists()


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A training of five epochs, stopped by Ctrl-C after the first, and what it said."""
    from shels.training import loop

    def stop(runs, *given):
        if runs[0].state.step:
            raise KeyboardInterrupt
        return real(runs, *given)

    real = loop._steps
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_steps", stop)
        result = shels(*TRAIN, "--epochs", 5, "--out", tmp_path / "m")
    assert result.exit_code == 1
    return tmp_path / "m", result.stderr


def test_an_interrupted_training_says_that_the_same_command_goes_on(interrupted):
    out, said = interrupted
    assert said.endswith("interrupted: the same command goes on from step 6\n")
    assert "resuming from step 6\n" in shels(*TRAIN, "--epochs", 5, "--out", out).stderr


def test_evaluate_shows_measures_and_classes(model):
    result = shels("evaluate", model, "digits")
    assert result.exit_code == 0, result.output
    assert "digits (test part): 162 of known classes, 378 novel" in result.stdout
    for word in ("known accuracy", "novel accuracy", "AUROC"):
        assert word in result.stdout


def test_evaluate_prints_one_json_document(model):
    document = json.loads(shels("evaluate", model, "digits", "--part", "train", "--json").stdout)
    assert document["part"] == "train"
    assert set(document["per_class"]) == {"0", "1", "2"}
    assert set(document["per_novel_class"]) == {"3", "4", "5", "6", "7", "8", "9"}
    assert 0 <= document["metrics"]["combined_accuracy"] <= 1


def test_a_folder_called_as_a_number_is_that_class(model, pictures):
    document = json.loads(shels("evaluate", model, pictures, "--json").stdout)
    assert document["part"] == "all"
    assert set(document["per_class"]) == {"0", "1", "2"}
    assert set(document["per_novel_class"]) == {"7"}


def test_novel_data_count_as_novel_whatever_their_classes(model, pictures):
    result = shels("evaluate", model, "digits", "--novel-data", pictures, "--json")
    document = json.loads(result.stdout)
    assert document["novel_samples"] == 8
    assert document["left_out_samples"] == 378
    assert set(document["per_novel_class"]) == {"0", "1", "2", "7"}


def test_evaluate_writes_the_report_it_is_asked_for(model, tmp_path):
    result = shels("evaluate", model, "digits", "--report", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "<html" in (tmp_path / "page.html").read_text()[:500]


def test_detect_gives_a_verdict_on_each_image(model, pictures):
    result = shels("detect", model, pictures / "0", pictures / "7", columns=160)
    assert result.exit_code == 0, result.output
    assert str(pictures / "0" / "0.png") in result.stdout
    assert result.stdout.splitlines()[-1].startswith("4 samples, ")


def test_detect_rows_agree_in_json_csv_and_file(model, pictures, tmp_path):
    document = json.loads(shels("detect", model, pictures, "--json").stdout)
    assert document["samples"] == len(document["rows"]) == 8
    printed = list(csv.DictReader(io.StringIO(shels("detect", model, pictures, "--csv", "-").stdout)))
    assert shels("detect", model, pictures, "--csv", tmp_path / "v.csv").exit_code == 0
    assert list(csv.DictReader(io.StringIO((tmp_path / "v.csv").read_text()))) == printed
    for row, line in zip(document["rows"], printed, strict=True):
        columns = ["source", "verdict", "predicted", "score", "threshold", "p_value", "novel", "reason"]
        assert list(line) == columns
        assert line["verdict"] == str(row["verdict"])
        assert row["novel"] == (row["score"] <= row["threshold"])
        assert row["verdict"] == ("novel" if row["novel"] else row["predicted"])


def test_names_that_are_no_utf_8_come_out_as_the_bytes_that_they_are_on_disk(model, pictures, tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff.png"
    shutil.copy(pictures / "0" / "0.png", odd)
    assert shels("detect", model, os.fsdecode(odd), "--csv", tmp_path / "v.csv").exit_code == 0
    assert odd in (tmp_path / "v.csv").read_bytes()
    assert odd in shels("detect", model, os.fsdecode(odd), "--csv", "-").stdout_bytes
    (row,) = json.loads(shels("detect", model, os.fsdecode(odd), "--json").stdout_bytes)["rows"]
    assert row["source"] == os.fsdecode(odd)


def test_a_list_goes_into_a_named_pipe_that_stays_one(model, pictures, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert shels("detect", model, pictures / "0", "--csv", pipe).exit_code == 0
        assert os.read(reader, 2**16).startswith(b"source,verdict,")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_only_novel_lists_only_what_is_novel(model, pictures):
    document = json.loads(shels("detect", model, pictures, "--only-novel", "--json").stdout)
    assert document["samples"] == 8
    assert len(document["rows"]) == document["novel"]
    assert all(row["verdict"] == "novel" for row in document["rows"])


@pytest.mark.parametrize("key", ["x", "x_test", "whatever"])
def test_detect_reads_arrays_row_by_row(model, tmp_path, key):
    np.savez(tmp_path / "new.npz", **{key: load_digits().images[:3] / 16})
    document = json.loads(shels("detect", model, tmp_path / "new.npz", "--json").stdout)
    assert [row["source"] for row in document["rows"]] == [f"{tmp_path / 'new.npz'}#{i}" for i in range(3)]


def test_images_for_a_padding_model_keep_their_own_size(tmp_path, pictures):
    out = tmp_path / "m"
    result = shels(*TRAIN, "--preset", "paper-mnist", "--architecture", "small", "--epochs", 1, "--out", out)
    assert result.exit_code == 0, result.output
    Image.new("L", (20, 20)).save(tmp_path / "big.png")
    alone = json.loads(shels("detect", out, pictures / "0", "--json").stdout)["rows"]
    mixed = json.loads(shels("detect", out, pictures / "0", tmp_path / "big.png", "--json").stdout)["rows"]
    assert [row["score"] for row in mixed[:2]] == pytest.approx([row["score"] for row in alone])


def test_data_lists_the_named_sets(tmp_path):
    document = json.loads(shels("data", "--data-dir", tmp_path, "--json").stdout)
    present = {each["name"]: each["present"] for each in document["sets"]}
    assert present["digits"]
    assert not present["mnist"]
    assert "comes with scikit-learn" in shels("data", "--data-dir", tmp_path, columns=160).stdout


def test_download_passes_the_directory_on(tmp_path, monkeypatch):
    from shels.data import download

    seen = []
    monkeypatch.setattr(download, "download", lambda *args: seen.append(args[:2]) or tmp_path)
    assert shels("data", "download", "mnist", "--data-dir", tmp_path / "a").exit_code == 0
    assert shels("data", "--data-dir", tmp_path / "b", "download", "mnist").exit_code == 0
    assert seen == [("mnist", tmp_path / "a"), ("mnist", tmp_path / "b")]


def test_demo_ends_with_where_to_look(tmp_path, monkeypatch):
    from shels import demo

    measures = {"known_accuracy": 0.9, "novel_accuracy": 0.8, "combined_accuracy": 0.85, "auroc": 0.97}
    result = {
        "known_classes": [0, 1, 2],
        "novel_classes": [3, 4],
        "found": [4],
        "missed": [3],
        "false_alarms": 0,
        "final_accuracy": float("nan"),
        "novel_accuracy": {},
        "detection": measures,
        "seconds": 2.0,
    }

    def run(*_, **__):
        yield from ()
        return result

    monkeypatch.setattr(demo, "run", run)
    shown = shels("demo", "--out", tmp_path / "d").stdout.splitlines()
    assert "noticed 1 of 2" in shown[-1]
    assert shown[-1].endswith(str(tmp_path / "d" / "report.html"))
    assert json.loads(shels("demo", "--json").stdout)["final_accuracy"] is None


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["trian", "digits"], "did you mean 'train'?"),
        (["data", "donwload", "mnist"], "did you mean 'download'?"),
        (["data", "download", "mnits"], "did you mean 'mnist'?"),
        ([*TRAIN, "--out", "x", "--preset", "papre"], "did you mean 'paper'?"),
        ([*TRAIN, "--out", "x", "--channels", "gray"], "did you mean 'grey'?"),
        ([*TRAIN, "--out", "x", "--depth-weights", "layerwise"], "did you mean 'layer-wise'?"),
        ([*TRAIN, "--out", "x", "--architecture", "smal"], "did you mean 'small'?"),
        ([*TRAIN, "--out", "x", "--learning", "1"], "--learning-rate"),
        (["reproduce", "within/shvn"], "did you mean 'within/svhn'?"),
        (["train", "digits", "--known", "0,11", "--out", "x"], "did you mean '1'?"),
    ],
)
def test_a_mistyped_name_is_wrong_usage_and_gets_the_nearest(args, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert meant in fails(2, *args)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "args",
    [["reproduce", "within/nope"], ["reproduce", "within/digits", "--methods", "shels-frob"], ["frobnicate"]],
)
def test_of_a_name_that_is_near_to_none_none_is_guessed(args):
    said = fails(2, *args)
    assert said.startswith("error: unknown ")
    assert "did you mean" not in said


@pytest.mark.parametrize(
    "args",
    [
        [*TRAIN, "--known-count", 2],
        [*TRAIN, "--authors-order", 0],
        [*TRAIN, "--accept", 0.9, "--sd", 1],
        [*TRAIN, "--epochs", 1, "--steps", 1],
    ],
)
def test_contradictory_options_are_wrong_usage(args, tmp_path):
    assert "contradict each other" in fails(2, *args, "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--accept", 1.5], "--accept"),
        (["--accept", 95], "for 95 % give 0.95"),
        (["--accept", 0], "--accept is a share over 0 and under 1 (at 1 nothing is ever novel), got 0"),
        (["--accept", 1], "--accept is a share over 0 and under 1 (at 1 nothing is ever novel), got 1"),
        (["--batch-size", 0], "batch_size"),
        (["--seed", "one"], "--seed"),
        (["--seed", -1], "--seed"),
        (["--seed", 2**63], "--seed"),
        (["--device", "gpuu"], "device"),
    ],
)
def test_a_value_outside_its_rule_is_wrong_usage(extra, said, tmp_path):
    assert said in fails(2, *TRAIN, *extra, "--out", tmp_path / "m")


def test_missing_and_damaged_inputs_are_named(model, pictures, tmp_path):
    bad = tmp_path / "bad [red].png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert str(bad) in fails(1, "detect", model, bad)
    assert str(bad) in fails(1, "detect", model, pictures, bad, "--strict")
    assert "absent.png" in fails(1, "detect", model, tmp_path / "absent.png")
    said = fails(1, "detect", tmp_path / "no-model", bad)
    assert said.endswith("no-model holds no model; name one, or train one there first")
    np.savez(tmp_path / "cows.npz", x=np.zeros((4, 8, 8), np.uint8), y=["cow", "ox"] * 2)
    said = fails(1, "evaluate", model, tmp_path / "cows.npz")
    assert "has no sample of the model's classes (0, 1, 2), but of cow, ox; give data that have some" in said
    assert "did you mean 'digits'?" in fails(1, "evaluate", model, "digts")
    assert "missing argument 'DATA'" in fails(2, "evaluate", model)
    assert "grey images" in fails(1, "evaluate", model, vectors(tmp_path))


def vectors(folder):
    np.savez(folder / "v.npz", x=np.zeros((4, 5), np.float32), y=[0, 1, 0, 1])
    return folder / "v.npz"


def test_an_error_of_the_disk_is_one_line(model, pictures, tmp_path):
    (tmp_path / "file").write_text("")
    message = fails(1, "detect", model, pictures, "--csv", tmp_path / "file" / "v.csv")
    assert "Errno" not in message


def test_debug_shows_the_traceback_wherever_it_stands(tmp_path, monkeypatch):
    absent = ["detect", str(tmp_path / "none"), "x.png"]
    for args in (["--debug", *absent], [*absent, "--debug"]):
        assert "Traceback" in shels(*args).stderr
    monkeypatch.setenv("SHELS_DEBUG", "1")
    assert "Traceback" in shels(*absent).stderr


def test_a_warning_is_one_line_and_shown_once(monkeypatch, tmp_path):
    from shels.data import sources

    def listing(_):
        for _ in range(2):
            warnings.warn("half of it is missing", UserWarning, stacklevel=2)
        return []

    monkeypatch.setattr(sources, "listing", listing)
    result = shels("data", "--data-dir", tmp_path, "--json")
    assert result.stderr == "warning: half of it is missing\n"
    assert json.loads(result.stdout)["sets"] == []


def test_json_holds_no_nan():
    made = plain({"a": float("nan"), "b": [np.float32(2), np.array([1, np.inf])], 3: (None, True)})
    assert made == {"a": None, "b": [2.0, [1.0, None]], "3": [None, True]}


def test_a_class_called_novel_is_refused(tmp_path):
    for name in ("novel", "old"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "photos" / name / "a.png")
    assert "rename it" in fails(1, "train", tmp_path / "photos", "--out", tmp_path / "m")


def test_classes_that_only_the_test_part_has_are_kept_out_as_novel(tmp_path):
    x = np.random.default_rng(0).random((60, 8, 8))
    y = np.arange(60) % 2
    np.savez(tmp_path / "open.npz", x_train=x, y_train=y, x_test=x, y_test=np.arange(60) % 3)
    result = shels("train", tmp_path / "open.npz", "--steps", 60, "--out", tmp_path / "m", "--json")
    assert json.loads(result.stdout)["novel_classes"] == [2]


def test_a_training_that_failed_leaves_no_checkpoint_in_the_way(tmp_path):
    failing = [
        "train",
        "digits",
        "--authors-order",
        0,
        "--seed",
        0,
        "--learning-rate",
        1e-9,
        "--learner",
        "penalty",
        "--out",
        tmp_path / "m",
    ]
    result = shels(*failing, "--steps", 1)
    assert result.exit_code == 1
    assert "no correctly classified" in result.stderr
    assert not (tmp_path / "m").exists()


def test_force_discards_the_checkpoint_of_another_training(interrupted):
    out, _ = interrupted
    assert "belongs to a training" in fails(1, *TRAIN, "--epochs", 4, "--out", out)
    assert shels(*TRAIN, "--epochs", 4, "--out", out, "--force").exit_code == 0


def test_memory_that_cannot_be_had_is_one_line(tmp_path, monkeypatch):
    from shels.learner import training_directory

    def full(*_, **__):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")

    monkeypatch.setattr(training_directory, "learning", full)
    assert fails(1, *TRAIN, "--out", tmp_path / "m").startswith("error: out of memory; lower --batch-size")


def test_images_of_more_pixels_than_allowed_need_an_option_that_may_stand_anywhere(
    tmp_path, monkeypatch, model
):
    monkeypatch.setenv("SHELS_MAX_PIXELS", "99")  # so that what the option sets goes again
    Image.new("L", (20, 20)).save(tmp_path / "a.png")
    refused = fails(1, "detect", model, tmp_path / "a.png")
    assert "more than 99 pixels" in refused
    assert "--max-pixels" in refused
    asked = ["detect", model, tmp_path / "a.png", "--json"]
    for line in ([*asked, "--max-pixels", "400"], ["--max-pixels=400", *asked]):
        assert "a.png" in shels(*line).stdout
        monkeypatch.setenv("SHELS_MAX_PIXELS", "99")
    assert "--max-pixels" in fails(2, "detect", model, tmp_path / "a.png", "--max-pixels", "0")

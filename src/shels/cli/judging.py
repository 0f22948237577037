"""Verdicts on any number of images, written as they come: a bar, and a few lines at the end."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from shels.cli.display import listed, messages, print_facts, print_json, say
from shels.cluster import check_address
from shels.errors import DataError

if TYPE_CHECKING:
    from shels.learner.judging import Judging, JudgingProgress


def judge_into(
    model: Path,
    inputs: Sequence[str],
    out: Path,
    *,
    cluster: str | None,
    device: str,
    strict: bool,
    as_json: bool,
) -> None:
    """Judge every image of some inputs into files, here or on a cluster, and say what came of it."""
    from shels.learner.judging import judging  # noqa: PLC0415
    from shels.learner.shards import check_out  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    check_out(out)
    if cluster is not None:
        check_address(cluster)
    if cluster is None:
        result = _followed(judging(load_learner(model, device), model, inputs, out, strict=strict), as_json)
    else:
        result = _on_cluster(cluster, model, inputs, out, strict=strict, as_json=as_json)
    if not result.counts.samples:
        raise DataError(f"no image can be read, {out} says why; the first: {result.first_fault}")
    document = {"model": str(model), "out": str(out), **asdict(result.counts)}
    document |= {"parts": result.parts, "kept": result.kept, "other_files": result.others}
    if as_json:
        print_json(document)
    else:
        _show(document)


def _on_cluster(
    address: str, model: Path, inputs: Sequence[str], out: Path, *, strict: bool, as_json: bool
) -> Judging:
    from shels.cluster import connected  # noqa: PLC0415
    from shels.learner.cluster_judging import work_on  # noqa: PLC0415
    from shels.learner.judging import judging  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner = load_learner(model, "cpu")
    with connected(address) as cluster:
        work = work_on(cluster, model, learner.preparation)
        return _followed(judging(learner, model, inputs, out, work=work, strict=strict), as_json)


def _followed(work: Generator[JudgingProgress, None, Judging], quiet: bool) -> Judging:
    """Run it to its end with a bar; where it is cut off, say that nothing is lost."""
    from shels.runtime import finished  # noqa: PLC0415

    console = messages()
    bar = Progress(
        TextColumn("judging"),
        BarColumn(bar_width=16),
        TextColumn("{task.completed}/{task.total} images"),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("judging", total=None)
    try:
        with bar:
            return finished(work, lambda now: bar.update(task, completed=now.done, total=now.total))
    except KeyboardInterrupt:
        say("interrupted: every part that is written is whole; the same command goes on after them")
        raise typer.Exit(1) from None


def _show(result: dict[str, Any]) -> None:
    kept = f", {result['kept']} of them from an earlier run" * bool(result["kept"])
    lines = {"images": f"{result['samples']}", "novel": f"{result['novel']}"}
    if result["unreadable"]:
        lines["unreadable"] = f"{result['unreadable']}; column reason says why"
    if result["other_files"]:
        others = listed(f"{count} {suffix}" for suffix, count in sorted(result["other_files"].items()))
        lines["passed over"] = f"as no images: {others}"
    lines["written"] = f"{result['out']}, {result['parts']} part{'s' * (result['parts'] != 1)}{kept}"
    print_facts(lines)

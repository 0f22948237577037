"""`shels bench`: how fast shels is on this machine, against plain PyTorch in the same minute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import messages, plain, print_json, print_table
from shels.cli.options import option
from shels.files import check_writable, write_whole

if TYPE_CHECKING:
    from shels.bench import Measure, Plan

EXAMPLES = """shels bench
shels bench --quick
shels bench --rounds 20 --out speed.json"""


def bench(
    rounds: Annotated[
        int | None, option("--rounds", "Turns of each comparison; 5, with --quick 1.", "N")
    ] = None,
    quick: Annotated[bool, option("--quick", "Seconds instead of minutes, and rougher figures.")] = False,
    out: Annotated[Path | None, option("--out -o", "Write the figures to a JSON file.", "FILE")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure speed against plain PyTorch.

    Each piece of work takes turns with a plain one on the same machine; the
    ratio of their times is what to compare between machines. Runs on a GPU
    where there is one.
    """
    from shels import bench as benchmark  # noqa: PLC0415

    plan = benchmark.plan(quick=quick, rounds=rounds)
    if out is not None:
        check_writable(out.parent)
    document = benchmark.document(plan, measures := _measure(plan))
    if out is not None:
        write_whole(out, json.dumps(plain(document), indent=1) + "\n")
    if as_json:
        print_json(document)
    else:
        _show(document["machine"], measures, out)


def _measure(plan: Plan) -> list[Measure]:
    """Take all measures; in a terminal, a line tells which is being taken."""
    from shels import bench as benchmark  # noqa: PLC0415

    measures: list[Measure] = []
    with messages().status("starting") as status:
        for name, work in benchmark.stages(plan).items():
            status.update(f"measuring {name}")
            measures += work()
    return measures


def _show(machine: dict[str, Any], measures: list[Measure], out: Path | None) -> None:
    versions = " ".join(f"{name} {version}" for name, version in machine["versions"].items())
    typer.echo(
        f"{machine['device']}, {machine['threads']} thread{'s' * (machine['threads'] != 1)}, {versions}"
    )
    headings = ("stage", "what", "speed", "against", "its speed", "time ratio")
    rows = [
        (
            each.stage,
            each.what,
            _speed(each.rate, each.unit),
            each.against or "",
            "" if each.plain_rate is None else _speed(each.plain_rate, each.unit),
            "" if each.ratio is None else f"{each.ratio:.2f}",
        )
        for each in measures
    ]
    numbers = ("speed", "its speed", "time ratio")
    print_table(*headings, rows=rows, numbers=numbers)
    typer.echo("Time ratio: our time over the other's in the same turn, the median; under 1 is faster.")
    if out is not None:
        typer.echo(f"written to {out}")


def _speed(rate: float, unit: str) -> str:
    """Write a rate as it is easiest to read: how many a second, or the seconds for one class or import."""
    if unit not in ("steps", "images"):
        return f"{1 / rate:.3g} s"
    return f"{rate:,.0f} {unit}/s" if rate >= 100 else f"{rate:.3g} {unit}/s"

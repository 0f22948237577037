"""`shels split`: divide data of one's own into parts to train, validate and test on."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import CountingBar, print_result, print_table
from shels.cli.options import argument, option

if TYPE_CHECKING:
    from shels.data.splitting import Shares, Splitting

EXAMPLES = """shels split photos/ --out parts
shels split photos/ --test 0.2 --validation 0.1 --out parts
shels split photos/ --group '(burst\\d+)_' --out parts
shels split photos/ --copy --out parts
shels split data.npz --out parts"""

_SHOWN = 5


def split(  # noqa: PLR0913 - a parameter for each option
    data: Annotated[
        Path, argument("DATA", "A folder of class folders, a .csv of path,label, or an .npz file.")
    ],
    out: Annotated[Path, option("--out -o", "Folder to write the parts to.", "DIR")],
    *,
    test: Annotated[float, option("--test", "Share of each class to test on.", "SHARE")] = 0.2,
    validation: Annotated[float, option("--validation", "Share to validate on.", "SHARE")] = 0.0,
    by: Annotated[
        str | None, option("--by", "What stays whole: a file, or a folder below its class.", "file|folder")
    ] = None,
    group: Annotated[
        str | None, option("--group", "Files whose names have the same match stay together.", "REGEX")
    ] = None,
    any_duplicates: Annotated[bool, option("--any-duplicates", "Do not look for near duplicates.")] = False,
    likeness: options.Likeness = None,
    copy: Annotated[bool, option("--copy", "Copy the files into folders, instead of lists.")] = False,
    seed: options.Seed = 0,
    force: Annotated[bool, option("--force", "Replace lists that are there.")] = False,
    as_json: options.Json = False,
) -> None:
    """Divide data into parts to train and to test on.

    Every class is in every part, in the shares asked for. Near duplicates, and
    files of one group, are in one part: a test on a copy of what was trained on
    says nothing. Writes lists train.csv and test.csv with the columns path and
    label, which shels train and shels evaluate read.
    """
    options.one_of("by", by, ("file", "folder"))
    options.exclude({"--by": by}, {"--group": group})
    from shels.data import part_files, splitting  # noqa: PLC0415

    shares = splitting.Shares(test, validation)
    part_files.check_target(out, force=force, parts=shares.parts)
    how: dict[str, Any] = {"near": not any_duplicates, "likeness": likeness, "seed": seed}
    if data.suffix.lower() == ".npz":
        options.exclude({"an .npz file": data}, {"--by": by, "--group": group, "--copy": copy or None})
        found, inputs = splitting.split_arrays(data, shares, **how)
        files = part_files.write_arrays(found, inputs, out)
    else:
        items = splitting.labelled_files(data)
        with CountingBar("looking at images", quiet=as_json) as bar:
            found = splitting.split_files(items, shares, by=by or "file", group=group, each=bar, **how)
        write = part_files.write_copies if copy else part_files.write_lists
        files = write(found, items, out)
    print_result(_result(found, shares, files, data, seed), partial(_show, out=out), as_json=as_json)


def _result(
    found: Splitting, shares: Shares, files: dict[str, Path], data: Path, seed: int
) -> dict[str, Any]:
    def listed(pairs: Any) -> list[dict[str, Any]]:
        return [
            {
                "files": [found.names[each.first], found.names[each.second]],
                "labels": [found.labels[each.first], found.labels[each.second]],
                "identical": each.exact,
                "likeness": each.likeness,
            }
            for each in pairs
        ]

    return {
        "data": str(data),
        "parts": {
            part: {"samples": len(each), "path": str(files[part])} for part, each in found.parts.items()
        },
        "shares": {"test": shares.test, "validation": shares.validation},
        "samples": len(found.names),
        "groups": found.groups,
        "classes": found.counts(),
        "duplicates": listed(found.pairs),
        "conflicts": listed(found.conflicts()),
        "left_out": dict(found.left_out),
        "seed": seed,
    }


def _show(result: dict[str, Any], out: Path) -> None:
    parts = list(result["parts"])
    rows = [(name, *counts.values()) for name, counts in result["classes"].items()]
    rows.append(("all", *(each["samples"] for each in result["parts"].values())))
    print_table("class", *parts, rows=rows, numbers=parts)
    if result["groups"] < result["samples"]:
        typer.echo(f"{result['samples']} samples in {result['groups']} groups that stay together")
    _show_pairs("of near duplicates or copies, kept on one side", result["duplicates"])
    _show_pairs("with two labels: look at them", result["conflicts"])
    for name, why in list(result["left_out"].items())[:_SHOWN]:
        typer.echo(f"left out: {name}: {why}")
    if len(result["left_out"]) > _SHOWN:
        typer.echo(f"… and {len(result['left_out']) - _SHOWN} more left out; --json names them all")
    model = str(out / "model")
    paths = {part: each["path"] for part, each in result["parts"].items()}
    train = ["shels", "train", paths["train"], "--out", model]
    train += ["--validation", paths["validation"]] if "validation" in paths else []
    typer.echo(f"next         {shlex.join(train)}")
    if "test" in paths:
        typer.echo(f"             {shlex.join(['shels', 'evaluate', model, paths['test']])}")


def _show_pairs(words: str, pairs: list[dict[str, Any]]) -> None:
    if pairs:
        typer.echo(
            f"{len(pairs)} pair{'s' * (len(pairs) > 1)} {words}, such as {' and '.join(pairs[0]['files'])}"
        )

"""`shels data`: the data sets that have a name, what is here, and fetching what is not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shels.cli import options
from shels.cli.display import DownloadBar, print_json, print_table
from shels.cli.errors import Commands
from shels.cli.options import argument, examples

if TYPE_CHECKING:
    from shels.data.sources import Listed

EXAMPLES = """shels data
shels data download mnist
shels data download cifar10 --data-dir /data"""

app = typer.Typer(cls=Commands, invoke_without_command=True, epilog=examples(EXAMPLES))


@app.callback()
def data(ctx: typer.Context, data_dir: options.DataDir = None, as_json: options.Json = False) -> None:
    """List the named data sets, and which are here.

    A named set is looked for in the data directory as NAME.npz, with the arrays
    x_train, y_train, x_test and y_test, or as the files that its makers
    distribute. digits needs no file.
    """
    if ctx.invoked_subcommand is not None:
        return
    from shels.data import sources  # noqa: PLC0415

    directory, sets = sources.data_directory(data_dir), sources.listing(data_dir)
    if as_json:
        print_json({"directory": str(directory), "sets": [asdict(each) for each in sets]})
        return
    typer.echo(f"data directory: {directory}")
    rows = [(s.name, s.title, s.classes, f"{s.train:,}", f"{s.test:,}", _state(s)) for s in sets]
    headings = ("name", "what", "classes", "train", "test", "here")
    print_table(*headings, rows=rows, numbers=headings[2:5])


@app.command("download", epilog=examples(EXAMPLES))
def download(
    ctx: typer.Context,
    name: Annotated[str, argument("NAME", "A name from the list that shels data prints.")],
    data_dir: options.DataDir = None,
) -> None:
    """Fetch the official files of a named set.

    Each file is checked against its published checksum; what is here and whole
    is not fetched again.
    """
    from shels.data import download as fetching  # noqa: PLC0415
    from shels.data import sources  # noqa: PLC0415

    if not sources.named_set(name).files:
        typer.echo(f"{name} comes with scikit-learn; there is nothing to download")
        return
    directory = data_dir or (ctx.parent.params.get("data_dir") if ctx.parent else None)
    with DownloadBar() as bar:
        folder = fetching.download(name, directory, bar)
    typer.echo(f"{name} is in {folder}")


def _state(each: Listed) -> str:
    if each.problem:
        return f"unusable: {each.problem}"
    return each.where if each.present else "no"

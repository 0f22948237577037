"""The commands under one name. Nothing here imports torch, so that help answers at once."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated

import typer

from shels._version import __version__
from shels.cli import data
from shels.cli.errors import Commands
from shels.cli.options import examples

app = typer.Typer(
    cls=Commands,
    name="shels",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""[bold]Start here[/bold]

shels demo                                     see it work, in a minute
shels train digits --known 0,1,2,3,4 --out m   learn five digits
shels evaluate m digits                        the other five are novel
shels detect m photo.png                       a class, or novel?
shels export m model.onnx                      one file for other programs
shels accommodate m cows/ --name cow           learn one class more
shels run m digits                             find and learn what is new
shels serve m                                  a live page: see what is new, name it
shels reproduce within/digits --out results    the paper's experiment, on digits""",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shels {__version__}")
        raise typer.Exit


def _allow_pixels(most: int | None) -> None:
    if most is not None:
        os.environ["SHELS_MAX_PIXELS"] = str(most)  # what readers of images go by


@app.callback()
def shels(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
    debug: Annotated[  # noqa: ARG001 - read where errors are shown
        bool, typer.Option("--debug", envvar="SHELS_DEBUG", help="Show the traceback of an error.")
    ] = False,
    max_pixels: Annotated[  # noqa: ARG001 - its callback passes it on
        int | None,
        typer.Option(
            "--max-pixels",
            metavar="N",
            envvar="SHELS_MAX_PIXELS",
            min=1,
            callback=_allow_pixels,
            help="Pixels that an image may have; 50 million.",
        ),
    ] = None,
) -> None:
    """Know some classes, notice new ones.

    SHELS trains a classifier that also says when a sample belongs to none of
    its classes. Each command has its own help: shels train --help.
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), nl=False)


COMMANDS = [
    "demo",
    "split",
    "train",
    "evaluate",
    "check",
    "detect",
    "export",
    "accommodate",
    "run",
    "serve",
    "inspect",
    "revise",
    "rule",
    "methods",
    "reproduce",
    "report",
    "bench",
]
"""The commands in the order of the help: each a module here, with EXAMPLES and a function of its own name."""

for name in COMMANDS:
    module = import_module(f"shels.cli.{name}")
    app.command(name, epilog=examples(module.EXAMPLES))(getattr(module, name))
app.add_typer(data.app, name="data")  # has a command of its own

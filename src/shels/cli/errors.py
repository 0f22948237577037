"""How a command ends: its exit code, and the one line that says what went wrong."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from typing import Any

import typer
from typer.core import TyperGroup

from shels.cli.display import say
from shels.errors import SettingsError, ShelsError, unknown_name

FAILED, WRONG_USAGE = 1, 2


class Commands(TyperGroup):
    """A group of commands in which every expected error becomes one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line and leave."""
        extra["standalone_mode"] = False
        _print_any_name()
        try:
            code = super().main(*args, **extra)
        except Exception as error:
            if not hasattr(error, "format_message"):  # what every usage error of typer's has
                raise
            code = _wrong_usage(error)
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave the rest to the command; --debug and --max-pixels N may stand anywhere on the line."""
        return super().parse_args(ctx, args if ctx.parent is not None else _for_all_first(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of this name, or say which one may have been meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(unknown_name("command", name, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; only what nobody expected leaves it as an exception."""
        if ctx.parent is not None:
            return super().invoke(ctx)
        try:
            with _warnings_as_lines():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader went away (`| head`); typer leaves quietly
            raise
        except (ShelsError, OSError, MemoryError, KeyboardInterrupt, RuntimeError) as error:
            expected = isinstance(error, ShelsError) or not isinstance(error, RuntimeError)
            if not expected and not _out_of_memory(error):
                raise
            raise typer.Exit(_failed(error, debug=ctx.params.get("debug", False))) from error


def _print_any_name() -> None:
    """Let every name of a file be printed: one that is no text in the output's encoding is no failure."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            utf_8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if utf_8 else "backslashreplace")


def _for_all_first(args: list[str]) -> list[str]:
    """Put the options that are no command's own before the command."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name = word.partition("=")[0]
        (first if name in ("--debug", "--max-pixels") else rest).append(word)
        if word == "--max-pixels":
            first += islice(words, 1)
    return [*first, *rest]


def _failed(error: BaseException, *, debug: bool) -> int:
    """Show an error as one line and return the exit code that it stands for."""
    if debug:
        say("".join(traceback.format_exception(error)).rstrip())
    say(f"error: {_in_words(error)}")
    return WRONG_USAGE if isinstance(error, SettingsError) else FAILED


def _in_words(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if _out_of_memory(error):
        return "out of memory; lower --batch-size or --size, give less data, or try --device cpu"
    if isinstance(error, OSError) and not isinstance(error, ShelsError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def _out_of_memory(error: BaseException) -> bool:
    """Tell whether memory ran out: Python's, a GPU's, or the CPU's as torch says it (a bare RuntimeError)."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


def _wrong_usage(error: Any) -> int:
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    context = getattr(error, "ctx", None)
    hint = f"; see {context.command_path} --help" if context is not None else ""
    say(f"error: {message[:1].lower()}{message[1:]}{hint}")
    return int(getattr(error, "exit_code", WRONG_USAGE))


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show each different warning of the library once, as a line."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            seen.add(text)
            say(f"warning: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield

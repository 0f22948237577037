"""`shels serve`: a home over HTTP, for cameras and pipelines, and a page to see what is new and name it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, say
from shels.cli.options import option
from shels.errors import SettingsError

if TYPE_CHECKING:
    from shels.service.running import Plan

EXAMPLES = """shels serve m
shels serve m --port 9000
shels serve m --new-token annotate --name ada --tokens tokens
shels serve m --host 0.0.0.0 --tokens tokens
shels serve demo/digits --demo

The reference of its API is at /docs of the address that it says."""


def serve(
    home: options.Model,
    host: Annotated[
        str, option("--host", "Address to listen at; others than this machine's need tokens.", "IP")
    ] = ("127.0.0.1"),
    port: Annotated[int, option("--port", "Port to listen at; 0 takes any that is free.", "N")] = 8787,
    tokens: Annotated[Path | None, option("--tokens", "File of tokens: who may do what.", "FILE")] = None,
    new_token: Annotated[
        str | None,
        option("--new-token", "Add a token to the file, print it and leave.", "judge|annotate|admin"),
    ] = None,
    name: Annotated[str | None, option("--name", "Whose token it is.", "NAME")] = None,
    demo: Annotated[bool, option("--demo", "Serve seven digits, with all ten streaming in.")] = False,
    device: options.Device = "auto",
) -> None:
    """Serve a model over HTTP, with a live page.

    Images are sent to /judge or /observe; what is novel is kept in groups, and a
    person names them on the page. The model's directory becomes a home with
    versions, so that every change can be taken back. Nobody else can use it
    meanwhile.
    """
    if new_token is not None:
        _add_token(tokens, new_token, name)
        return
    from shels.service.running import Address, Plan, require_packages, serve  # noqa: PLC0415

    require_packages()
    plan = Plan(home, Address(host, port), tokens, device)
    if demo:
        plan = _demonstration(plan)
    serve(plan, lambda address: say(f"serving {home} at {address} (Ctrl-C ends it)"))


def _add_token(tokens: Path | None, role: str, name: str | None) -> None:
    if tokens is None or name is None:
        raise SettingsError("--new-token takes --tokens FILE and --name NAME beside it")
    from shels.service.running import require_packages  # noqa: PLC0415

    require_packages()
    from shels.service.access import new_token  # noqa: PLC0415

    token = new_token(tokens, role, name)
    say(f"{name} may {role}; the file keeps only a digest, so write the token down now:")
    typer.echo(token)


def _demonstration(plan: Plan) -> Plan:
    from dataclasses import replace  # noqa: PLC0415

    from shels.service import demonstration  # noqa: PLC0415

    with TrainingBar("learning seven digits", quiet=False) as bar:
        bar.follow(demonstration.preparing(plan.home, device=plan.device))
    return replace(plan, feed=demonstration.streaming)

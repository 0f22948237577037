"""Whoever sits at the terminal and is asked what a new class is."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from shels.agent.agent import OpenWorldAgent, Request, Supplier, Supply
from shels.agent.inspection import write_pictures
from shels.cli.display import StreamDisplay, say
from shels.data.samples import Label
from shels.data.splits import new_class
from shels.errors import SettingsError


class Person:
    """Whoever sits at the terminal, is shown what was found, and says whether and as what to learn it."""

    def __init__(
        self, agent: OpenWorldAgent, display: StreamDisplay, folder: Path, oracle: Supplier | None
    ) -> None:
        self.agent = agent
        self.display = display
        self.folder = folder
        self.oracle = oracle
        self._names: dict[str, Label] = {}

    def confirm(self, request: Request) -> bool:
        """Ask until there is an answer: y, n, or what it is called."""
        self.display.close()
        where = ""
        if request.inputs.ndim == 4:
            write_pictures(request.inputs, self.folder / request.name)
            where = f" (see {self.folder / request.name})"
        say(f"{len(request.inputs)} images look like one new class{where}")
        while True:
            typer.echo("take it in? y, n, or its name (a known one adds to it): ", nl=False, err=True)
            line = sys.stdin.readline()
            if not line:
                raise KeyboardInterrupt  # nobody is there to answer
            answer = line.strip()
            if answer.lower() in ("n", "no"):
                return False
            if answer.lower() in ("y", "yes") or self._takes(request, answer):
                return True

    def supply(self, request: Request) -> Supply | None:
        """Return what the oracle has, or what was seen, under the name that was given."""
        name = self._names.get(request.id)
        if name is None and self.oracle is not None:
            return self.oracle(request)
        return Supply(name=name, by="person")

    def _takes(self, request: Request, answer: str) -> bool:
        """Return whether this can be a name; if not, say why."""
        learner = self.agent.learner
        try:
            name = new_class(answer, learner.classes)
        except SettingsError as error:
            say(str(error))
            return False
        if name in learner.classes and not learner.joins:
            say(f"{name} is known already, and the model's method cannot add to it; n, or another name")
            return False
        self._names[request.id] = name
        return True

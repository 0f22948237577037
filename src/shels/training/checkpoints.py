"""A training as it stands: what changes while it runs, and how it survives being cut off at any moment."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from shels import schema
from shels.errors import ModelFileError
from shels.files import read_metadata, read_tensors, to_bytes, write_whole

Params: TypeAlias = dict[str, Tensor]
"""A network's parameters by name."""


@dataclass(frozen=True)
class Check:
    """How a training stood at one validation; without validation data those two are None."""

    step: int
    epoch: float
    training_loss: float
    validation_loss: float | None
    validation_accuracy: float | None


_LOSS, _LARGE = schema.number(-1e30, 1e30), schema.number(0, 1e12)
CHECK = schema.record(
    {"step": schema.whole(0), "epoch": _LARGE, "training_loss": _LOSS}
    | {"validation_loss": schema.or_none(_LOSS), "validation_accuracy": schema.or_none(schema.number(0, 1))}
)
"""A `Check` as it is stored, here and in models."""
_FACTS = schema.record({"step": schema.whole(1), "seconds": _LARGE, "checks": schema.listed(CHECK, least=1)})


@dataclass(frozen=True)
class Checkpoint:
    """Where a training keeps its state, and what beside data, settings and seed decides it.

    about: plain data that tells the network, preparation and method apart from others. every: seconds that
    lie at least between two writes; with 0 the state is kept at each validation.
    """

    path: Path
    about: Any = None
    every: float = 0.0

    @property
    def exists(self) -> bool:
        """Whether there is a file, of whatever kind."""
        return os.path.lexists(self.path)

    def write(self, identity: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the checkpoint by this state, whole or not at all."""
        write_whole(self.path, packed(identity, tensors, facts))

    def read(self, identity: str, table: schema.Table) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the stored state, or None where there is none; another training's is refused.

        table: the tensors that it must hold, beside its steps, its seconds and a list of checks.
        """
        if not self.exists:
            return None
        with self._damage():
            metadata = read_metadata(self.path)
            facts = json.loads(metadata.get("facts", "null"))
            tensors = read_tensors(self.path)
        if metadata.get("identity") != identity:
            raise ModelFileError(
                f"{self.path} belongs to a training with other data, settings or seed; "
                "delete it to start afresh, or choose another output folder"
            )
        with self._damage():
            schema.check_tensors(tensors, table, {}, str(self.path))
            _FACTS(facts, f"{self.path}: facts")
            if facts["step"] != facts["checks"][-1]["step"]:
                raise ModelFileError(f"{self.path}: the last check is not that of step {facts['step']}")
        return tensors, facts

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (ModelFileError, ValueError, RecursionError) as error:
            reason = str(error) if str(self.path) in str(error) else f"{self.path} is damaged: {error}"
            raise ModelFileError(f"{reason}; delete it to start afresh") from error


def packed(identity: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    """Return a state as the content of a checkpoint."""
    return to_bytes(tensors, {"identity": identity, "facts": json.dumps(facts)})


_SHARE = 10
"""How many times as long as it takes to write a training, this goes on before it is written again."""


class Pace:
    """When to write down a training that goes on: seldom enough that it takes little of the time.

    every: seconds between two writes at least, and never less than ten times what the last one took; with 0
    every validation is written.

    >>> Pace(0).due(last=False), Pace(60).due(last=False)
    (True, False)
    """

    def __init__(self, every: float) -> None:
        self.every = every
        self._first = self._next = time.monotonic() + every

    def due(self, *, last: bool) -> bool:
        """Whether it is time to write. last: what was long in coming is written at the end in any case."""
        return time.monotonic() >= (self._first if last else self._next)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Take the time of what is written inside."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        self._next = now + max(self.every, _SHARE * (now - began)) if self.every else now


def fingerprint(about: Any, tensors: Iterable[Tensor]) -> str:
    """Return a digest of all that decides a training, so that a checkpoint is never taken for another's."""
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True, default=str).encode(), digest_size=16)
    for value in tensors:
        digest.update(str((value.shape, value.dtype)).encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass
class RunState:
    """Everything that changes while a network trains, and so everything a checkpoint holds.

    moments: what the optimiser remembers of each parameter, by kind. step: optimiser steps taken.
    keep: which check's weights count in the end, "best" or "last". buffers: running averages of batch
    normalisation, which no gradient moves. best_params: parameters and buffers of the check that counts.
    """

    params: Params
    moments: dict[str, Params]
    step: int = 0
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    best_params: Params = field(default_factory=dict)
    keep: str = "best"
    buffers: Params = field(default_factory=dict)

    @property
    def values(self) -> Params:
        """Parameters and buffers: all that a network computes with."""
        return self.params | self.buffers

    @property
    def best(self) -> Check:
        """The check whose weights count: that of the lowest loss, or the last where that was asked for."""
        return self.checks[-1] if self.keep == "last" else self.lowest

    @property
    def lowest(self) -> Check:
        """The check with the lowest validation loss, the first of equals; without validation, the last."""
        losses = [check.validation_loss for check in self.checks if check.validation_loss is not None]
        return self.checks[losses.index(min(losses)) if losses else -1]

    def exhausted(self, patience: int | None) -> bool:
        """Tell whether the check with the lowest loss is `patience` checks ago."""
        if patience is None or not self.checks:
            return False
        return len(self.checks) - 1 - self.checks.index(self.lowest) >= patience

    def record(self, check: Check, seconds: float) -> None:
        """Note a check, and keep its weights if they are the best so far."""
        self.checks.append(check)
        self.seconds = seconds
        if self.best is check:
            self.best_params = {name: value.detach().clone() for name, value in self.values.items()}

    def content(self, identity: str) -> bytes:
        """Return what a checkpoint of the run holds."""
        tensors = {f"params/{name}": value for name, value in self.params.items()}
        tensors |= {f"buffers/{name}": value for name, value in self.buffers.items()}
        tensors |= {f"best/{name}": value for name, value in self.best_params.items()}
        for kind, values in self.moments.items():
            tensors |= {f"optimiser/{kind}/{name}": value for name, value in values.items()}
        facts: dict[str, Any] = {"step": self.step, "seconds": self.seconds}
        return packed(identity, tensors, facts | {"checks": [vars(check) for check in self.checks]})

    @torch.no_grad()
    def restore(self, store: Checkpoint, identity: str) -> bool:
        """Take up the run where its checkpoint left it; tell whether there was one."""
        found = store.read(identity, self._table())
        if found is None:
            return False
        tensors, facts = found
        self.step, self.seconds = facts["step"], facts["seconds"]
        self.checks = [Check(**check) for check in facts["checks"]]
        for name, value in self.params.items():
            value.copy_(tensors[f"params/{name}"])
            self.best_params[name] = torch.empty_like(value).copy_(tensors[f"best/{name}"]).detach()
            for kind, values in self.moments.items():
                values[name].copy_(tensors[f"optimiser/{kind}/{name}"])
        for name, value in self.buffers.items():
            value.copy_(tensors[f"buffers/{name}"])
            self.best_params[name] = torch.empty_like(value).copy_(tensors[f"best/{name}"])
        return True

    def _table(self) -> dict[str, schema.Spec]:
        """Return what a checkpoint of this run must hold: parameters, buffers, the best ones, and moments."""
        out: dict[str, schema.Spec] = {}
        for name, value in self.buffers.items():
            rule = schema.NOT_NEGATIVE if name.endswith("running_var") else schema.FINITE
            same = schema.Spec(" ".join(map(str, value.shape)), rule, (value.dtype,))
            out |= {f"buffers/{name}": same, f"best/{name}": same}
        for name, value in self.params.items():
            same = schema.Spec(" ".join(map(str, value.shape)), schema.FINITE, (value.dtype,))
            out |= {f"params/{name}": same, f"best/{name}": same}
            for kind in self.moments:  # a mean of squares is not negative
                moment = replace(same, rule=schema.NOT_NEGATIVE) if kind == "exp_avg_sq" else same
                out[f"optimiser/{kind}/{name}"] = moment
        return out

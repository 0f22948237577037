"""What a run tells on its way: how far some trials are, and how all units of work stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shels.experiments.trials import Trial, TrialResult


@dataclass(frozen=True)
class Tally:
    """Numbers of units. running: where each of those under way is worked on, by name."""

    waiting: int
    running: tuple[str, ...]
    done: int
    failed: int

    def __str__(self) -> str:
        """Write the numbers as a line.

        >>> str(Tally(3, ("a", "b", "b"), 2, 0))
        '3 units waiting, 3 running (a, 2 on b), 2 done'
        """
        places = [
            name if self.running.count(name) == 1 else f"{self.running.count(name)} on {name}"
            for name in sorted(set(self.running))
        ]
        running = f", {len(self.running)} running ({', '.join(places)})" if places else ""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.waiting} unit{'s' * (self.waiting != 1)} waiting{running}, {self.done} done{failed}"


@dataclass(frozen=True)
class Advance:
    """How far a run is.

    trials: those that are trained together now. share: how much of their work is done, 0-1.
    result: kind "finished" comes once for each trial, with its result, after the result is on disk.
    message: kind "failed" says why these trials have no result; the run goes on with others.
    unit: the id of the unit of work that they are, where several are under way at once. tally: how all units
    stand; it comes alone, of kind "tally". Of kind "note" a message for people comes alone.
    """

    kind: Literal["loading", "training", "measuring", "learning", "finished", "failed", "tally", "note"]
    trials: tuple[Trial, ...]
    share: float = 0.0
    result: TrialResult | None = None
    message: str = ""
    unit: str = ""
    tally: Tally | None = None

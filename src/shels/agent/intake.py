"""What comes in at a home: samples count once, novel ones are kept, and the share of them is watched."""

from __future__ import annotations

import hashlib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torch import Tensor

from shels.agent import events
from shels.agent.alarm import AlarmRule, alarm_count
from shels.agent.inbox import Inbox, numbers_of, ranges
from shels.agent.index import EventIndex
from shels.agent.observation import false_alarms
from shels.agent.versioned import VersionedLearner
from shels.detection.calibration import Verdicts
from shels.detection.protocol import rows_of
from shels.errors import ModelFileError, SettingsError

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.learner.learner import Learner
    from shels.model.networks import Views

WINDOW = 200
"""Over how many of the last samples the share called novel is taken."""
_LEAST_WINDOW = 20


@dataclass(frozen=True)
class Observed:
    """What came of samples that were fed in. numbers: of each, its number where it is kept, else None.

    place: where its event ends in the log. repeated: the same key came before; nothing was counted again.
    """

    place: int
    size: int
    novel: int
    numbers: tuple[int | None, ...]
    repeated: bool = False


@dataclass(frozen=True)
class Recent:
    """The share called novel among the last samples, and the share from which that is an alarm."""

    size: int
    share: float
    threshold: float

    @property
    def alarm(self) -> bool:
        """Whether it is more than chance explains."""
        return self.size >= _LEAST_WINDOW and self.share >= self.threshold


class Intake:
    """Counts samples for a home, in any thread. rule: when the share called novel is an alarm."""

    def __init__(
        self, home: Home, model: VersionedLearner, inbox: Inbox, index: EventIndex, rule: AlarmRule
    ) -> None:
        self._home, self._model, self._inbox, self._index, self._rule = home, model, inbox, index, rule
        self._window: deque[bool] = deque(maxlen=WINDOW)
        self._recall_window()
        self._alarmed = self.recent().alarm

    def observe(
        self,
        learner: Learner,
        inputs: Tensor,
        features: Views,
        verdicts: Verdicts,
        *,
        key: str | None = None,
        by: str = "stream",
    ) -> Observed:
        """Count samples that a learner judged, and keep those called novel; on disk when this returns.

        key: the same one is never counted twice; other samples under it are refused.
        """
        digest = _digest(inputs)
        with self._model.writing:
            before = None if key is None else self._before(key, digest)
            if before is not None:
                return before
            novel = verdicts.novel.cpu()
            added = self._inbox.add(inputs[novel], rows_of(features, novel), learner)
            window = deque([*self._window, *novel.tolist()], maxlen=WINDOW)
            try:
                facts = {"key": key, "digest": digest, "by": by}
                place = self._record_observed(novel, ranges(added), self._recent(window), facts)
            except ModelFileError:
                self._inbox.forget_after(self._inbox.last - len(added))
                raise
            self._window = window
        kept = iter(added)
        numbers = tuple(next(kept) if each else None for each in novel.tolist())
        return Observed(place, len(novel), len(added), numbers)

    def warm_up(self) -> None:
        """Have everything imported that the first samples would wait for."""
        self._recent(deque([False]))

    def recent(self) -> Recent:
        """Tell how much of the last samples was called novel."""
        return self._recent(self._window)

    def _recent(self, window: deque[bool]) -> Recent:
        size = len(window)
        if not size:
            return Recent(0, 0.0, 1.0)
        learner = self._model.learner
        judged = int(learner.report["held_out_samples"])
        count = _alarm_count(self._rule, size, false_alarms(learner), judged)
        return Recent(size, sum(window) / size, count / size)

    def _before(self, key: str, digest: str) -> Observed | None:
        found = self._index.by_key(key)
        if found is None:
            return None
        place, line = found
        if line.get("digest") != digest:
            raise SettingsError(f"the key {key!r} came with other samples before; use a new key for these")
        kept = numbers_of(line.get("members", ""))
        return Observed(place, line["size"], line["novel"], tuple(kept), repeated=True)

    def _record_observed(self, novel: Tensor, members: str, recent: Recent, more: dict[str, Any]) -> int:
        facts: dict[str, Any] = {"size": len(novel), "novel": int(novel.sum())}
        facts |= {"share": float(novel.double().mean())}
        facts |= {"threshold": recent.threshold, "alarm": recent.alarm, "window": recent.share}
        facts["members"] = members
        facts |= {name: value for name, value in more.items() if value is not None}
        place = self._home.record({"kind": events.OBSERVED, "batch": "", **facts})
        if recent.alarm and not self._alarmed:
            line = {"share": recent.share, "threshold": recent.threshold}
            with suppress(ModelFileError):  # the observation stands, and says that it alarms
                self._home.record({"kind": events.ALARM, "batch": "", **line})
        self._alarmed = recent.alarm
        return place

    def _recall_window(self) -> None:
        for _, line in self._index.of_kinds((events.OBSERVED,), most=WINDOW):
            self._window.extend([True] * line["novel"] + [False] * (line["size"] - line["novel"]))


@lru_cache(maxsize=4096)
def _alarm_count(rule: AlarmRule, size: int, false: int, judged: int) -> int:
    return alarm_count(rule, size, false, judged)


def _digest(inputs: Tensor) -> str:
    return hashlib.blake2b(inputs.cpu().contiguous().numpy().tobytes(), digest_size=8).hexdigest()

"""A verdict on each of millions of images: decoded and judged a group at a time, written shard by shard.

However many there are, a few groups of them lie in memory. `work` is where groups are decoded and judged: in
threads of this process, or on a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch

from shels import runtime
from shels.data import images, reading
from shels.data.finding import Entry
from shels.data.inputs import form
from shels.data.listing import Listing, listing
from shels.data.preparation import Preparation
from shels.data.reading import Decoded
from shels.errors import DataError
from shels.learner.assessment import UNREADABLE, FileVerdict, verdicts_on
from shels.learner.learner import Learner
from shels.learner.shards import ROWS, Counts, Shards
from shels.learner.storage import identity

_AT_ONCE = 128
"""Images that are judged together: what the layers make of more of them does not fit a CPU's cache."""
_BYTES = 2**26
"""What the images of one group may take, where they are large."""


class Judged(NamedTuple):
    """Verdicts on some rows of a list of images, from row `start` on."""

    start: int
    verdicts: list[FileVerdict]


JudgedGroups: TypeAlias = Generator[Judged, None, None]
Work: TypeAlias = Callable[[Listing, Sequence[range]], JudgedGroups]
"""Judges every group of rows, in whatever order."""


class JudgingProgress(NamedTuple):
    """How many images have verdicts, those of earlier runs among them, and how many there are."""

    done: int
    total: int


@dataclass
class Judging:
    """What came of it. kept: parts that an earlier run had written. others: files passed over, by suffix."""

    out: Path
    parts: int
    kept: int
    counts: Counts = field(default_factory=Counts)
    others: dict[str, int] = field(default_factory=dict)
    first_fault: str = ""

    def add(self, verdicts: Sequence[FileVerdict], *, strict: bool) -> None:
        """Count verdicts. strict: raise where an image could not be read."""
        self.counts.add([each.novel for each in verdicts])
        faults = (f"{each.source} {each.reason}" for each in verdicts if each.novel is None)
        self.first_fault = self.first_fault or next(faults, "")
        if strict and self.first_fault:
            raise DataError(self.first_fault)


def judging(
    learner: Learner,
    model: Path,
    inputs: Sequence[str],
    out: Path,
    *,
    work: Work | None = None,
    strict: bool = False,
    rows: int = ROWS,
) -> Generator[JudgingProgress, None, Judging]:
    """Judge all images of some inputs into shards; cut off at any moment, the same call goes on from there.

    model: the directory that the learner was loaded from. inputs: as `listing` takes them. work: judges
    groups, by default `judged_here`. rows: of a shard. A file that cannot be read has a row that says so, and
    is an error where `strict`.
    """
    listed = listing(inputs, rows)
    shards = Shards(out, identity(model), listed, {"max_pixels": images.max_pixels(), "rows": rows})
    with shards.opened() as pending:
        kept = [part for part in range(len(listed.parts)) if part not in set(pending)]
        result = Judging(out, len(listed.parts), len(kept), shards.counted(kept), dict(listed.others))
        done = sum(listed.parts[part].rows for part in kept)
        yield JudgingProgress(done, len(listed))
        groups = [rows for part in pending for rows in _groups(listed.rows_of(part), learner.preparation)]
        with closing(_written(shards, (work or partial(judged_here, learner))(listed, groups))) as written:
            for verdicts in written:
                result.add(verdicts, strict=strict)
                done += len(verdicts)
                yield JudgingProgress(done, len(listed))
        shards.finish()
    return result


def _written(shards: Shards, judged: JudgedGroups) -> Generator[list[FileVerdict], None, None]:
    """Give verdicts as they come, in any order; a part is written when all of it is there."""
    parts: dict[int, dict[int, list[FileVerdict]]] = {}
    with closing(judged):
        for start, verdicts in judged:
            part = start // shards.listing.at_once
            waiting = parts.setdefault(part, {})
            waiting[start] = verdicts
            if sum(map(len, waiting.values())) == shards.listing.parts[part].rows:
                shards.write(part, [each for at in sorted(waiting) for each in waiting[at]])
                del parts[part]
            yield verdicts


def judged_here(learner: Learner, listed: Listing, groups: Sequence[range]) -> JudgedGroups:
    """Judge groups in this process, several at a time.

    On a CPU each thread decodes a group and judges it: threads that share one group would wait for each other
    at every layer. On a GPU threads decode the next groups while one is judged.
    """
    size, channels = form(learner.preparation)
    workers = max(1, reading.threads_to_read())
    on_cpu = learner.device.type == "cpu"
    entries = listed.entries(groups)

    def work(some: list[Entry]) -> Decoded | list[FileVerdict]:
        ready = reading.decoded(some, size, channels)
        return judged(learner, ready) if on_cpu else ready

    some = (list(islice(entries, len(rows))) for rows in groups)
    share = max(1, torch.get_num_threads() // workers) if on_cpu else None
    with runtime.threads(share), closing(runtime.in_order(some, work, workers, workers + 1)) as done:
        for rows, each in zip(groups, done, strict=True):
            yield Judged(rows.start, judged(learner, each) if isinstance(each, Decoded) else each)
    next(entries, None)  # says where something was added


def judged(learner: Learner, decoded: Decoded) -> list[FileVerdict]:
    """Decide on every image of a group, those that could not be read among them, in their order."""
    found = dict[int, FileVerdict]()
    for place, why in decoded.reasons.items():
        found[place] = FileVerdict(decoded.names[place], UNREADABLE, reason=why)
    for places, inputs in decoded.stacks:
        names = [decoded.names[place] for place in places]
        found |= zip(places, verdicts_on(learner, inputs, names), strict=True)
    return [found[place] for place in range(len(decoded.names))]


def group_size(preparation: Preparation) -> int:
    """Return how many images are judged together.

    >>> group_size(Preparation((3, 32, 32))), group_size(Preparation((3, 1024, 1024)))
    (128, 21)
    """
    return max(1, min(_AT_ONCE, _BYTES // math.prod(preparation.shape)))


def _groups(rows: range, preparation: Preparation) -> Iterable[range]:
    size = group_size(preparation)
    return (range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size))

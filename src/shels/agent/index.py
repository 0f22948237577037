"""The log where it can be looked up quickly: SQLite beside it, made anew from it whenever that is lost.

The log is the truth. The index remembers how far it has read and goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.agent import events
from shels.agent.history import CHANGES, Placed
from shels.agent.inbox import numbers_of

if TYPE_CHECKING:
    from shels.agent.home import Home

_FILE = ".index.sqlite"
_TABLES = """
create table if not exists events (place integer primary key, kind text not null, key text,
    line text not null, size integer, novel integer, last integer);
create index if not exists events_kind on events (kind, place);
create unique index if not exists events_key on events (key) where key is not null;
create table if not exists read (one integer primary key check (one = 1), place integer, start text);
"""


class EventIndex:
    """Events of a home by kind and by idempotency key, as the log has them by now."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._lock = threading.RLock()
        self._place = -1  # how far the log is read
        self._database = self._opened()
        self._catch_up()

    def _catch_up(self) -> None:
        """Read what was added to the log."""
        if self._place == self.home.log.size:
            return
        try:
            self._place = self._read_on()
        except sqlite3.Error:  # full, read-only or damaged: what matters is in the log
            self._database.close()
            self._database = _connected(Path(":memory:"))
            self._place = self._read_on()

    def by_key(self, key: str) -> Placed | None:
        """Find the observation that came with this key."""
        found = self._rows("select place, line from events where key = ?", (key,))
        return found[0] if found else None

    def of_kinds(self, kinds: tuple[str, ...], most: int = -1) -> list[Placed]:
        """List the events of some kinds in order; of many the last."""
        marks = ",".join("?" * len(kinds))
        sql = f"select place, line from events where kind in ({marks}) order by place desc limit ?"  # noqa: S608
        return self._rows(sql, (*kinds, most))[::-1]

    def changes(self) -> list[Placed]:
        """List the events that a person can take back."""
        return self.of_kinds(CHANGES)

    def observed_since(self, place: int) -> tuple[int, int]:
        """Count the samples observed after a place in the log, and how many of them were called novel."""
        sql = (
            "select coalesce(sum(size), 0), coalesce(sum(novel), 0) from events where kind = ? and place > ?"
        )
        with self._lock:
            self._catch_up()
            size, novel = self._database.execute(sql, (events.OBSERVED, place)).fetchone()
        return size, novel

    def last_number(self) -> int:
        """Tell the highest number of an image that the log speaks of."""
        with self._lock:
            self._catch_up()
            return int(self._database.execute("select coalesce(max(last), 0) from events").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._database.close()

    def _rows(self, sql: str, given: tuple[Any, ...]) -> list[Placed]:
        with self._lock:
            self._catch_up()
            return [(place, json.loads(line)) for place, line in self._database.execute(sql, given)]

    def _opened(self) -> sqlite3.Connection:
        path = self.home.directory / _FILE
        for _ in range(2):
            try:
                return _connected(path)
            except sqlite3.DatabaseError:
                for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
                    each.unlink(missing_ok=True)
        return _connected(Path(":memory:"))

    def _read_on(self) -> int:
        place, start = self._database.execute("select place, start from read").fetchone() or (0, "")
        beginning = self._beginning(place)
        if place > self.home.log.size or beginning != start:  # another log than it has read
            self._database.execute("delete from events")
            place, beginning = 0, ""
        rows = [_row(*each) for each in self.home.log.placed(place)]
        if rows:
            self._database.executemany("insert or ignore into events values (?, ?, ?, ?, ?, ?, ?)", rows)
            place = rows[-1][0]
        self._database.execute("replace into read values (1, ?, ?)", (place, self._beginning(place)))
        self._database.commit()
        return int(place)

    def _beginning(self, place: int) -> str:
        """Tell the log by how it begins."""
        if not place:
            return ""
        try:
            with (self.home.directory / "events.jsonl").open("rb") as file:
                return hashlib.sha256(file.read(min(place, 4096))).hexdigest()
        except OSError:
            return ""


def _row(place: int, line: dict[str, Any]) -> tuple[Any, ...]:
    last = max(numbers_of(line.get("members", "")), default=0)
    seen = (line.get("size"), line.get("novel")) if line["kind"] == events.OBSERVED else (None, None)
    return (place, line["kind"], line.get("key"), json.dumps(line), *seen, last)


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(str(path), check_same_thread=False)
    try:
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = off")  # a power cut costs a reading of the log, no more
        database.executescript(_TABLES)
        database.execute("select kind from events order by place desc limit 1").fetchone()
    except sqlite3.Error:
        database.close()
        raise
    return database

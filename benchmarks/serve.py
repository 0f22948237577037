"""The service under load on 127.0.0.1: images a second and latency, beside the bare forward pass.

    python benchmarks/serve.py --seconds 20
    python benchmarks/serve.py --minutes 10 --bad 0.1

It trains seven digits (or takes --home, a copy of which is served), starts `shels serve`, and sends it the
embedded digits, all of it in processes of their own. First form: batches of 64 and single
images, alone and while 500 digits are named and taken back every 10 seconds, in turn. Every line says how
much of one processor others used meanwhile, for their work is in the figures too. Second form: everything at
once for so long, some requests bad on purpose, and memory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from serving.bare import bare
from serving.client import JSON, NPY, Client
from serving.started import (
    Array,
    Served,
    Strangers,
    brighter,
    digits,
    memory,
    npy,
    processor_seconds,
    said,
    script,
    served,
)

BAD: list[tuple[str, str, dict[str, str], bytes]] = [
    ("POST", "/judge", NPY, b"\x93NUMPY\x01\x00garbage"),
    ("POST", "/judge", {"Content-Type": "text/plain"}, b"hello"),
    ("POST", "/judge", JSON, b'{"inputs": [[1, 2], [3]]}'),
    ("POST", "/judge", {"Content-Type": "image/png"}, b"\x89PNG\r\n\x1a\n" + bytes(64)),
    ("POST", "/judge", {"Content-Type": "multipart/form-data"}, b"no boundary"),
    ("POST", "/groups/g0/name", JSON, b'{"name": ""}'),
    ("PUT", "/rule", JSON, b'{"accept": 7}'),
    ("GET", "/images/999999999.png", {}, b""),
    ("POST", "/changes/1/undo", JSON, b""),
    ("DELETE", "/nothing", {}, b""),
]
MOST, EVERY = 500, 10.0
"""How many digits are named at once, and every how many seconds."""
CHANGES = ("learn", "undo")


class Answered(NamedTuple):
    """A request: when it was due, by the clock of all processes, and seconds until it was answered."""

    due: float
    seconds: float


class Step(NamedTuple):
    """What the one who teaches did, and when."""

    what: str
    began: float
    ended: float
    images: int


class Load:
    """Sends requests to one service, and prints what came of them."""

    def __init__(self, running: Served) -> None:
        self.running = running

    def __call__(
        self, what: str, paths: list[str], images: int, seconds: float, connections: int, rate: float = 0.0
    ) -> list[Answered]:
        """Send files in turn, as fast as they are answered or at a rate, and print a line."""
        process = self.running.process.pid
        used = processor_seconds(process)
        with Strangers(process) as others:
            text = said(script("sending", self.running.port, seconds, connections, rate, *paths))
        found = [Answered(*each) for each in json.loads(text)]
        used = (processor_seconds(process) - used) / (len(found) * images)
        p50, p99 = (milliseconds(found, share) for share in (0.5, 0.99))
        self.rate = len(found) * images / seconds
        self.cost = used
        print(
            f"{what:38}{self.rate:10.0f}{p50:9.2f}{p99:9.2f}{1e6 * used:10.1f}{100 * others.share:9.0f} %",
            flush=True,
        )
        return found


def milliseconds(answered: list[Answered], share: float) -> float:
    """Give the time under which so many of some requests were answered."""
    return 1000 * float(np.quantile([each.seconds for each in answered], share)) if answered else float("nan")


def short(given: Path | None, seconds: float, rounds: int, share: float, log: Path) -> None:
    """Measure throughput and latency, alone and while classes are learned."""
    known, novel = digits()
    with served(given, log) as running:
        load = Load(running)
        batches = running.written("batch", [known[start : start + 64] for start in range(0, 256, 64)])
        singles = running.written("single", [known[row : row + 1] for row in range(64)])
        print(f"{'':41}images/s   p50 ms   p99 ms   µs of processor an image; others' share of one")
        load("(to warm it up)", batches, 64, 2, 2)
        alone = bare(running.home, known[:64], seconds)
        load("/judge, 64 as .npy, 3 connections", batches, 64, seconds, 3)
        for other, (rate, cost) in alone.items():
            print(f"{'  of ' + other:38}{load.rate / rate:10.2f}{'':19}{cost / load.cost:10.2f}")
        forms = running.written("form", [known[start : start + 64] for start in range(0, 256, 64)], "form")
        load("/judge, 64 as PNG files, 3 connections", forms, 64, seconds, 3)
        full = load("/judge, 1 as .npy, 8 connections", singles, 1, seconds, 8)
        learning(load, singles, novel, max(seconds, EVERY), rounds, share * len(full) / seconds)


def learning(load: Load, paths: list[str], novel: Array, seconds: float, rounds: int, rate: float) -> None:
    """Measure single images at a rate, without and with classes learned, in turn for the machine's moods."""
    running = load.running
    twice = np.concatenate([novel, brighter(novel)])
    parts = [twice[start : start + 100] for start in range(0, len(twice), 100)]
    bodies = running.written("novel", [novel[:1], *parts])
    quiet, busy, steps = list[Answered](), list[Answered](), list[Step]()
    said(script("teaching", running.port, 1, 0, EVERY, MOST, *bodies))  # the first takes longer; shown apart
    for number in range(rounds):
        running.at_rest()  # what was taken back is grouped anew
        quiet += load("/judge, 1, at a share of that rate", paths, 1, seconds, 8, rate)
        first = 1 + 0.6 * seconds * number / rounds  # at other moments of each round
        teacher = script("teaching", running.port, seconds, first, EVERY, MOST, *bodies)
        busy += load("  while a class is learned every 10 s", paths, 1, seconds, 8, rate)
        steps += [Step(*json.loads(line)) for line in said(teacher).splitlines()]
    spans = [(each.began, each.ended) for each in steps if each.what in CHANGES]
    during = [
        each
        for each in busy
        if any(each.due < end and each.due + each.seconds > begin for begin, end in spans)
    ]
    before = milliseconds(quiet, 0.99)
    for what, found in (("every 10 s", busy), ("at that very moment", during)):
        p99 = milliseconds(found, 0.99)
        print(
            f"p99 of all rounds: {before:.1f} ms; while a class is learned {what} {p99:.1f} ms, "
            f"{p99 / before:.2f} times that"
        )
    times = defaultdict[str, list[str]](list)
    for each in steps:
        times[each.what].append(f"{1000 * (each.ended - each.began):.0f}")
    print(
        f"ms of each round, {steps[-1].images} digits:",
        "; ".join(f"{what} {', '.join(found)}" for what, found in times.items()),
    )


def long(given: Path | None, minutes: float, bad: float, every: float, log: Path) -> None:
    """Send everything at once for so long; count answers by status, and watch memory."""
    known, novel = digits()
    draws = np.random.default_rng(0)
    good: list[Callable[[], tuple[str, str, dict[str, str], bytes]]] = [
        lambda: ("POST", "/judge", NPY, npy(known[draws.integers(0, len(known), 64)])),
        lambda: ("POST", "/judge", NPY, npy(known[draws.integers(0, len(known), 1)])),
        lambda: ("POST", "/observe", NPY, npy(known[draws.integers(0, len(known), 4)])),
        lambda: ("GET", "/live?most=10", {}, b""),
        lambda: ("GET", "/groups?images=4", {}, b""),
    ]
    weights, counts = [0.45, 0.4, 0.1, 0.03, 0.02], Counter[int]()
    with served(given, log) as running:
        parts = [novel[start : start + 100] for start in range(0, 300, 100)]
        bodies = running.written("novel", [novel[:1], *parts])
        teacher = script("teaching", running.port, 60 * minutes, 0, every, MOST, *bodies)
        end = time.monotonic() + 60 * minutes

        def work() -> None:
            client = Client(running.port)
            while time.monotonic() < end:
                choice = draws.choice(len(good), p=weights)
                request = BAD[draws.integers(len(BAD))] if draws.random() < bad else good[choice]()
                try:
                    counts[client.ask(*request)[0]] += 1
                except (OSError, http.client.HTTPException):
                    counts[-1] += 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        while time.monotonic() < end:
            spent = (time.monotonic() - began) / 60
            print(f"{spent:5.1f} min  {memory(running.process.pid):7.1f} MiB  {dict(counts)}", flush=True)
            time.sleep(max(0.0, min(30.0, max(5.0, 6 * minutes), end - time.monotonic())))
        for thread in threads:
            thread.join()
        taught = Counter(json.loads(line)[0] for line in said(teacher).splitlines())
        print(f"      end  {memory(running.process.pid):7.1f} MiB  {dict(sorted(counts.items()))}")
        print(f"learned {taught['learn']} times, taken back {taught['undo']} times")


def main() -> None:
    """Read what is asked for, and measure it."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line has it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--home", type=Path, help="a home to copy and serve; without one, digits are trained")
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=4, help="of latency, with and without learning")
    parser.add_argument("--share", type=float, default=0.5, help="of the full rate, for that")
    parser.add_argument("--minutes", type=float, help="instead, everything at once for so long")
    parser.add_argument("--bad", type=float, default=0.1, help="share of bad requests in that")
    parser.add_argument("--every", type=float, default=EVERY, help="seconds between classes learned in that")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        log = Path(folder) / "log"
        if asked.minutes is None:
            short(asked.home, asked.seconds, asked.rounds, asked.share, log)
        else:
            long(asked.home, asked.minutes, asked.bad, asked.every, log)
        lines = log.read_text().splitlines()[1:]
        print(f"the service said {len(lines)} lines beside", *lines[:20], sep="\n  ")


if __name__ == "__main__":
    main()

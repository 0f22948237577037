"""The service under load on 127.0.0.1: images a second and latency, beside the bare forward pass.

    python benchmarks/serve.py --seconds 20
    python benchmarks/serve.py --minutes 10 --bad 0.1

It trains seven digits (or takes --home, a copy of which is served), starts `shels serve` as a process of its
own and sends it the embedded digits from this one. First form: batches of 64 and single images, alone and
while a class is learned and taken back every 10 seconds, and the time from naming some hundred digits to the
first verdict by the new class. Where others use the machine too, the processor time of an image says more
than images a second. Second form: everything at once for so long, some requests bad on purpose, and memory.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

Array = np.ndarray[Any, Any]
NPY = {"Content-Type": "application/x-npy"}
JSON = {"Content-Type": "application/json"}
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


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
        """Send a request and read the whole answer."""
        try:
            self.connection.request(method, path, body or None, headers)
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (http.client.HTTPException, OSError):
            self.connection.close()
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            raise

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for JSON; anything but success is an error."""
        status, answer = self.ask(method, path, JSON, b"" if body is None else json.dumps(body).encode())
        if status not in (200, 202):
            raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
        return json.loads(answer)


def npy(images: Array) -> bytes:
    """Write images as an .npy file."""
    file = io.BytesIO()
    np.save(file, images)
    return file.getvalue()


def digits() -> tuple[Array, Array]:
    """Give known and novel digits: (n, 8, 8) each."""
    from shels.data.sources import load_named  # noqa: PLC0415
    from shels.data.splits import draw_classes, split_data  # noqa: PLC0415
    from shels.demo import KNOWN_COUNT  # noqa: PLC0415

    data = load_named("digits")
    split = draw_classes(data.train.classes, KNOWN_COUNT, 0)
    _, known, new = split_data(data, split)
    novel = np.concatenate([new.inputs[:, 0].numpy(), data.train.only(split.novel).inputs[:, 0].numpy()])
    return known.inputs[:, 0].numpy(), novel


def brighter(images: Array) -> Array:
    """Give images that differ from these by one grey level, for equal ones count once where one learns."""
    found: Array = images + (images < 255).astype(images.dtype)
    return found


@contextlib.contextmanager
def served(given: Path | None, log: Path) -> Iterator[tuple[int, subprocess.Popen[str], Path]]:
    """Serve a copy of a home, or of one that is trained here; give the port, the process and the copy."""
    with tempfile.TemporaryDirectory(prefix="shels-bench-") as folder:
        home = Path(folder) / "home"
        if given is not None:
            shutil.copytree(given, home)
        else:
            from shels.runtime import finished  # noqa: PLC0415
            from shels.service.demonstration import preparing  # noqa: PLC0415

            finished(preparing(home))
        command = [sys.executable, "-m", "shels", "serve", str(home), "--port", "0", "--device", "cpu"]
        with log.open("w") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, text=True)  # noqa: S603
            try:
                yield _port(log, process), process, home
            finally:
                process.terminate()
                process.wait(20)


def _port(log: Path, process: subprocess.Popen[str]) -> int:
    while process.poll() is None:
        text = log.read_text()
        if "http://127.0.0.1:" in text:
            return int(text.partition("http://127.0.0.1:")[2].partition("/")[0])
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {log.read_text()}")


def load(
    port: int, requests: list[bytes], seconds: float, connections: int, rate: float | None = None
) -> list[float]:
    """Send requests over some connections, as fast as they are answered or at a rate; give each one's time.

    At a rate, time counts from when a request was due, so that one that waits for others is not flattered.
    """
    found: list[float] = []
    end = time.perf_counter() + seconds

    def work(place: int) -> None:
        client, number = Client(port), place
        due = time.perf_counter() + (place / rate if rate else 0)
        while time.perf_counter() < end:
            if rate:
                time.sleep(max(0.0, due - time.perf_counter()))
            began = due if rate else time.perf_counter()
            status, answer = client.ask("POST", "/judge", NPY, requests[number % len(requests)])
            if status != 200:
                raise RuntimeError(f"{status} {answer[:200]!r}")
            found.append(time.perf_counter() - began)
            number += connections
            due += connections / rate if rate else 0

    threads = [threading.Thread(target=work, args=(place,)) for place in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def processor_seconds(process: int | str = "self") -> float:
    """Tell how much processor time a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


PLAIN, NETWORK, JUDGING = "network(x) of PyTorch", "the network as judging has it", "judging without HTTP"


def bare(home: Path, batch: Array, seconds: float) -> dict[str, tuple[float, float]]:
    """Measure in this process, without HTTP: images a second, processor time an image.

    With as many threads as are the quickest: the network called as a module of PyTorch, as judging calls it,
    with channels last, and judging with its thresholds and p-values.
    """
    import torch  # noqa: PLC0415

    from shels.agent.home import Home  # noqa: PLC0415

    learner = Home(home).load("cpu")
    inputs = torch.from_numpy(batch)[:, None]
    network, prepare = learner.network, learner.preparation
    ways: dict[str, Callable[[Any], Any]] = {
        PLAIN: torch.no_grad()(lambda batch: network(prepare(batch))),
        NETWORK: learner.views,
        JUDGING: learner.judge,
    }
    found = dict[str, tuple[float, float]]()
    for what, work in ways.items():
        each = []
        for threads in sorted({1, os.cpu_count() or 1}):
            torch.set_num_threads(threads)
            rate, cost = _alone(work, inputs, seconds / 3)
            each.append((rate, cost))
            print(f"{f'{what}, {threads} thread(s)':38}{rate:10.0f}{'':19}{1e6 * cost:10.1f}", flush=True)
        found[what] = max(each)
    return found


def _alone(work: Callable[[Any], Any], inputs: Any, seconds: float) -> tuple[float, float]:
    work(inputs)
    count, began, used = 0, time.perf_counter(), processor_seconds()
    while time.perf_counter() - began < seconds:
        work(inputs)
        count += len(inputs)
    return count / (time.perf_counter() - began), (processor_seconds() - used) / count


class Teaching:
    """Feeds novel digits in, names them (or so many) and takes that back, every so many seconds."""

    def __init__(self, port: int, novel: Array, most: int = 500, every: float = 10.0) -> None:
        self.client, self.novel, self.most, self.every = Client(port), novel, most, every
        self.bodies = [npy(novel[start : start + 100]) for start in range(0, len(novel), 100)]
        self.first = 0.0
        self.seconds: list[float] = []
        self.images = 0

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self.first
        while not self._ended.wait(pause):
            self.teach()
            pause = self.every

    def teach(self, name: str = "new") -> None:
        """Send novel digits, name all that waits and take it back."""
        for part, body in enumerate(self.bodies):
            headers = {**NPY, "Idempotency-Key": f"bench-{part}"}
            status, answer = self.client.ask("POST", "/observe", headers, body)
            if status != 200:
                raise RuntimeError(f"{status} {answer[:200]!r}")
        groups = self.client.json("GET", "/groups?images=500")
        numbers = [image["number"] for group in groups for image in group["images"]][: self.most]
        began = time.perf_counter()
        done = self.client.json("POST", "/groups/rest/name", {"name": name, "images": numbers})
        while "change" not in done:  # it takes longer: a job
            time.sleep(0.05)
            done = self.client.json("GET", f"/jobs/{done['id']}")["done"] or done
        probe = npy(self.novel[:1])
        while (
            json.loads(self.client.ask("POST", "/judge", NPY, probe)[1])["version"]
            < done["change"]["version"]
        ):
            pass
        self.seconds.append(time.perf_counter() - began)
        self.images = len(numbers)
        self.client.json("POST", f"/changes/{done['change']['id']}/undo")


def by_seconds(client: Client) -> Counter[float]:
    """Count what /judge answered, by the bound of its time within the service, as /metrics has it."""
    found: Counter[float] = Counter()
    before = 0
    for line in client.ask("GET", "/metrics", {})[1].decode().splitlines():
        if line.startswith('shels_request_seconds_bucket{le="') and 'route="/judge"' in line:
            count = int(float(line.rpartition(" ")[2]))
            found[float(line.split('"')[1])] = count - before
            before = count
    return found


def within(found: Counter[float], share: float) -> float:
    """Give the bound under which so much of it lies."""
    count = 0
    for bound in sorted(found):
        count += found[bound]
        if count >= share * found.total():
            return bound
    return float("inf")


def short(given: Path | None, seconds: float, rounds: int, log: Path) -> None:
    """Measure throughput and latency, alone and while classes are learned."""
    known, novel = digits()
    batches = [npy(known[start : start + 64]) for start in range(0, 256, 64)]
    singles = [npy(known[row : row + 1]) for row in range(64)]
    with served(given, log) as (port, process, home):
        load(port, batches, 2, 2)
        print("                                        images/s   p50 ms   p99 ms   µs of processor an image")
        alone = bare(home, known[:64], seconds)

        def measured(what: str, requests: list[bytes], images: int, *shape: Any) -> list[float]:
            used = processor_seconds(process.pid)
            times = load(port, requests, *shape)
            used = (processor_seconds(process.pid) - used) / (len(times) * images)
            p50, p99 = (1000 * float(np.quantile(times, share)) for share in (0.5, 0.99))
            found = len(times) * images / shape[0]
            print(f"{what:38}{found:10.0f}{p50:9.2f}{p99:9.2f}{1e6 * used:10.1f}", flush=True)
            if images > 1:
                for other, (rate, cost) in alone.items():
                    print(f"{'  of ' + other:38}{found / rate:10.2f}{'':19}{cost / used:10.2f}")
            return times

        measured("/judge, 64, 3 connections", batches, 64, seconds, 3)
        full = measured("/judge, 1, 8 connections", singles, 1, seconds, 8)
        half = 0.5 * len(full) / seconds
        quiet: list[float] = []
        busy: list[float] = []
        teaching = Teaching(port, np.concatenate([novel, brighter(novel)]))
        least = max(seconds, 10)
        service = Client(port)
        inside: list[list[Counter[float]]] = [[], []]
        for number in range(
            rounds
        ):  # in turn, for others may use the machine; learning at other moments of it
            before = by_seconds(service)
            quiet += measured("/judge, 1, at half load", singles, 1, seconds, 8, half)
            between = by_seconds(service)
            teaching.first = 0.6 * least * number / rounds
            with teaching:
                busy += measured("  while a class is learned", singles, 1, least, 8, half)
            inside[0].append(between - before)
            inside[1].append(by_seconds(service) - between)
        limits = [1000 * float(np.quantile(times, 0.99)) for times in (quiet, busy)]
        what = f"  p99 of all {rounds} rounds: {limits[0]:.1f}, {limits[1]:.1f} ms"
        print(f"{what:38}{limits[1] / limits[0]:10.2f}")
        bounds = [1000 * within(sum(found, Counter()), 0.99) for found in inside]
        print(f"  p99 within the service: under {bounds[0]:g} ms, under {bounds[1]:g} ms")
        spent = ", ".join(f"{1000 * each:.0f}" for each in teaching.seconds)
        print(f"naming {teaching.images} digits to their use: {spent} ms")


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
    with served(given, log) as (port, process, _), Teaching(port, novel[:300], every=every):
        end = time.monotonic() + 60 * minutes

        def work() -> None:
            client = Client(port)
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
        while any(thread.is_alive() for thread in threads):
            spent = (time.monotonic() - began) / 60
            print(f"{spent:5.1f} min  {_memory(process.pid):7.1f} MiB  {dict(counts)}", flush=True)
            time.sleep(min(30.0, max(5.0, 6 * minutes)))
        for thread in threads:
            thread.join()
        print(f"      end  {_memory(process.pid):7.1f} MiB  {dict(sorted(counts.items()))}")


def _memory(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Read what is asked for, and measure it."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line has it
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--home", type=Path, help="a home to copy and serve; without one, digits are trained")
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=4, help="of latency, with and without learning")
    parser.add_argument("--minutes", type=float, help="instead, everything at once for so long")
    parser.add_argument("--bad", type=float, default=0.1, help="share of bad requests in that")
    parser.add_argument("--every", type=float, default=10, help="seconds between classes learned in that")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        if asked.minutes is None:
            short(asked.home, asked.seconds, asked.rounds, log)
        else:
            long(asked.home, asked.minutes, asked.bad, asked.every, log)
        lines = log.read_text().splitlines()[1:]
        print(f"the service said {len(lines)} lines beside", *lines[:20], sep="\n  ")


if __name__ == "__main__":
    main()

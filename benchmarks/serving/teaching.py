"""Feed novel images in, name all that waits, see it in use and take it back, every so many seconds.

    python benchmarks/serving/teaching.py PORT SECONDS FIRST EVERY MOST PROBE BODY [BODY ...]

It begins after FIRST seconds, names MOST images at most, and prints JSON lines: of each step what it was,
when it began and when it ended, by the clock that all processes share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from serving.client import NPY, Client

Step = tuple[str, float, float, int]
"""What was done, when it began and ended, and how many images it was about."""


def teach(client: Client, probe: bytes, bodies: list[bytes], most: int) -> Iterator[Step]:
    """Send novel images, name what waits, ask until the class is in use, and take it back."""
    began = time.monotonic()
    for part, body in enumerate(bodies):
        status, answer = client.ask("POST", "/observe", {**NPY, "Idempotency-Key": f"bench-{part}"}, body)
        if status != 200:
            raise RuntimeError(f"{status} {answer[:200]!r}")
    yield "observe", began, time.monotonic(), 0
    began = time.monotonic()
    groups = client.json("GET", "/groups?images=500")
    numbers = [image["number"] for group in groups for image in group["images"]][:most]
    yield "list", began, time.monotonic(), len(numbers)
    began = time.monotonic()
    done = client.json("POST", "/groups/rest/name", {"name": "new", "images": numbers})
    while "change" not in done:  # it takes longer: a job
        time.sleep(0.05)
        done = client.json("GET", f"/jobs/{done['id']}")["done"] or done
    learned = time.monotonic()
    while _version(client, probe) < done["change"]["version"]:
        pass
    yield "learn", began, learned, len(numbers)
    yield "name to use", began, time.monotonic(), len(numbers)
    began = time.monotonic()
    client.json("POST", f"/changes/{done['change']['id']}/undo")
    yield "undo", began, time.monotonic(), len(numbers)


def _version(client: Client, probe: bytes) -> int:
    return int(json.loads(client.ask("POST", "/judge", NPY, probe)[1])["version"])


def main() -> None:
    """Teach until the time is over; what is begun is finished."""
    port, seconds, first, every, most, *paths = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    client, (probe, *bodies) = Client(int(port)), [Path(path).read_bytes() for path in paths]
    pause = float(first)
    while time.monotonic() + pause < end:
        time.sleep(pause)
        for step in teach(client, probe, bodies, int(most)):
            print(json.dumps(step), flush=True)
        pause = float(every)


if __name__ == "__main__":
    main()

"""Send requests to `/judge`: over some connections as fast as they are answered, or at a rate.

    python benchmarks/serving/sending.py PORT SECONDS CONNECTIONS RATE BODY [BODY ...]

What a body is says the end of its name: .npy, or .form of files with the boundary "shels". A rate of 0 is
none. It prints a JSON list: of each request when it was due, by the clock that all processes share, and
seconds until it was answered. At a rate that counts from when it was due, so that one that waits for others
is not flattered. One thread, for threads would wait for each other and not for the service.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import sys
import time
from collections import deque
from pathlib import Path

HEAD = "POST /judge HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
KINDS = {".npy": "application/x-npy", ".form": "multipart/form-data; boundary=shels"}


def request(port: int, path: Path) -> bytes:
    """Write the request that sends a file."""
    body = path.read_bytes()
    return HEAD.format(port, KINDS[path.suffix], len(body)).encode() + body


def send(
    port: int, seconds: float, connections: int, rate: float, requests: list[bytes]
) -> list[list[float]]:
    """Send requests in turn, and give when each was due and how long it took."""
    idle = deque(socket.create_connection(("127.0.0.1", port)) for _ in range(connections))
    for each in idle:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    due, asked, read = deque[float](), dict[socket.socket, float](), dict[socket.socket, bytes]()
    found: list[list[float]] = []
    began, number = time.monotonic(), 0
    end = began + seconds
    while (now := time.monotonic()) < end or asked or due:
        while rate and now < end and began + number / rate <= now:
            due.append(began + number / rate)
            number += 1
        while idle and (due or (not rate and now < end)):
            line = idle.popleft()
            asked[line] = due.popleft() if rate else time.monotonic()
            line.sendall(requests[(len(found) + len(asked)) % len(requests)])
        pause = max(0.0, min(began + number / rate, end) - time.monotonic()) if rate and now < end else 1.0
        for line in select.select(list(asked), [], [], pause)[0]:
            read[line] = read.get(line, b"") + line.recv(2**18)
            if _whole(read[line]):
                when = asked.pop(line)
                found.append([when, time.monotonic() - when])
                del read[line]
                idle.append(line)
    return found


def _whole(answer: bytes) -> bool:
    """Tell whether an answer has all of its body; anything but success is an error."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not answer or not b"HTTP/1.1 200".startswith(answer[:12]):
        raise RuntimeError(f"answered by {answer[:300]!r}")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(body) and len(body) >= int(length)


if __name__ == "__main__":
    gc.disable()
    port, seconds, connections, rate, *paths = sys.argv[1:]
    requests = [request(int(port), Path(path)) for path in paths]
    json.dump(send(int(port), float(seconds), int(connections), float(rate), requests), sys.stdout)

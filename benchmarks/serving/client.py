"""One connection to a service; light, for the service has the processor of whoever asks."""

from __future__ import annotations

import http.client
import json
from typing import Any

NPY = {"Content-Type": "application/x-npy"}
JSON = {"Content-Type": "application/json"}


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

"""What stands before every route: other sites' requests refused, bodies bounded, headers, time taken."""

from __future__ import annotations

import asyncio
import time

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shels.service.access import Access
from shels.service.limits import Limits
from shels.service.measuring import Measures
from shels.service.precedence import Precedence
from shels.service.problems import RefusedError, problem

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_FIRST = ("/judge", "/infer")
"""What learning stands back for; not for what waits for it."""


class Guard:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, access: Access, limits: Limits, measures: Measures, precedence: Precedence
    ) -> None:
        self.app = app
        self.access = access
        self.limits = limits
        self.measures = measures
        self.precedence = precedence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, receive, send = _as_get(scope, send)
        began, status = time.perf_counter(), 500
        first = scope["path"].endswith(_FIRST) and not scope["query_string"]

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", ()))
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers + _HEADERS}
            await send(message)

        if first:
            self.precedence.begin()
        try:
            refused = self._refusal(Request(scope))
            if refused is not None:
                answer = problem(refused.status, str(refused), refused.field)
                await answer(scope, receive, sent)
            else:
                await self.app(scope, self._bounded(receive), sent)
        finally:
            if first:
                self.precedence.end()
            self.measures.request(scope, status, time.perf_counter() - began)

    def _refusal(self, request: Request) -> RefusedError | None:
        try:
            self.access.check_origin(request)
        except RefusedError as error:
            return error
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.limits.body:
            return RefusedError(413, _too_long(self.limits.body), "content-length")
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """Count what comes in, and give up on what is too long or takes too long."""
        left, end, whole = self.limits.body, time.monotonic() + self.limits.read_seconds, False

        async def bounded() -> Message:
            nonlocal left, whole
            if whole:
                return await receive()
            message = await _before(receive, end)
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, _too_long(self.limits.body))
            whole = not message.get("more_body", False)
            return message

        return bounded


def _as_get(scope: Scope, send: Send) -> tuple[Scope, Receive, Send]:
    """Have GET answer without a body: at its beginning the answer is ended, and nobody listens any more."""
    begun = asyncio.Event()
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        message = next(asked, None)
        if message is None:
            await begun.wait()
        return message or {"type": "http.disconnect"}

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            begun.set()

    return {**scope, "method": "GET"}, receive, sent


async def _before(receive: Receive, end: float) -> Message:
    try:
        async with asyncio.timeout(max(0.0, end - time.monotonic())):
            return await receive()
    except TimeoutError as error:
        raise HTTPException(408, "the body did not come in time; send it again") from error


def _too_long(most: int) -> str:
    return f"the body has more than {most} bytes; send it in parts"

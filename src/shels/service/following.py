"""The log as server-sent events, taken up again by Last-Event-ID wherever a listener was cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from shels.service import views
from shels.service.access import Caller, requires
from shels.service.jobs import BusyError
from shels.service.owner import Service
from shels.service.problems import answers

router = APIRouter(tags=["people"])
_LOOK_SECONDS, _BEAT_SECONDS = 0.2, 15.0
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events."}
}


@router.get("/events", responses=_STREAM | answers(401, 403, 422, 429), response_class=Response)
async def events(
    request: Request,
    caller: Annotated[Caller, Depends(requires("annotate"))],
    last: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**53)] = None,
    since: Annotated[int | None, Query(ge=0, le=2**53, description="As Last-Event-ID; 0 for all.")] = None,
    follow: Annotated[bool, Query(description="Whether to wait for more when all is told.")] = True,
) -> Response:
    """Tell what happens, as the log has it; id is where to go on. Without one, only what is new is told."""
    del caller
    state = request.app.state
    if state.listeners >= state.limits.listeners:
        raise BusyError(f"{state.limits.listeners} listen already; close a page, or try again later")
    start = last if last is not None else since
    start = state.service.bench.home.log.size if start is None else start
    return StreamingResponse(_told(request, start, follow), media_type="text/event-stream")


async def _told(request: Request, place: int, follow: bool) -> AsyncIterator[str]:
    state, service = request.app.state, request.app.state.service
    state.listeners += 1
    try:
        yield "retry: 2000\n\n"
        quiet = 0.0
        while True:
            found = await asyncio.to_thread(_since, service, place)
            for event in found:
                place = event.id
                yield _written(event)
            if not found and not follow:
                return
            if state.closing.is_set() or await request.is_disconnected():
                return
            quiet = 0.0 if found else quiet + _LOOK_SECONDS
            if quiet >= _BEAT_SECONDS:
                quiet = 0.0
                yield ": still here\n\n"
            if not found:
                await asyncio.sleep(_LOOK_SECONDS)
    finally:
        state.listeners -= 1


def _since(service: Service, place: int) -> list[views.Event]:
    return service.events(place) if service.bench.home.log.size > place else []


def _written(event: views.Event) -> str:
    data = json.dumps({"words": event.words, **event.line})
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n"

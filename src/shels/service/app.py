"""The HTTP face of a service: routes, answers and refusals. `create_app` makes it of a `Service`."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response

from shels._version import __version__
from shels.service import pictures, views
from shels.service.owner import Service

_QUICK = 2.0
"""Seconds that a request waits for its change; what takes longer is answered by its job."""


def service_of(request: Request) -> Service:
    """Give the service behind a request."""
    found: Service = request.app.state.service
    return found


def who(request: Request) -> str:
    """Give the name of whoever asks, for the history."""
    return str(getattr(request.state, "who", "person"))


async def answered(request: Request, job: tuple[int, Future[views.Done]]) -> Response:
    """Wait for a change for a moment: 200 with what it did, or 202 with the job to look at."""
    from fastapi.responses import JSONResponse  # noqa: PLC0415

    number, future = job
    try:
        done = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), _QUICK)
    except TimeoutError:
        view = service_of(request).jobs.view(number)
        return JSONResponse(asdict(view), 202, {"Location": f"/jobs/{number}"})
    return JSONResponse(asdict(done))


def create_app(service: Service) -> FastAPI:
    """Make the application that serves a home."""
    app = FastAPI(title="shels", version=__version__, docs_url=None, redoc_url=None)
    app.state.service = service

    @app.get("/live")
    def live(request: Request, most: int = 60) -> Any:
        return asdict(service_of(request).live(most))

    @app.get("/live/{number}.png")
    def live_image(request: Request, number: int) -> Response:
        return Response(pictures.png(service_of(request).sample_image(number)), media_type="image/png")

    @app.get("/images/{number}.png")
    def image(request: Request, number: int) -> Response:
        return Response(pictures.png(service_of(request).image(number)), media_type="image/png")

    @app.get("/groups")
    def groups(request: Request) -> Any:
        return [asdict(each) for each in service_of(request).groups()]

    return app

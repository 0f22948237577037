"""The HTTP face of a service: `create_app` makes an ASGI application of a `Service`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from shels._version import __version__
from shels.service import changing, following, inference, judging, people, reference
from shels.service.access import Access, Caller, requires
from shels.service.batching import Batcher
from shels.service.guard import Guard
from shels.service.limits import Limits
from shels.service.measuring import Measures
from shels.service.owner import Service
from shels.service.page import assets, changes, session, shown
from shels.service.problems import Problem, add_handlers, answers

router = APIRouter(tags=["the service"])
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Figures."}
}


@router.get("/metrics", responses=_TEXT | answers(401, 403), response_class=Response)
def metrics(request: Request, caller: Annotated[Caller, Depends(requires("judge"))]) -> Response:
    """Give figures for Prometheus."""
    del caller
    state = request.app.state
    return Response(state.measures.page(state.service, state.batcher), media_type="text/plain; version=0.0.4")


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> Response:
    """Show the reference."""
    return Response(reference.page(request.app.openapi(), assets.address("icon.svg")), media_type="text/html")


@router.get("/docs.css", include_in_schema=False)
def docs_style() -> Response:
    """Give the style of the reference."""
    return Response(reference.CSS, media_type="text/css", headers={"Cache-Control": "max-age=3600"})


def create_app(
    service: Service, access: Access | None = None, limits: Limits | None = None, name: str | None = None
) -> FastAPI:
    """Make the application that serves a home. access: who may do what; by default everybody all.

    name: what clients of the Open Inference Protocol call the model; by default as its directory.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.closing.set()
        app.state.batcher.close()

    app = FastAPI(title="shels", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    state = app.state
    state.service, state.access, state.limits = service, access or Access(), limits or Limits()
    state.name = name or service.bench.home.directory.resolve().name
    state.batcher, state.measures = Batcher(service, state.limits.judging), Measures()
    state.observing = state.listeners = 0
    state.closing = threading.Event()
    for each in (judging, people, changing, following, inference):
        app.include_router(each.router)
    for page in (router, shown.router, changes.router, session.router, assets.router):
        app.include_router(page)
    add_handlers(app)
    app.add_middleware(
        Guard,
        access=state.access,
        limits=state.limits,
        measures=state.measures,
        precedence=service.precedence,
    )
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    return app


def _schema(app: FastAPI) -> dict[str, Any]:
    """Describe the application, refusals as problem documents, tokens as they are sent."""
    if not app.openapi_schema:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        parts = schema.setdefault("components", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            parts.get("schemas", {}).pop(unused, None)
        parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}, {}]
        app.openapi_schema = schema
    return app.openapi_schema

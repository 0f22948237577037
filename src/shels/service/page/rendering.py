"""Templates filled in: whole pages, parts of pages for htmx, messages, and refusals as people read them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any
from urllib.parse import quote

import jinja2
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute

from shels.agent import events
from shels.errors import ShelsError
from shels.report import words
from shels.service import views
from shels.service.access import Access, Caller
from shels.service.owner import Service
from shels.service.page import assets, drawing
from shels.service.problems import refusal_of

VIEWS = {
    "live": ("/", "Live"),
    "new": ("/page/new", "New"),
    "classes": ("/page/classes", "Classes"),
    "history": ("/page/history", "History"),
    "quality": ("/page/quality", "Quality"),
}
_START = secrets.token_hex(4)
"""Tells this start of the service from others."""


class PageRoute(APIRoute):
    """A route that answers refusals by HTML: a message where htmx asked, else a page or the login form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler."""
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except (ShelsError, RequestValidationError) as error:
                return refused(request, error)

        return handled


def refused(request: Request, error: Exception) -> Response:
    """Say a refusal; whoever has no session is sent to the login form, and back from there."""
    status, said = _said(error)
    part = "hx-request" in request.headers
    if status == 401 and request.url.path != "/login":
        back = "/" if part or request.method != "GET" else request.url.path
        where = f"/login?back={quote(back, safe='/')}"
        return Response(status_code=401, headers={"HX-Redirect": where}) if part else _see(where)
    if part:
        headers = {"HX-Retarget": "#message", "HX-Reswap": "innerHTML"}
        return HTMLResponse(_filled("message.html", kind="error", said=said, undo=None), status, headers)
    return HTMLResponse(
        _filled("refused.html", status=status, said=said, active="", views=VIEWS, pixels=False), status
    )


def whole(request: Request, caller: Caller, active: str, **values: Any) -> HTMLResponse:
    """Make a whole page of one of the views."""
    service: Service = request.app.state.service
    access: Access = request.app.state.access
    common = {
        "views": VIEWS,
        "active": active,
        "home": request.app.state.name,
        "version": service.snapshot.version,
        "waiting": len(service.bench.waiting()),
        "signed_in": caller if access.tokens else None,
        "may_administer": caller.may("admin"),
        "running": [job for job in service.jobs.shown() if job.state in ("waiting", "running")][-1:],
    }
    return HTMLResponse(_filled(f"{active}.html", **common, **shown(service), **values))


def part(request: Request, name: str, **values: Any) -> HTMLResponse:
    """Make a part of a page."""
    return HTMLResponse(_filled(name, **shown(request.app.state.service), **values))


def shown(service: Service) -> dict[str, Any]:
    """Tell how pictures are drawn: small ones with hard pixels, each address its own for this start.

    Numbers of samples begin again when the service does, and browsers keep pictures.
    """
    return {
        "picture": lambda where: f"{where}?s={_START}",
        "pixels": service.learner.preparation.shape[-1] <= 64,
    }


def done_message(done: views.Done) -> HTMLResponse:
    """Say what a change did, with a way back; on seeing it the page fetches its parts again."""
    undo = done.change.id if done.change.undoable else None
    return HTMLResponse(
        _filled("message.html", kind="done", said=sentence(done), undo=undo, notes=done.notes)
    )


def sentence(done: views.Done) -> str:
    """Say what a change did: who made it stands in the history."""
    took = f"{1000 * done.seconds:.0f}\N{NO-BREAK SPACE}ms"
    rates = (
        f"false alarms {words.percent(done.false_alarms_before)} → {words.percent(done.false_alarms_after)}"
    )
    if done.change.undoes is not None:
        return f"Taken back in {took}, {rates}"
    what = told(done.change)
    name, learned, images = what.partition(" learned from ")
    if learned:
        return f"{name} learned in {took} from {images}, {rates}"
    return f"{what[:1].upper()}{what[1:]} ({took}), {rates}"


def told(change: views.ChangeView) -> str:
    """Say a change without who made it, which stands beside it.

    >>> words = "cow taken in from 5 images, by Ada"
    >>> made = views.ChangeView(9, "accommodated", words, "Ada", "", 2, 1, 5, None,
    ...     True, True, None)
    >>> told(made)
    '“cow” learned from 5 images'
    """
    what = change.words.removesuffix(f", by {change.by}")
    name, taken, images = what.rpartition(" taken in from ")
    if change.kind == events.ACCOMMODATED and taken:
        return f"“{name}” learned from {images}"
    if change.kind == events.ROLLED_BACK:
        return f"version {change.version} is in use again"
    return what


def _filled(name: str, **values: Any) -> str:
    return templates().get_template(name).render(**values)


@cache
def templates() -> jinja2.Environment:
    """Open the folder of templates; everything that is put into them is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("shels.service.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": words.count,
        "percent": words.percent,
        "p": p_value,
        "moment": moment,
        "told": told,
    }
    made.globals |= {"asset": assets.address, "drawing": drawing}
    return made


def p_value(value: float) -> str:
    """Write a p-value.

    >>> p_value(0.03771), p_value(0.00002)
    ('0.038', '<0.001')
    """
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def moment(time: str | None) -> str:
    """Write a time of the log for people; the page's script brings it to their zone.

    >>> moment("2026-11-16T23:33:55.452+00:00")
    '2026-11-16 23:33:55 UTC'
    """
    return words.NOTHING if not time else f"{time[:10]} {time[11:19]} UTC"


def _see(where: str) -> Response:
    return RedirectResponse(where, 303)


def _said(error: Exception) -> tuple[int, str]:
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return 422, f"{first.get('loc', ('',))[-1]}: {first.get('msg', 'not as it should be')}"
    return refusal_of(error).status_code, str(error)

"""Style, scripts and their licences, sent under an address that changes with their content."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

from shels.service.problems import RefusedError

router = APIRouter(include_in_schema=False)
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_NAMES = ("page.css", "page.js", "grid.js", "htmx.min.js", "sse.min.js", "icon.svg", "LICENSES.txt")
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@router.get("/static/{name}")
def asset(name: str) -> Response:
    """Give one of the files of the page; no other file can be asked for."""
    if name not in _NAMES:
        raise RefusedError(404, f"the page has no file {name[:40]!r}", "name")
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(_content(name), media_type=f"{kind}; charset=utf-8", headers=_FOREVER)


@cache
def address(name: str) -> str:
    """Give where a file of the page is.

    >>> address("page.css").startswith("/static/page.css?v=")
    True
    """
    return f"/static/{name}?v={hashlib.sha256(_content(name)).hexdigest()[:12]}"


@cache
def _content(name: str) -> bytes:
    return (files("shels.service.page") / "static" / name).read_bytes()

"""Refusals as RFC 9457 problem documents that also hold `error`, say what to do and name the field."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from shels.errors import ModelFileError, ShelsError
from shels.service.jobs import BusyError, CancelledError

MEDIA_TYPE = "application/problem+json"
_NO_OBJECT = ("missing", "model_attributes_type", "model_type", "dict_type")
_LOG = logging.getLogger("shels.service")


class Problem(BaseModel):
    """Why a request was refused (RFC 9457), and `error`: the same in one sentence that says what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    error: str
    field: str | None = None


class RefusedError(ShelsError):
    """A request that is refused. field: what in it is at fault."""

    def __init__(
        self, status: int, error: str, field: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.field, self.headers = status, field, headers or {}


def problem(
    status: int, error: str, field: str | None = None, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Make the document of a refusal."""
    title = HTTPStatus(status).phrase
    body = Problem(title=title, status=status, detail=error, error=error, field=field).model_dump()
    return JSONResponse(body, status, headers, MEDIA_TYPE)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the refusals that a route can give, for its documentation."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


def refusal_of(error: Exception) -> JSONResponse:
    """Say an error of the library as a refusal."""
    if isinstance(error, RefusedError):
        return problem(error.status, str(error), error.field, error.headers)
    if isinstance(error, BusyError):
        return problem(429, str(error), headers={"Retry-After": "1"})
    if isinstance(error, CancelledError):
        return problem(409, str(error))
    if isinstance(error, ModelFileError):  # the disk is full, read-only or gone; judging goes on
        return problem(507, str(error))
    return problem(422, str(error))


def _methods(request: Request) -> list[str]:
    """List what an address takes, over all routes that it has."""
    path, found = request.url.path, set()
    for template, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\\\{[^}]*\}", "[^/]+", re.escape(template)), path):
            found |= {method.upper() for method in operations}
    found = found or {"GET"}
    return sorted(found | {"HEAD"} if "GET" in found else found)


def add_handlers(app: FastAPI) -> None:
    """Have every error of an application answered by a problem document."""

    @app.exception_handler(ShelsError)
    async def refused(request: Request, error: Exception) -> JSONResponse:
        del request
        return refusal_of(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: Exception) -> JSONResponse:
        del request
        first: dict[str, Any] = error.errors()[0] if isinstance(error, RequestValidationError) else {}
        place = [
            str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path", "header")
        ]
        if first.get("type") == "json_invalid":  # its place is that of a character
            why = first.get("ctx", {}).get("error", first["msg"])
            return problem(422, f"the body is not JSON ({why}); see /docs", "body")
        if first.get("loc") == ("body",) and first.get("type") in _NO_OBJECT:
            words = "the body must be a JSON object, sent with Content-Type: application/json; see /docs"
            return problem(422, words, "body")
        field = ".".join(place) or None
        where = f"{field}: " if field else ""
        why = first.get("msg", "the request is not as documented").removeprefix("Value error, ")
        return problem(422, f"{where}{why}; see /docs", field)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: Exception) -> JSONResponse:
        status = getattr(error, "status_code", 500)
        words = {
            404: f"there is nothing at {request.url.path}; see /docs",
            405: f"{request.url.path} does not take {request.method}; see /docs",
        }
        headers = dict(getattr(error, "headers", None) or {})
        if status == 405:
            headers["Allow"] = ", ".join(_methods(request))
        return problem(status, words.get(status, str(getattr(error, "detail", error))), headers=headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
        return problem(500, "this should not have happened; the log of the service says more")

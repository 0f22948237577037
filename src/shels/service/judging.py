"""Routes that judge what people really send: images, arrays and JSON to `/judge` and `/observe`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from torch import Tensor

from shels.errors import DataError, SettingsError
from shels.service import views
from shels.service.access import Caller, requires
from shels.service.batching import Batcher
from shels.service.decode import JSON, NPY, NPZ, Decoder, File
from shels.service.jobs import BusyError
from shels.service.limits import Limits
from shels.service.owner import Service
from shels.service.problems import RefusedError, answers


class _Short(APIRoute):
    """A route that is asked without a key or a query most of the time: then nothing is to be looked for.

    To look through what may come with a request takes as long as to judge a small image.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give what answers a request."""
        whole, may_judge = super().get_route_handler(), requires("judge")
        if self.path != "/judge":
            return whole

        async def answered(request: Request) -> Response:
            if request.scope["query_string"] or "idempotency-key" in request.headers:
                return await whole(request)
            await may_judge(request)
            return await _judged(request)

        return answered


router = APIRouter(tags=["judging"], route_class=_Short)
_SMALL = 2**18
"""Bytes of arrays and JSON up to which it is quicker to decode at once than to hand over to a thread."""
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_ROWS = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "array", "items": {"type": "number"}, "minItems": 1},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Images, an .npz file with x, an .npy file, or JSON: a row for each sample.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            },
            NPZ: _BINARY,
            NPY: _BINARY,
            "image/png": _BINARY,
            "image/jpeg": _BINARY,
            JSON: {"schema": {"type": "object", "required": ["inputs"], "properties": {"inputs": _ROWS}}},
        },
    }
}
REFUSALS = answers(400, 401, 403, 408, 413, 415, 422, 429, 503, 507)
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")
]
MayJudge = Annotated[Caller, Depends(requires("judge"))]


class Verdicts(BaseModel):
    """The version that judged, and a verdict on each sample. observed: where they were fed in as well."""

    version: int
    verdicts: list[views.Judged]
    observed: views.Observation | None = None


@router.post("/judge", response_model=Verdicts, responses=REFUSALS, openapi_extra=_BODY)
async def judge(
    request: Request,
    caller: MayJudge,
    key: Key = None,
    observe: Annotated[bool, Query(description="Whether the agent is fed with them too.")] = False,
) -> Response:
    """Say of each sample which class it is of, or that it is novel."""
    return await (_observed(request, caller, key) if observe else _judged(request))


async def _judged(request: Request) -> Response:
    batcher: Batcher = request.app.state.batcher
    batcher.check_room()
    inputs = await sent_inputs(request)
    version, verdicts = await in_time(request, batcher.judge(inputs))
    count(request, verdicts)
    return _answer(version, verdicts, None)


@router.post("/observe", response_model=Verdicts, responses=REFUSALS, openapi_extra=_BODY)
async def observe(request: Request, caller: MayJudge, key: Key = None) -> Response:
    """Feed samples in: each is judged and counted, novel ones are kept for a person. On disk when answered.

    The same Idempotency-Key is never counted twice, so whoever gets no answer may send the same again.
    """
    return await _observed(request, caller, key)


async def _observed(request: Request, caller: Caller, key: str | None) -> Response:
    service: Service = request.app.state.service
    limits: Limits = request.app.state.limits
    state = request.app.state
    if state.observing >= limits.judging:
        raise BusyError(f"{limits.judging} requests are being observed; try again in a moment")
    state.observing += 1
    try:
        inputs = await sent_inputs(request)
        work = partial(service.observe, inputs, key, caller.name)
        seen, verdicts = await in_time(request, asyncio.to_thread(work))
    except SettingsError as error:  # it came with other samples before
        raise RefusedError(422, str(error), "Idempotency-Key") from error
    finally:
        state.observing -= 1
    count(request, verdicts)
    return _answer(service.snapshot.version, verdicts, seen)


async def sent_inputs(request: Request) -> Tensor:
    """Read what was sent, as inputs of the model."""
    service: Service = request.app.state.service
    decoder = Decoder(service.learner.preparation, request.app.state.limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    files = kind == "multipart/form-data"
    try:
        if files:
            return await asyncio.to_thread(decoder.files, await _files(request))
        content = await request.body()
        if len(content) <= _SMALL and not kind.startswith("image/"):
            return decoder.body(kind, content)
        return await asyncio.to_thread(decoder.body, kind, content)
    except DataError as error:
        raise RefusedError(422, str(error), "files" if files else "body") from error


async def _files(request: Request) -> list[File]:
    limits: Limits = request.app.state.limits
    async with request.form(max_files=limits.samples, max_fields=16) as found:
        uploads = [each for _, each in found.multi_items() if isinstance(each, UploadFile)]
        return [File((each.filename or "a file")[:80], await each.read()) for each in uploads]


async def in_time(request: Request, work: Any) -> Any:
    """Wait for a verdict no longer than is allowed."""
    try:
        return await asyncio.wait_for(work, request.app.state.limits.judge_seconds)
    except TimeoutError as error:
        raise RefusedError(503, "judging took too long; send fewer samples at once") from error


def count(request: Request, verdicts: list[views.Judged]) -> None:
    """Count what was judged, for the metrics."""
    request.app.state.measures.judged(len(verdicts), sum(each.novel for each in verdicts))


def _answer(version: int, verdicts: list[views.Judged], seen: views.Observation | None) -> Response:
    """Write verdicts as JSON, row by row: its general writer takes three times as long."""
    names = {name: json.dumps(name) for each in verdicts for name in (each.verdict, each.predicted)}
    rows = ", ".join(
        f'{{"verdict": {names[each.verdict]}, "novel": {"true" if each.novel else "false"}, '
        f'"predicted": {names[each.predicted]}, "score": {each.score!r}, "threshold": {each.threshold!r}, '
        f'"p_value": {each.p_value!r}}}'
        for each in verdicts
    )
    observed = json.dumps(None if seen is None else seen.__dict__, allow_nan=False)
    text = f'{{"version": {version}, "verdicts": [{rows}], "observed": {observed}}}'
    return Response(text, media_type=JSON)

"""Routes that judge: what people really send (`/judge`, `/observe`), and the Open Inference Protocol's."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from torch import Tensor

from shels.service import views
from shels.service.access import Caller, requires
from shels.service.batching import Answer, Batcher
from shels.service.decode import JSON, NPY, NPZ, Decoder, File
from shels.service.jobs import BusyError
from shels.service.limits import Limits
from shels.service.owner import Service
from shels.service.problems import RefusedError, answers

router = APIRouter(tags=["judging"])
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
    if observe:
        return await _observed(request, caller, key)
    batcher: Batcher = request.app.state.batcher
    batcher.check_room()
    inputs = await sent_inputs(request)
    version, verdicts = await _in_time(request, batcher.judge(inputs))
    _count(request, verdicts)
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
        seen, verdicts = await _in_time(request, asyncio.to_thread(work))
    finally:
        state.observing -= 1
    _count(request, verdicts)
    return _answer(service.snapshot.version, verdicts, seen)


async def sent_inputs(request: Request) -> Tensor:
    """Read what was sent, as inputs of the model."""
    service: Service = request.app.state.service
    decoder = Decoder(service.learner.preparation, request.app.state.limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        files = await _files(request)
        return await asyncio.to_thread(decoder.files, files)
    content = await request.body()
    if len(content) <= _SMALL and not kind.startswith("image/"):
        return decoder.body(kind, content)
    return await asyncio.to_thread(decoder.body, kind, content)


async def _files(request: Request) -> list[File]:
    limits: Limits = request.app.state.limits
    async with request.form(max_files=limits.samples, max_fields=16) as found:
        uploads = [each for _, each in found.multi_items() if isinstance(each, UploadFile)]
        return [File((each.filename or "a file")[:80], await each.read()) for each in uploads]


async def _in_time(request: Request, work: Any) -> Any:
    try:
        return await asyncio.wait_for(work, request.app.state.limits.judge_seconds)
    except TimeoutError as error:
        raise RefusedError(503, "judging took too long; send fewer samples at once") from error


def _count(request: Request, verdicts: list[views.Judged]) -> None:
    request.app.state.measures.judged(len(verdicts), sum(each.novel for each in verdicts))


def _answer(version: int, verdicts: list[views.Judged], seen: views.Observation | None) -> Response:
    found = {
        "version": version,
        "verdicts": [each.__dict__ for each in verdicts],
        "observed": None if seen is None else seen.__dict__,
    }
    return Response(json.dumps(found, allow_nan=False), media_type=JSON)


# The Open Inference Protocol, version 2 -----------------------------------------------------------------

v2 = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
_KINDS = {
    "FP32": "float32",
    "FP64": "float64",
    "FP16": "float16",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "UINT16": "uint16",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
_SPOKEN = answers(401, 403, 404, 422)


class Sent(BaseModel):
    """An input tensor: numbers in any nesting, their shape and kind."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class Wanted(BaseModel):
    """An output that is asked for."""

    name: str


class InferenceRequest(BaseModel):
    """What a client of the protocol sends; one input tensor, of images (n, h, w[, c]) or vectors (n, d)."""

    id: str | None = None
    inputs: list[Sent]
    outputs: list[Wanted] | None = None


@v2.get("", responses=answers(401, 403))
def server(caller: MayJudge) -> dict[str, Any]:
    """Say what serves."""
    from shels._version import __version__  # noqa: PLC0415

    del caller
    return {"name": "shels", "version": __version__, "extensions": []}


@v2.get("/health/live")
def is_live() -> dict[str, bool]:
    """Say that the process runs."""
    return {"live": True}


@v2.get("/health/ready", responses=answers(503))
def is_ready(request: Request) -> Response:
    """Say whether judging works; 503 where the thread that changes the model has died."""
    ready = request.app.state.service.jobs.alive
    return JSONResponse({"ready": ready}) if ready else _not_ready()


def _not_ready() -> Response:
    from shels.service.problems import problem  # noqa: PLC0415

    return problem(503, "the service is ending, or cannot go on; start it again")


@v2.get("/models/{name}", responses=_SPOKEN)
@v2.get("/models/{name}/versions/{version}", responses=_SPOKEN)
def model(request: Request, caller: MayJudge, name: str, version: str | None = None) -> dict[str, Any]:
    """Describe the model: its versions, what it takes and gives."""
    del caller
    service = _named(request, name)
    _version(service, version)
    shape = list(service.learner.preparation.shape)
    image = [-1, -1, -1, shape[0]] if len(shape) == 3 else [-1, *shape]
    outputs = {"verdict": "BYTES", "novel": "BOOL", "score": "FP32", "threshold": "FP32", "p_value": "FP32"}
    return {
        "name": name,
        "versions": [str(number) for number in service.bench.home.versions()],
        "platform": "shels",
        "inputs": [{"name": "x", "datatype": "UINT8" if len(shape) == 3 else "FP32", "shape": image}],
        "outputs": [{"name": each, "datatype": kind, "shape": [-1]} for each, kind in outputs.items()],
    }


@v2.get("/models/{name}/ready", responses=_SPOKEN)
@v2.get("/models/{name}/versions/{version}/ready", responses=_SPOKEN)
def model_ready(request: Request, caller: MayJudge, name: str, version: str | None = None) -> dict[str, bool]:
    """Say whether a version of the model can be asked."""
    del caller
    _version(_named(request, name), version)
    return {"ready": True}


@v2.post("/models/{name}/infer", responses=REFUSALS | answers(404))
@v2.post("/models/{name}/versions/{version}/infer", responses=REFUSALS | answers(404))
async def infer(
    request: Request, caller: MayJudge, name: str, given: InferenceRequest, version: str | None = None
) -> dict[str, Any]:
    """Judge a tensor of samples, by the version in use or another."""
    del caller
    service = _named(request, name)
    number = _version(service, version)
    inputs = _tensor(given, Decoder(service.learner.preparation, request.app.state.limits))
    found, verdicts = await _in_time(request, _by_version(request, number, inputs))
    _count(request, verdicts)
    wanted = None if not given.outputs else {each.name for each in given.outputs}
    outputs = [each for each in _outputs(verdicts) if wanted is None or each["name"] in wanted]
    answer = {"model_name": name, "model_version": str(found), "outputs": outputs}
    return answer if given.id is None else answer | {"id": given.id}


async def _by_version(request: Request, number: int | None, inputs: Tensor) -> Answer:
    service: Service = request.app.state.service
    batcher: Batcher = request.app.state.batcher
    if number is None or number == service.snapshot.version:
        return await batcher.judge(inputs)
    batcher.check_room()
    return await asyncio.to_thread(lambda: (number, service.version(number).judge(inputs)))


def _tensor(given: InferenceRequest, decoder: Decoder) -> Tensor:
    if len(given.inputs) != 1:
        raise RefusedError(422, f"the model takes one input tensor, got {len(given.inputs)}", "inputs")
    sent = given.inputs[0]
    if sent.datatype not in _KINDS:
        words = f"the datatype {sent.datatype!r} is not taken; choose from {', '.join(_KINDS)}"
        raise RefusedError(422, words, "inputs.datatype")
    if any(size < 0 for size in sent.shape):
        raise RefusedError(422, "a shape has no negative size", "inputs.shape")
    return decoder.checked(decoder.tensor(sent.data, sent.shape, "inputs.data", _KINDS[sent.datatype]))


def _outputs(verdicts: list[views.Judged]) -> list[dict[str, Any]]:
    kinds = {"verdict": "BYTES", "novel": "BOOL", "score": "FP32", "threshold": "FP32", "p_value": "FP32"}
    return [
        {
            "name": name,
            "datatype": kind,
            "shape": [len(verdicts)],
            "data": [getattr(each, name) for each in verdicts],
        }
        for name, kind in kinds.items()
    ]


def _named(request: Request, name: str) -> Service:
    if name != request.app.state.name:
        raise RefusedError(404, f"there is no model {name!r} here, only {request.app.state.name!r}", "name")
    service: Service = request.app.state.service
    return service


def _version(service: Service, version: str | None) -> int | None:
    if version is None:
        return None
    known = service.bench.home.versions()
    number = int(version) if version.isascii() and version.isdecimal() and len(version) < 10 else -1
    if number not in known:
        raise RefusedError(
            404, f"there is no version {version!r}; there are {known[0]} to {known[-1]}", "version"
        )
    return number

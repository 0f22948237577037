"""The Open Inference Protocol, version 2: health, models with their versions, inference on tensors."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from torch import Tensor

from shels._version import __version__
from shels.service import views
from shels.service.batching import Answer, Batcher
from shels.service.decode import Decoder
from shels.service.judging import REFUSALS, MayJudge, count, in_time
from shels.service.owner import Service
from shels.service.problems import RefusedError, answers, problem

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])
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
_OUTPUTS = {"verdict": "BYTES", "novel": "BOOL", "score": "FP32", "threshold": "FP32", "p_value": "FP32"}
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


@router.get("", responses=answers(401, 403))
def server(caller: MayJudge) -> dict[str, Any]:
    """Say what serves."""
    del caller
    return {"name": "shels", "version": __version__, "extensions": []}


@router.get("/health/live")
def is_live() -> dict[str, bool]:
    """Say that the process runs."""
    return {"live": True}


@router.get("/health/ready", responses=answers(503))
def is_ready(request: Request) -> Response:
    """Say whether judging works; 503 where the thread that changes the model has died."""
    if not request.app.state.service.jobs.alive:
        return problem(503, "the service is ending, or cannot go on; start it again")
    return JSONResponse({"ready": True})


@router.get("/models/{name}", responses=_SPOKEN)
@router.get("/models/{name}/versions/{version}", responses=_SPOKEN)
def model(request: Request, caller: MayJudge, name: str, version: str | None = None) -> dict[str, Any]:
    """Describe the model: its versions, what it takes and gives."""
    del caller
    service = _named(request, name)
    _version(service, version)
    shape = list(service.learner.preparation.shape)
    image = [-1, -1, -1, shape[0]] if len(shape) == 3 else [-1, *shape]
    return {
        "name": name,
        "versions": [str(number) for number in service.bench.home.versions()],
        "platform": "shels",
        "inputs": [{"name": "x", "datatype": "UINT8" if len(shape) == 3 else "FP32", "shape": image}],
        "outputs": [{"name": each, "datatype": kind, "shape": [-1]} for each, kind in _OUTPUTS.items()],
    }


@router.get("/models/{name}/ready", responses=_SPOKEN)
@router.get("/models/{name}/versions/{version}/ready", responses=_SPOKEN)
def model_ready(request: Request, caller: MayJudge, name: str, version: str | None = None) -> dict[str, bool]:
    """Say whether a version of the model can be asked."""
    del caller
    _version(_named(request, name), version)
    return {"ready": True}


@router.post("/models/{name}/infer", responses=REFUSALS | answers(404))
@router.post("/models/{name}/versions/{version}/infer", responses=REFUSALS | answers(404))
async def infer(
    request: Request, caller: MayJudge, name: str, given: InferenceRequest, version: str | None = None
) -> dict[str, Any]:
    """Judge a tensor of samples, by the version in use or another."""
    del caller
    service = _named(request, name)
    number = _version(service, version)
    inputs = _tensor(given, Decoder(service.learner.preparation, request.app.state.limits))
    found, verdicts = await in_time(request, _by_version(request, number, inputs))
    count(request, verdicts)
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
    return [
        {
            "name": name,
            "datatype": kind,
            "shape": [len(verdicts)],
            "data": [getattr(each, name) for each in verdicts],
        }
        for name, kind in _OUTPUTS.items()
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

"""Routes by which people change something: what a group is, classes, the rule, versions; and take it back."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, model_validator

from shels.errors import DataError, SettingsError
from shels.service import views
from shels.service.people import (
    MayAdminister,
    MayAnnotate,
    Number,
    class_named,
    group_named,
    service_of,
    version_named,
)
from shels.service.problems import RefusedError, answers, refusal_of

router = APIRouter(tags=["people"])
_QUICK = 2.0
"""Seconds that a request waits for its change; what takes longer is answered by its job."""
_CHANGED: dict[int | str, dict[str, Any]] = {
    202: {"model": views.Job, "description": "It takes longer: look at the job, or cancel it there."},
    **answers(400, 401, 403, 404, 409, 413, 422, 429, 507),
}
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]
Job = tuple[int, Future[views.Done]]


async def answered(
    request: Request, job: Job, refused: int = 422, field: str | None = None, data: str | None = None
) -> Response:
    """Wait for a change for a moment: 200 with what it did, or 202 with the job to look at.

    refused: the status of what cannot be done. field, data: what of the request is at fault, where it is what
    was asked for or the images.
    """
    number, future = job
    try:
        done = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), _QUICK)
    except TimeoutError:
        view = service_of(request).jobs.view(number)
        return JSONResponse(asdict(view), 202, {"Location": f"/jobs/{number}"})
    except SettingsError as error:
        return refusal_of(RefusedError(refused, str(error), field))
    except DataError as error:
        return refusal_of(RefusedError(422, str(error), data))
    return JSONResponse(asdict(done))


class Chosen(BaseModel):
    """images: numbers of images; all of the group where it is left out."""

    images: list[Annotated[int, Field(ge=0, le=2**53)]] | None = Field(None, min_length=1, max_length=20000)


class Naming(Chosen):
    """What a group is: a name, new or known, or a verdict."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["name"]}, {"required": ["verdict"]}]}}
    name: Name | None = None
    verdict: Literal["not novel", "rubbish"] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Naming:
        if (self.name is None) == (self.verdict is None):
            raise ValueError('give either a name or a verdict ("not novel" or "rubbish")')
        return self


class Into(BaseModel):
    """into: the other group, or class."""

    into: Name


class ClassName(BaseModel):
    """name: of a class that is known."""

    name: Name


class Renaming(ClassName):
    """to: the new name."""

    to: Name


class Merging(ClassName, Into):
    """A class that is another."""


class Accepting(BaseModel):
    """accept: the share of known samples that is to be accepted, such as 0.99."""

    accept: float = Field(gt=0, lt=1)


@router.post("/groups/{group}/name", response_model=views.Done, responses=_CHANGED)
async def name_group(request: Request, caller: MayAnnotate, group: str, given: Naming) -> Response:
    """Say what a group is: a class, new or known, is learned; "not novel" sets thresholds anew."""
    service, found = service_of(request), group_named(request, group)
    if given.name is not None:
        naming = service.name_group(found, given.name, caller.name, given.images)
        return await answered(request, naming, field="name", data="images")
    change = service.not_novel if given.verdict == "not novel" else service.dismiss
    return await answered(request, change(found, caller.name, given.images), data="images")


@router.post("/groups/{group}/split", response_model=views.Done, responses=_CHANGED)
async def split_group(
    request: Request, caller: MayAnnotate, group: str, given: Chosen | None = None
) -> Response:
    """Divide a group: the given images and the rest; without images, where it divides best."""
    images = None if given is None else given.images
    return await answered(
        request, service_of(request).split_group(group_named(request, group), caller.name, images)
    )


@router.post("/groups/{group}/merge", response_model=views.Done, responses=_CHANGED)
async def merge_groups(request: Request, caller: MayAnnotate, group: str, given: Into) -> Response:
    """Put a group's images into another group."""
    into = group_named(request, given.into, "into")
    return await answered(
        request, service_of(request).merge_groups(group_named(request, group), into, caller.name)
    )


@router.post("/classes/rename", response_model=views.Done, responses=_CHANGED)
async def rename(request: Request, caller: MayAnnotate, given: Renaming) -> Response:
    """Give a class another name."""
    name = class_named(request, given.name)
    return await answered(request, service_of(request).rename_class(name, given.to, caller.name))


@router.post("/classes/merge", response_model=views.Done, responses=_CHANGED)
async def merge_classes(request: Request, caller: MayAnnotate, given: Merging) -> Response:
    """Declare a class to be another."""
    name, into = class_named(request, given.name), class_named(request, given.into, "into")
    return await answered(request, service_of(request).merge_classes(name, into, caller.name))


@router.post("/classes/split", response_model=views.Done, responses=_CHANGED)
async def split_class(request: Request, caller: MayAnnotate, given: ClassName) -> Response:
    """Divide a class with a provisional name by the images that it was learned from."""
    return await answered(
        request, service_of(request).split_class(class_named(request, given.name), caller.name)
    )


@router.post("/classes/unlearn", response_model=views.Done, responses=_CHANGED)
async def unlearn(request: Request, caller: MayAdminister, given: ClassName) -> Response:
    """Forget a class."""
    return await answered(request, service_of(request).unlearn(class_named(request, given.name), caller.name))


@router.put("/rule", response_model=views.Done, responses=_CHANGED)
async def set_rule(request: Request, caller: MayAdminister, given: Accepting) -> Response:
    """Accept another share of known samples; nothing is trained."""
    return await answered(request, service_of(request).set_rule(given.accept, caller.name))


@router.post("/versions/{version}/rollback", response_model=views.Done, responses=_CHANGED)
async def rollback(request: Request, caller: MayAdminister, version: Number) -> Response:
    """Make an earlier version the one in use; later ones are kept."""
    return await answered(request, service_of(request).rollback(version_named(request, version), caller.name))


@router.post("/changes/{change}/undo", response_model=views.Done, responses=_CHANGED)
async def undo(request: Request, caller: MayAnnotate, change: Number) -> Response:
    """Take a change back: as it was before where it was the last, else by its opposite."""
    service = service_of(request)
    if change not in {each.id for each in service.bench.changes}:
        raise RefusedError(404, f"there is no change {change}; GET /changes lists them", "change")
    return await answered(request, service.undo(change, caller.name), refused=409)

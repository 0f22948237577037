"""Routes for people and their pages: what came in, groups, classes, history, versions, the rule, jobs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, model_validator

from shels.errors import DataError, SettingsError
from shels.service import pictures, views
from shels.service.access import COOKIE, Access, Caller, requires
from shels.service.owner import Service
from shels.service.problems import RefusedError, answers, refusal_of

router = APIRouter(tags=["people"])
_QUICK = 2.0
"""Seconds that a request waits for its change; what takes longer is answered by its job."""
_READ = answers(401, 403, 422)
_ONE = answers(401, 403, 404, 422)
_CHANGED: dict[int | str, dict[str, Any]] = {
    202: {"model": views.Job, "description": "It takes longer: look at the job, or cancel it there."},
    **answers(400, 401, 403, 404, 409, 413, 422, 429, 507),
}
_PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}, "description": "The picture."}}
MayAnnotate = Annotated[Caller, Depends(requires("annotate"))]
MayAdminister = Annotated[Caller, Depends(requires("admin"))]
Number = Annotated[int, Path(ge=0, le=2**53)]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]
Job = tuple[int, Future[views.Done]]


def service_of(request: Request) -> Service:
    """Give the service behind a request."""
    found: Service = request.app.state.service
    return found


async def answered(request: Request, job: Job, refused: int = 422) -> Response:
    """Wait for a change for a moment: 200 with what it did, or 202 with the job to look at.

    refused: the status of what cannot be done.
    """
    number, future = job
    try:
        done = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), _QUICK)
    except TimeoutError:
        view = service_of(request).jobs.view(number)
        return JSONResponse(asdict(view), 202, {"Location": f"/jobs/{number}"})
    except SettingsError as error:
        return refusal_of(RefusedError(refused, str(error)))
    return JSONResponse(asdict(done))


# What is shown ------------------------------------------------------------------------------------------


@router.get("/live", responses=_READ)
def live(request: Request, caller: MayAnnotate, most: Annotated[int, Query(ge=0, le=200)] = 60) -> views.Live:
    """Show what came in lately, the newest first, and the share called novel."""
    del caller
    return service_of(request).live(most)


@router.get("/live/{number}.png", responses=_PNG | _ONE, response_class=Response)
def live_image(request: Request, caller: MayAnnotate, number: Number) -> Response:
    """Give the picture of a sample that came in lately, or of an example of a class."""
    del caller
    return _picture(request, "live", number)


@router.get("/images/{number}.png", responses=_PNG | _ONE, response_class=Response)
def image(request: Request, caller: MayAnnotate, number: Number) -> Response:
    """Give the picture of a novel image that is kept."""
    del caller
    return _picture(request, "kept", number)


@router.get("/images/{number}/why", responses=_ONE)
def why(request: Request, caller: MayAnnotate, number: Number) -> views.Why:
    """Show what stands behind a verdict, and the known examples nearest to the image."""
    del caller
    service = service_of(request)
    if number not in service.bench.inbox:
        raise RefusedError(404, f"image {number} is not kept; the groups list those that are", "number")
    return service.why(number)


@router.get("/groups", responses=_READ)
def groups(
    request: Request, caller: MayAnnotate, images: Annotated[int, Query(ge=0, le=500)] = 12
) -> list[views.GroupView]:
    """Show the groups of novel images, the largest first; "rest" holds what is in none."""
    del caller
    return service_of(request).groups(images)


@router.get("/groups/{group}", responses=_ONE)
def group(
    request: Request, caller: MayAnnotate, group: str, images: Annotated[int, Query(ge=0, le=5000)] = 500
) -> views.GroupView:
    """Show one group with its images."""
    del caller
    return service_of(request).group(_group(request, group), images)


@router.get("/classes", responses=_READ)
def classes(request: Request, caller: MayAnnotate) -> list[views.ClassView]:
    """Show every class that is known."""
    del caller
    return service_of(request).classes()


@router.get("/changes", responses=_READ)
def changes(
    request: Request, caller: MayAnnotate, most: Annotated[int, Query(ge=1, le=10000)] = 200
) -> list[views.ChangeView]:
    """Show every change with its author and time, the newest first."""
    del caller
    return service_of(request).history(most)


@router.get("/versions", responses=_READ)
def versions(request: Request, caller: MayAnnotate) -> list[views.VersionView]:
    """Show every version of the model, the newest first."""
    del caller
    return service_of(request).versions()


@router.get("/versions/{old}/difference/{new}", responses=_ONE)
def difference(request: Request, caller: MayAnnotate, old: Number, new: Number) -> views.Difference:
    """Show what differs between two versions."""
    del caller
    return service_of(request).difference(_version(request, old), _version(request, new))


@router.get("/rule", responses=_READ)
def rule(request: Request, caller: MayAnnotate) -> views.Rule:
    """Show which share of known samples is accepted, and the false alarms promised and seen."""
    del caller
    return service_of(request).rule()


@router.get("/quality", responses=_READ)
def quality(request: Request, caller: MayAnnotate) -> views.Quality:
    """Show how well it does, by what people said."""
    del caller
    return service_of(request).quality()


@router.get("/jobs", responses=_READ)
def jobs(request: Request, caller: MayAnnotate) -> list[views.Job]:
    """Show the changes that wait, are under way or ended lately."""
    del caller
    return service_of(request).jobs.shown()


@router.get("/jobs/{number}", responses=_ONE)
def job(request: Request, caller: MayAnnotate, number: Number) -> views.Job:
    """Show one change and how far it is."""
    del caller
    return service_of(request).jobs.view(_job(request, number))


@router.delete("/jobs/{number}", responses=_ONE)
def cancel(request: Request, caller: MayAnnotate, number: Number) -> views.Job:
    """Cancel a change that waits or is under way; the model stays as it is."""
    del caller
    return service_of(request).jobs.cancel(_job(request, number))


# What is changed ----------------------------------------------------------------------------------------


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
    service, found = service_of(request), _group(request, group)
    if given.name is not None:
        return await answered(request, service.name_group(found, given.name, caller.name, given.images))
    change = service.not_novel if given.verdict == "not novel" else service.dismiss
    return await answered(request, change(found, caller.name, given.images))


@router.post("/groups/{group}/split", response_model=views.Done, responses=_CHANGED)
async def split_group(
    request: Request, caller: MayAnnotate, group: str, given: Chosen | None = None
) -> Response:
    """Divide a group: the given images and the rest; without images, where it divides best."""
    images = None if given is None else given.images
    return await answered(
        request, service_of(request).split_group(_group(request, group), caller.name, images)
    )


@router.post("/groups/{group}/merge", response_model=views.Done, responses=_CHANGED)
async def merge_groups(request: Request, caller: MayAnnotate, group: str, given: Into) -> Response:
    """Put a group's images into another group."""
    into = _group(request, given.into, "into")
    return await answered(
        request, service_of(request).merge_groups(_group(request, group), into, caller.name)
    )


@router.post("/classes/rename", response_model=views.Done, responses=_CHANGED)
async def rename(request: Request, caller: MayAnnotate, given: Renaming) -> Response:
    """Give a class another name."""
    name = _class(request, given.name)
    return await answered(request, service_of(request).rename_class(name, given.to, caller.name))


@router.post("/classes/merge", response_model=views.Done, responses=_CHANGED)
async def merge_classes(request: Request, caller: MayAnnotate, given: Merging) -> Response:
    """Declare a class to be another."""
    name, into = _class(request, given.name), _class(request, given.into, "into")
    return await answered(request, service_of(request).merge_classes(name, into, caller.name))


@router.post("/classes/split", response_model=views.Done, responses=_CHANGED)
async def split_class(request: Request, caller: MayAnnotate, given: ClassName) -> Response:
    """Divide a class with a provisional name by the images that it was learned from."""
    return await answered(request, service_of(request).split_class(_class(request, given.name), caller.name))


@router.post("/classes/unlearn", response_model=views.Done, responses=_CHANGED)
async def unlearn(request: Request, caller: MayAdminister, given: ClassName) -> Response:
    """Forget a class."""
    return await answered(request, service_of(request).unlearn(_class(request, given.name), caller.name))


@router.put("/rule", response_model=views.Done, responses=_CHANGED)
async def set_rule(request: Request, caller: MayAdminister, given: Accepting) -> Response:
    """Accept another share of known samples; nothing is trained."""
    return await answered(request, service_of(request).set_rule(given.accept, caller.name))


@router.post("/versions/{version}/rollback", response_model=views.Done, responses=_CHANGED)
async def rollback(request: Request, caller: MayAdminister, version: Number) -> Response:
    """Make an earlier version the one in use; later ones are kept."""
    return await answered(request, service_of(request).rollback(_version(request, version), caller.name))


@router.post("/changes/{change}/undo", response_model=views.Done, responses=_CHANGED)
async def undo(request: Request, caller: MayAnnotate, change: Number) -> Response:
    """Take a change back: as it was before where it was the last, else by its opposite."""
    service = service_of(request)
    if change not in {each.id for each in service.bench.changes}:
        raise RefusedError(404, f"there is no change {change}; GET /changes lists them", "change")
    return await answered(request, service.undo(change, caller.name), refused=409)


# Sessions of browsers -----------------------------------------------------------------------------------


class Token(BaseModel):
    """token: as it was given out."""

    token: str = Field(min_length=1, max_length=200)


class Session(BaseModel):
    """Who is logged in, with which role."""

    name: str
    role: str


@router.get("/session", responses=_READ)
def session(caller: Annotated[Caller, Depends(requires("judge"))]) -> Session:
    """Say who asks."""
    return Session(name=caller.name, role=caller.role)


@router.post("/session", status_code=204, response_class=Response, responses=answers(400, 401, 403, 413, 422))
def log_in(request: Request, given: Token) -> Response:
    """Begin a session for a browser: a cookie that scripts cannot read and other sites cannot use."""
    access: Access = request.app.state.access
    answer = Response(status_code=204)
    if access.tokens:
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, access.log_in(given.token), httponly=True, samesite="strict", secure=secure)
    return answer


@router.delete("/session", status_code=204, response_class=Response, responses=answers(403))
def log_out(request: Request) -> Response:
    """End the session."""
    request.app.state.access.log_out(request.cookies.get(COOKIE, ""))
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE)
    return answer


# What is named in an address, looked up -----------------------------------------------------------------


def _picture(request: Request, kind: str, number: int) -> Response:
    service = service_of(request)
    try:
        found = service.sample_image(number) if kind == "live" else service.image(number)
        content = pictures.png(found)
    except DataError as error:
        raise RefusedError(404, str(error), "number") from error
    return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


def _group(request: Request, group: str, field: str = "group") -> str:
    known = [each.id for each in service_of(request).bench.groups.found]
    if group not in (*known, "rest"):
        raise RefusedError(404, f"there is no group {group[:40]!r}; GET /groups lists them", field)
    return group


def _class(request: Request, name: str, field: str = "name") -> str:
    try:
        return service_of(request).known_class(name)
    except SettingsError as error:
        raise RefusedError(404, str(error), field) from error


def _version(request: Request, version: int) -> int:
    if version not in service_of(request).bench.home.versions():
        raise RefusedError(404, f"there is no version {version}; GET /versions lists them", "version")
    return version


def _job(request: Request, number: int) -> int:
    try:
        service_of(request).jobs.view(number)
    except SettingsError as error:
        raise RefusedError(404, str(error), "number") from error
    return number

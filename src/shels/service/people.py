"""Routes for people and their pages: what came in, groups, classes, history, versions, the rule, jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field, TypeAdapter

from shels.errors import DataError, SettingsError
from shels.service import pictures, views
from shels.service.access import COOKIE, Access, Caller, requires
from shels.service.owner import Service
from shels.service.problems import RefusedError, answers

router = APIRouter(tags=["people"])
_GROUPS = TypeAdapter[list[views.GroupView] | views.GroupView](list[views.GroupView] | views.GroupView)
_READ = answers(401, 403, 422)
_ONE = answers(401, 403, 404, 422)
_PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}, "description": "The picture."}}
MayAnnotate = Annotated[Caller, Depends(requires("annotate"))]
MayAdminister = Annotated[Caller, Depends(requires("admin"))]
Number = Annotated[int, Path(ge=0, le=2**53)]


def service_of(request: Request) -> Service:
    """Give the service behind a request."""
    found: Service = request.app.state.service
    return found


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


@router.get("/groups", response_model=list[views.GroupView], responses=_READ)
def groups(
    request: Request, caller: MayAnnotate, images: Annotated[int, Query(ge=0, le=500)] = 12
) -> Response:
    """Show the groups of novel images, the largest first; "rest" holds what is in none."""
    del caller
    service = service_of(request)
    with service.precedence.standing_back():
        return _written(service.groups(images))


@router.get("/groups/{group}", response_model=views.GroupView, responses=_ONE)
def group(
    request: Request, caller: MayAnnotate, group: str, images: Annotated[int, Query(ge=0, le=5000)] = 500
) -> Response:
    """Show one group with its images."""
    del caller
    service, found = service_of(request), group_named(request, group)
    with service.precedence.standing_back():
        return _written(service.group(found, images))


def _written(groups: list[views.GroupView] | views.GroupView) -> Response:
    """Write thousands of images as JSON here, or the thread that answers verdicts would be held up for it."""
    return Response(_GROUPS.dump_json(groups), media_type="application/json")


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
    return service_of(request).difference(version_named(request, old), version_named(request, new))


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
    return service_of(request).jobs.view(job_named(request, number))


@router.delete("/jobs/{number}", responses=_ONE)
def cancel(request: Request, caller: MayAnnotate, number: Number) -> views.Job:
    """Cancel a change that waits or is under way; the model stays as it is."""
    del caller
    return service_of(request).jobs.cancel(job_named(request, number))


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


def group_named(request: Request, group: str, field: str = "group") -> str:
    """Give the id of a group, or refuse with 404."""
    known = [each.id for each in service_of(request).bench.groups.found]
    if group not in (*known, "rest"):
        raise RefusedError(404, f"there is no group {group[:40]!r}; GET /groups lists them", field)
    return group


def class_named(request: Request, name: str, field: str = "name") -> str:
    """Give a class's name as it is, or refuse with 404."""
    try:
        return service_of(request).known_class(name)
    except SettingsError as error:
        raise RefusedError(404, str(error), field) from error


def version_named(request: Request, version: int) -> int:
    """Give a version that there is, or refuse with 404."""
    if version not in service_of(request).bench.home.versions():
        raise RefusedError(404, f"there is no version {version}; GET /versions lists them", "version")
    return version


def job_named(request: Request, number: int) -> int:
    """Give a job that is known, or refuse with 404."""
    try:
        service_of(request).jobs.view(number)
    except SettingsError as error:
        raise RefusedError(404, str(error), "number") from error
    return number

"""What a person does on the page: each form becomes a change of the service, answered by a message."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field

from shels.agent.inbox import numbers_of
from shels.errors import DataError, SettingsError
from shels.service import views
from shels.service.access import Access, Caller
from shels.service.jobs import CancelledError
from shels.service.page.rendering import PageRoute, done_message, part
from shels.service.people import MayAdminister, MayAnnotate, Number, service_of
from shels.service.problems import RefusedError

_QUICK = 0.8
"""Seconds that a change is waited for; then its progress is shown, with a way to cancel it."""
_PAGES = re.compile(r"/page/(new|classes|history|quality)")
Job = tuple[int, Future[views.Done]]


def from_a_page(request: Request) -> None:
    """Refuse a form that a browser does not say is of a page of ours.

    The guard refuses what another site sends; forms need the browser's own word, which programs do not send.
    """
    headers, asks = request.headers, request.method == "GET"
    if not asks and "origin" not in headers and headers.get("sec-fetch-site") != "same-origin":
        raise RefusedError(403, "forms are for the page alone; programs use the API, see /docs")


router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(from_a_page)])


class Signed(BaseModel):
    """by: how a person signs, where there are no tokens that say who it is."""

    by: str = Field("", max_length=64, pattern=r"^[\w .@-]*$")


class GroupForm(Signed):
    """What is to become of a group. images: those selected; members: all that it had when it was shown."""

    act: Literal["learn", "not-novel", "rubbish", "split", "merge"] = "learn"
    name: str = Field("", max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")
    images: list[Annotated[int, Field(ge=0, le=2**53)]] = Field([], max_length=20000)
    members: str = Field("", max_length=200_000, pattern=r"^[0-9,-]*$")
    into: str = Field("", max_length=64)


class ClassForm(Signed):
    """What is to become of a class."""

    act: Literal["rename", "merge", "split", "unlearn"]
    name: str = Field(min_length=1, max_length=100)
    to: str = Field("", max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")


class ChangeForm(Signed):
    """change: the id of one that is to be taken back."""

    change: int = Field(ge=0, le=2**53)


class VersionForm(Signed):
    """version: the one to be in use again."""

    version: int = Field(ge=0, le=2**53)


class RuleForm(Signed):
    """accept: per cent of known samples to be accepted."""

    accept: float = Field(gt=0, lt=100)


@router.post("/page/groups/{group}")
async def change_group(
    request: Request, caller: MayAnnotate, group: str, given: Annotated[GroupForm, Form()]
) -> Response:
    """Name a group or the images of it that are selected, or say that they are not novel, or rubbish."""
    service, by = service_of(request), _author(request, caller, given)
    if given.act == "merge":
        return await _answered(request, service.merge_groups(group, given.into, by))
    if given.act == "split":
        return await _answered(request, service.split_group(group, by, given.images or None))
    chosen = given.images or _still_waiting(request, given.members)
    if given.act == "learn":
        _check_name(group, given)
        return await _answered(request, service.name_group(group, given.name.strip(), by, chosen))
    change = service.not_novel if given.act == "not-novel" else service.dismiss
    return await _answered(request, change(group, by, chosen))


@router.post("/page/classes")
async def change_class(
    request: Request, caller: MayAnnotate, given: Annotated[ClassForm, Form()]
) -> Response:
    """Rename a class, declare it to be another, divide or forget it."""
    service, by = service_of(request), _author(request, caller, given)
    name = service.known_class(given.name)
    if given.act in ("rename", "merge") and not given.to.strip():
        raise SettingsError("say the other name")
    if given.act == "rename":
        return await _answered(request, service.rename_class(name, given.to.strip(), by))
    if given.act == "merge":
        return await _answered(request, service.merge_classes(name, service.known_class(given.to), by))
    if given.act == "split":
        return await _answered(request, service.split_class(name, by))
    if not caller.may("admin"):
        raise RefusedError(403, f"{caller.name} has the role {caller.role}; forgetting a class needs admin")
    return await _answered(request, service.unlearn(name, by))


@router.post("/page/undo")
async def undo(request: Request, caller: MayAnnotate, given: Annotated[ChangeForm, Form()]) -> Response:
    """Take a change back."""
    return await _answered(request, service_of(request).undo(given.change, _author(request, caller, given)))


@router.post("/page/rollback")
async def rollback(
    request: Request, caller: MayAdminister, given: Annotated[VersionForm, Form()]
) -> Response:
    """Make an earlier version the one in use."""
    service = service_of(request)
    if given.version not in service.bench.home.versions():
        raise RefusedError(404, f"there is no version {given.version}; choose of the list", "version")
    return await _answered(request, service.rollback(given.version, _author(request, caller, given)))


@router.post("/page/rule")
async def rule(request: Request, caller: MayAdminister, given: Annotated[RuleForm, Form()]) -> Response:
    """Accept another share of known samples."""
    accept = round(given.accept / 100, 12)
    return await _answered(request, service_of(request).set_rule(accept, _author(request, caller, given)))


@router.get("/page/jobs/{number}")
async def job(request: Request, caller: MayAnnotate, number: Number) -> Response:
    """Show how far a change is, or what it did."""
    del caller
    return _followed(request, number)


@router.post("/page/jobs/{number}/cancel")
async def cancel(request: Request, caller: MayAnnotate, number: Number) -> Response:
    """Give a change up; the model stays as it is."""
    del caller
    service_of(request).jobs.cancel(number)
    await asyncio.sleep(0.1)
    return _followed(request, number)


async def _answered(request: Request, job: Job) -> Response:
    """Wait for a change for a moment, then say what it did, or how far it is."""
    number, future = job
    if "hx-request" not in request.headers:
        await asyncio.wrap_future(future)
        return RedirectResponse(_page_before(request), 303)
    try:
        done = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), _QUICK)
    except TimeoutError:
        return _followed(request, number)
    return done_message(done)


def _followed(request: Request, number: int) -> Response:
    view = service_of(request).jobs.view(number)
    if view.done is not None:
        return done_message(view.done)
    if view.state == "cancelled":
        return part(request, "message.html", kind="note", said=_said(view), undo=None)
    if view.state == "failed":
        raise CancelledError(view.error or "it failed; the log of the service says more")
    return part(request, "parts/job.html", job=view)


def _said(job: views.Job) -> str:
    return job.error or "cancelled; nothing was changed"


def _author(request: Request, caller: Caller, given: Signed) -> str:
    """Tell who signs: by token where there are tokens, else by what the person wrote."""
    access: Access = request.app.state.access
    return caller.name if access.tokens else given.by.strip() or caller.name


def _check_name(group: str, given: GroupForm) -> None:
    if not given.name.strip():
        raise SettingsError("type a name first")
    if group == "rest" and not given.images:
        raise SettingsError("these images are not alike: select those that are of one class, then name them")


def _still_waiting(request: Request, members: str) -> list[int] | None:
    """List the images that were shown and still wait; others may have come into the group since."""
    if not members:
        return None
    waiting = set(service_of(request).bench.waiting())
    found = [number for number in numbers_of(members) if number in waiting]
    if not found:
        raise DataError("somebody named these images meanwhile; reload the page")
    return found


def _page_before(request: Request) -> str:
    found = _PAGES.search(request.headers.get("referer", ""))
    return found[0] if found else "/"

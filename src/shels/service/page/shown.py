"""The views of the page, and the parts of them that are fetched again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from shels.agent import events
from shels.agent.groups import Group
from shels.agent.inbox import ranges
from shels.service import views
from shels.service.owner import Service
from shels.service.page import drawing
from shels.service.page.rendering import PageRoute, part, whole
from shels.service.people import MayAnnotate, Number, service_of
from shels.service.problems import RefusedError

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_TILES = 48
"""Pictures of a group that are shown at first."""
_MOST_TILES = 500
_MOMENTS = 160


@router.get("/")
def live(request: Request, caller: MayAnnotate) -> HTMLResponse:
    """Show what comes in."""
    return whole(request, caller, "live", **_live(service_of(request)))


@router.get("/page/live")
def live_part(request: Request, caller: MayAnnotate) -> HTMLResponse:
    """Show what came in since."""
    del caller
    return part(request, "parts/live.html", **_live(service_of(request)))


@router.get("/page/waiting")
def waiting(request: Request, caller: MayAnnotate) -> Response:
    """Count the images that nobody has named."""
    del caller
    service = service_of(request)
    return part(
        request, "parts/badge.html", waiting=len(service.bench.waiting()), version=service.snapshot.version
    )


@router.get("/page/new")
def new(request: Request, caller: MayAnnotate) -> HTMLResponse:
    """Show what is novel, in groups."""
    return whole(request, caller, "new", **_groups(service_of(request)))


@router.get("/page/groups")
def groups(request: Request, caller: MayAnnotate) -> HTMLResponse:
    """Show the groups as they are now."""
    del caller
    return part(request, "parts/groups.html", **_groups(service_of(request)))


@router.get("/page/groups/{group}")
def tiles(request: Request, caller: MayAnnotate, group: str) -> HTMLResponse:
    """Show more pictures of a group."""
    del caller
    service = service_of(request)
    return part(request, "parts/tiles.html", group=_group(service, service.found_group(group), _MOST_TILES))


@router.get("/page/why/{number}")
def why(request: Request, caller: MayAnnotate, number: Number) -> HTMLResponse:
    """Show why an image is novel, the nearest known examples beside it."""
    service = service_of(request)
    if number not in service.bench.inbox:
        raise RefusedError(404, f"image {number} is not kept any more; reload the page", "number")
    found, own = service.why(number), f"/images/{number}.png" if service.shows_images else None
    words = found.words.partition(" Nearest known sample:")[0]  # the page shows it
    values: dict[str, Any] = {"why": found, "own": own, "words": words}
    if "hx-request" in request.headers:
        return part(request, "parts/why.html", **values)
    return whole(request, caller, "why", **values)


@router.get("/page/classes")
def classes(request: Request, caller: MayAnnotate) -> HTMLResponse:
    """Show every class that is known."""
    return whole(request, caller, "classes", classes=service_of(request).classes())


@router.get("/page/history")
def history(
    request: Request,
    caller: MayAnnotate,
    old: Annotated[int | None, Query(ge=0)] = None,
    new: Annotated[int | None, Query(ge=0)] = None,
) -> HTMLResponse:
    """Show every change and every version; and how two of them differ, where two are named."""
    service = service_of(request)
    versions = service.versions()
    known = [each.version for each in versions]
    if not {old, new} - {None} <= set(known):
        raise RefusedError(404, f"there is no version {old} or {new}; choose of the list", "old")
    changes = service.history()
    pair = _pair(known, service.snapshot.version, old, new)
    difference = service.difference(*pair) if old is not None and new is not None else None
    return whole(
        request,
        caller,
        "history",
        changes=changes,
        by_id={each.id: each for each in changes},
        versions=versions,
        pair=pair,
        difference=difference,
        moved=_moved(difference),
    )


@router.get("/page/quality")
def quality(request: Request, caller: MayAnnotate) -> HTMLResponse:
    """Show how well it does, by what people said."""
    found = service_of(request).quality(_MOMENTS * 3)
    return whole(
        request,
        caller,
        "quality",
        quality=found,
        scale=drawing.scale(found.rule),
        course=drawing.course(found.over_time),
        confusion=_confusion(found.corrected),
    )


def _live(service: Service) -> dict[str, Any]:
    lines = [line for _, line in service.bench.index.of_kinds((events.OBSERVED,), _MOMENTS)]
    moments = [
        views.Moment(line["time"], line.get("window", line["share"]), line["threshold"], line["alarm"])
        for line in lines
    ]
    return {"live": service.live(64), "course": drawing.course(moments)}


def _groups(service: Service) -> dict[str, Any]:
    found = [_group(service, each, _TILES) for each in service.bench.listed()]
    named = [each for each in found if each["id"] != "rest"]
    return {"groups": found, "others": [each["id"] for each in named], "names": service.snapshot.names}


def _group(service: Service, found: Group, most: int) -> dict[str, Any]:
    """Show a group with the numbers of all its images, so that what is named is what was seen."""
    view = service.shown_group(found, most)
    return {
        "id": found.id,
        "size": view.size,
        "images": view.images,
        "members": ranges(found.members),
        "fixed": view.fixed,
        "like": _most_like(view.images),
    }


def _most_like(images: list[views.Image]) -> str | None:
    """Tell for which known class most of the images would be taken."""
    names = [each.judged.predicted for each in images]
    return max(sorted(set(names)), key=names.count) if names else None


def _pair(known: list[int], current: int, old: int | None, new: int | None) -> tuple[int, int]:
    """Choose two versions to compare: by default the one in use with the one before it."""
    newer = current if new is None else new
    return (max((each for each in known if each < newer), default=newer) if old is None else old), newer


def _moved(difference: views.Difference | None) -> list[tuple[str, float, float]]:
    """List the thresholds that are not as they were."""
    both = difference.thresholds if difference else {}
    return [(name, was, now) for name, (was, now) in both.items() if was != now]


def _confusion(corrected: list[views.Corrected]) -> dict[str, Any]:
    """Lay corrections out as a table: taken for what, said to be what."""
    return {
        "rows": sorted({each.predicted for each in corrected}),
        "columns": sorted({each.said for each in corrected}),
        "counts": {(each.predicted, each.said): each.count for each in corrected},
        "most": max((each.count for each in corrected), default=0),
    }

"""The login form: a token once, then a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from shels.service.access import COOKIE, Access
from shels.service.page.changes import from_a_page
from shels.service.page.rendering import VIEWS, PageRoute, templates
from shels.service.problems import RefusedError

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_PLACES = {address for address, _ in VIEWS.values()}


@router.get("/login")
def form(back: str = "/") -> HTMLResponse:
    """Ask for a token."""
    return _form(back)


@router.post("/login", dependencies=[Depends(from_a_page)])
def log_in(
    request: Request, token: Annotated[str, Form()] = "", back: Annotated[str, Form()] = "/"
) -> Response:
    """Begin a session, and go where the person wanted to."""
    access: Access = request.app.state.access
    answer = RedirectResponse(_place(back), 303)
    if not access.tokens:
        return answer
    try:
        session = access.log_in(token.strip()[:200])
    except RefusedError as error:
        return _form(back, str(error), 401)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout", dependencies=[Depends(from_a_page)])
def log_out(request: Request) -> Response:
    """End the session."""
    request.app.state.access.log_out(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _form(back: str, error: str = "", status: int = 200) -> HTMLResponse:
    text = (
        templates()
        .get_template("login.html")
        .render(back=_place(back), error=error, active="", views=VIEWS, pixels=False)
    )
    return HTMLResponse(text, status)


def _place(back: str) -> str:
    """Only a view of this page; an address of another site is none."""
    return back if back in _PLACES else "/"

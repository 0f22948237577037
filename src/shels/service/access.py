"""Who may do what: roles by token, and requests that another site's page sends in a visitor's name refused.

A file of tokens has a line for each: ROLE NAME SHA256. The tokens themselves are nowhere; they are random and
long, so that one round of SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import Request

from shels.errors import SettingsError
from shels.files import require_regular, write_whole
from shels.service.problems import RefusedError

ROLES = ("judge", "annotate", "admin")
"""What may be done, each with all before it: send images; see and name them; change rule and versions."""
COOKIE = "shels-session"
_LINE = re.compile(r"(judge|annotate|admin)\s+(\S{1,64})\s+([0-9a-f]{64})")
_SESSION_SECONDS = 12 * 3600
_MOST_SESSIONS = 1000


@dataclass(frozen=True)
class Caller:
    """Who asks, and what is allowed."""

    name: str
    role: str

    def may(self, role: str) -> bool:
        """Whether what this role may is allowed."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(eq=False)
class Access:
    """The tokens of a service; without any, everybody on this machine may do all.

    hosts: names under which it is asked, None for any: a page of another site that had its name point here
    would use its own.
    """

    tokens: tuple[tuple[str, Caller], ...] = ()
    hosts: frozenset[str] | None = None
    _sessions: OrderedDict[str, tuple[float, Caller]] = field(default_factory=OrderedDict)

    def caller(self, token: str) -> Caller | None:
        """Find whose token this is; every one is compared, each in constant time."""
        digest, found = _digest(token), None
        for known, caller in self.tokens:
            if hmac.compare_digest(digest, known):
                found = caller
        return found

    def log_in(self, token: str) -> str:
        """Begin a session for a browser, which cannot send tokens by itself."""
        caller = self.caller(token)
        if caller is None:
            raise RefusedError(401, "this token is not known; ask for one of the service", "token")
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = time.monotonic() + _SESSION_SECONDS, caller
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def log_out(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(session), None)

    def of(self, request: Request) -> Caller | None:
        """Tell who asks; None for nobody that is known."""
        if not self.tokens:
            name = request.headers.get("x-shels-name", "")
            return Caller(name if re.fullmatch(r"[\w .@-]{1,64}", name) else "person", "admin")
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and token:
            return self.caller(token.strip())
        end, caller = self._sessions.get(_digest(request.cookies.get(COOKIE, "")), (0.0, None))
        return caller if time.monotonic() < end else None

    def check_origin(self, request: Request) -> None:
        """Refuse what a page of another site sends, and what is asked under another site's name."""
        host = request.headers.get("host", "")
        if self.hosts is not None and _bare(host) not in self.hosts:
            raise RefusedError(
                403, f"this service is not called {host!r}; ask it by the address it was given"
            )
        if request.method in ("GET", "HEAD", "OPTIONS"):
            return
        origin = request.headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != host
        if foreign or request.headers.get("sec-fetch-site", "none") in ("cross-site", "same-site"):
            raise RefusedError(403, "a page of another site sent this; use the service's own page")


def requires(role: str) -> Callable[[Request], Awaitable[Caller]]:
    """Make what a route depends on: that whoever asks has this role."""

    async def check(request: Request) -> Caller:  # not to be handed to a thread
        access: Access = request.app.state.access
        caller = access.of(request)
        if caller is None:
            headers = {"WWW-Authenticate": "Bearer"}
            words = "send a token: Authorization: Bearer TOKEN"
            if "authorization" in request.headers:
                words = "this token is not known here; make one with shels serve --new-token, and start again"
            raise RefusedError(401, words, headers=headers)
        if not caller.may(role):
            raise RefusedError(403, f"{caller.name} has the role {caller.role}; this needs {role}")
        return caller

    return check


def access_for(host: str, tokens: Path | None) -> Access:
    """Make the access of a service at an address; off the loopback address it needs a file of tokens."""
    local = _is_loopback(host)
    if tokens is None and not local:
        raise SettingsError(
            f"at {host} others can reach it, so it needs a file of tokens: make one with shels serve "
            "--new-token admin --name YOU --tokens FILE, then give --tokens FILE"
        )
    names = frozenset({"127.0.0.1", "localhost", "[::1]", host.lower()}) if local else None
    return Access(() if tokens is None else read_tokens(tokens), names)


def read_tokens(path: Path) -> tuple[tuple[str, Caller], ...]:
    """Read a file of tokens; it must be one that others cannot read."""
    require_regular(path, SettingsError)
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path} can be read by others; chmod 600 {path}")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise SettingsError(f"the tokens in {path} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise SettingsError(
                f"{path}, line {number} is not ROLE NAME SHA256, ROLE one of {', '.join(ROLES)}"
            )
        found.append((match[3], Caller(match[2], match[1])))
    if not found:
        raise SettingsError(f"{path} has no token; make one with --new-token admin --name YOU")
    return tuple(found)


def new_token(path: Path, role: str, name: str) -> str:
    """Add a token to a file and return it: the only time that it is seen."""
    token = secrets.token_urlsafe(32)
    line = f"{role} {name} {_digest(token)}"
    if not _LINE.fullmatch(line):
        raise SettingsError(
            f"a role is one of {', '.join(ROLES)}, a name has no spaces; got {role!r}, {name!r}"
        )
    require_regular(path, SettingsError)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    write_whole(path, f"{before}{line}\n")
    path.chmod(0o600)
    return token


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _bare(host: str) -> str:
    """Leave out the port."""
    return re.sub(r":[0-9]+$", "", host).lower()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

"""A service started and ended: the home opened, the port bound, everything let go of at the end."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.errors import MissingExtraError, SettingsError
from shels.service.limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI


@dataclass(frozen=True)
class Address:
    """Where a service is reached; port 0 takes any that is free."""

    host: str = "127.0.0.1"
    port: int = 8787

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"--port must be 0 to 65535, got {self.port}")


@dataclass(frozen=True)
class Plan:
    """What is to be served. feed: what runs beside it, given the service, such as a stream of images."""

    home: Path
    address: Address = field(default_factory=Address)
    tokens: Path | None = None
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    feed: Callable[[Any], AbstractContextManager[None]] = lambda service: nullcontext()  # noqa: ARG005


def serve(plan: Plan, started: Callable[[str], None]) -> None:
    """Serve a home until the process is told to end. started: called with the address once it answers."""
    require_packages()
    import uvicorn  # noqa: PLC0415

    from shels.service.access import access_for  # noqa: PLC0415
    from shels.service.app import create_app  # noqa: PLC0415
    from shels.service.memory import have_few_heaps  # noqa: PLC0415
    from shels.service.notes import install  # noqa: PLC0415
    from shels.service.owner import opened  # noqa: PLC0415

    install()
    have_few_heaps()
    access = access_for(plan.address.host, plan.tokens)
    make_room()
    with (
        opened(plan.home, plan.device) as service,
        listening_at(plan.address) as listening,
        plan.feed(service),
    ):
        config = uvicorn.Config(
            warmed_up(create_app(service, access, plan.limits)),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
        )
        host = f"[{plan.address.host}]" if ":" in plan.address.host else plan.address.host
        started(f"http://{host}:{listening.getsockname()[1]}/")
        gc.freeze()  # what is there stays: to look through it for garbage holds everybody up
        uvicorn.Server(config).run(sockets=[listening])


def warmed_up(app: FastAPI) -> FastAPI:
    """Have routes, their schema and templates made, which the first requests would hold others up for."""
    from shels.service.page.rendering import templates  # noqa: PLC0415

    app.openapi()
    nowhere = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(nowhere)
    for name in templates().list_templates(["html"]):
        templates().get_template(name)
    return app


def make_room() -> None:
    """Have threads that learn leave room for those that answer: of the interpreter, and one processor.

    A verdict takes some fifty calls of PyTorch, after each of which it may wait once for the interpreter.
    """
    import torch  # noqa: PLC0415

    sys.setswitchinterval(0.0001)
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def require_packages() -> None:
    """Raise unless everything is installed that serving takes."""
    for package in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError(package.replace("_", "-"), "serve", "serving") from error


def listening_at(address: Address) -> socket.socket:
    """Listen at an address, so that whoever asks from now on is answered."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # told to be TCP, or asyncio would leave Nagle's algorithm on, and every answer would wait 40 ms
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host.strip("[]"), address.port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"cannot listen at {address.host} port {address.port} ({error.strerror}); choose another --port"
        ) from error
    return listening

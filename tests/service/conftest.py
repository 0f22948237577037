"""A service on a home of the learner that knows four digits, asked through a real server."""

from __future__ import annotations

import io
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the service needs shels[serve]")
import httpx
import uvicorn

from shels.agent.home import Home
from shels.service.app import create_app
from shels.service.owner import opened
from shels.service.running import Address, listening_at

NPY = {"Content-Type": "application/x-npy"}


def npy(images):
    file = io.BytesIO()
    np.save(file, np.asarray(images))
    return file.getvalue()


def until(found, seconds=120):
    """Wait until something is there, and give it."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
    return value


@pytest.fixture
def directory(learner, tmp_path):
    Home(tmp_path / "home").begin(learner)
    return tmp_path / "home"


@pytest.fixture
def service(directory):
    with opened(directory, "cpu", apart=False) as service:
        yield service


@contextmanager
def asked(app):
    """Run an application in a thread, and give a client of it."""
    with listening_at(Address(port=0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            with httpx.Client(base_url=address, timeout=60) as client:
                client.app = app
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def client(service):
    with asked(create_app(service)) as client:
        yield client


@pytest.fixture
def known(digits):
    return digits[1].inputs[:, 0].numpy()


@pytest.fixture
def novel(digits):
    return digits[2].inputs[:, 0].numpy()

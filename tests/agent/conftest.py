"""Shared by the tests of the agent: all digits, and a home of the learner that knows four of them."""

from __future__ import annotations

import pytest

from shels.agent.home import Home
from shels.data.sources import load_named


@pytest.fixture(scope="session")
def data():
    return load_named("digits")


@pytest.fixture
def home(learner, tmp_path):
    home = Home(tmp_path / "home")
    home.begin(learner)
    return home

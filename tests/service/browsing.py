"""A browser for the tests of the page: Debian's Chromium, or playwright's own where it was installed."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def browser():
    """Start a browser; a test that needs one is skipped with the reason where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: make browser")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with api.sync_playwright() as started:
        try:
            chromium = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium to be started, install one with make browser: {str(error)[:200]}")
        try:
            yield chromium
        finally:
            chromium.close()


def watched(context):
    """Open a page and collect what a person would not see: errors of scripts, refused content, requests."""
    page = context.new_page()
    page.faults, page.asked = [], []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: page.asked.append(request.url))
    return page


def problems_for_readers(page):
    """List texts of too little contrast, and what a screen reader could not name (see checks.js)."""
    page.evaluate(Path(__file__).with_name("checks.js").read_text())
    return page.evaluate("[...faint(), ...unnamed()]")

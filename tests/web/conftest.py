"""A real browser for reports: Chromium, where it and Playwright are installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

Opened = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, _CHROMIUMS)), None)
    if program is None:
        pytest.skip(f"no Chromium: none of {', '.join(_CHROMIUMS)} is on the path (apt-get install chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed (make test-web does it)"
    )
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any) -> Opened:
    """Opens a report from disk. At the end it must have said nothing, asked no host, and run nothing foreign."""

    @contextmanager
    def open_report(file: Path, fragment: str = "", **context: Any) -> Iterator[Any]:
        remarks: list[str] = []
        settings = {"viewport": {"width": 1400, "height": 900}, **context}
        page = browser.new_page(**settings)
        try:
            page.on("console", lambda message: remarks.append(f"console: {message.text}"))
            page.on("pageerror", lambda error: remarks.append(f"error: {error}"))
            page.on("dialog", lambda dialog: remarks.append(f"dialog: {dialog.message}"))
            page.on("request", lambda request: remarks.append(f"request: {request.url}"))
            page.goto(file.resolve().as_uri() + fragment)
            page.wait_for_selector("html[data-ready]")
            yield page
            foreign = page.evaluate("window.pwned ?? null")
        finally:
            page.close()
        own = f"request: {file.resolve().as_uri()}"
        assert [remark for remark in remarks if not remark.startswith((own, "request: blob:"))] == []
        assert foreign is None

    return open_report


def await_text(locator: Any, text: str, seconds: float = 30.0) -> None:
    """Wait until the element has exactly this text. (Waiting by a script is what the report's policy forbids.)"""
    from playwright.sync_api import expect

    expect(locator).to_have_text(text, timeout=1000 * seconds)

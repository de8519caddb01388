"""Debian's Chromium, driven by Playwright: a headless browser without network access."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from playwright.sync_api import Browser, Error, Page, sync_playwright

_PROGRAM = Path("/usr/bin/chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_SECONDS_TO_WAIT = 60
_ALL_DRAWN = "[...document.querySelectorAll('.chart')].filter(c => !c.closest('[hidden]')).every(c => c.dataset.drawn)"


class NoBrowserError(Exception):
    """Chromium is not installed and cannot be installed."""


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    if not _PROGRAM.exists():
        _install()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(_PROGRAM), args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def _install() -> None:
    """Install Chromium with apt-get, as root. The package lists may be missing or old, so they are updated first."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoBrowserError("Chromium is not installed (Debian: apt-get install chromium)")
    with FileLock(Path(tempfile.gettempdir()) / "smoothcert-tests-apt.lock"):
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            if not _PROGRAM.exists():
                output = _apt_get(*arguments)
    if not _PROGRAM.exists():
        raise NoBrowserError(f"Chromium is not installed, and apt-get could not install it: {output[-500:]}")


def _apt_get(*arguments: str) -> str:
    """Run apt-get and return its output."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            ["apt-get", *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    except subprocess.TimeoutExpired:
        return f"apt-get {arguments[0]} took more than ten minutes"
    return done.stderr.strip()


@dataclass
class Visit:
    """An open page, with the errors and requests since it was opened."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def wait_until_drawn(self) -> None:
        # Playwright's own waiting evaluates text in the page, which the policy forbids.
        deadline = time.monotonic() + _SECONDS_TO_WAIT
        while not self._is_true(_ALL_DRAWN):
            assert time.monotonic() < deadline, f"the charts were not drawn; {self.complaints}"
            time.sleep(0.05)

    def eventually(self, expression: str) -> None:
        """Wait until this expression is true in the page, which may reload meanwhile."""
        deadline = time.monotonic() + _SECONDS_TO_WAIT
        while not self._is_true(expression):
            assert time.monotonic() < deadline, f"never true: {expression}; {self.complaints}"
            time.sleep(0.05)

    def _is_true(self, expression: str) -> bool:
        try:
            return bool(self.page.evaluate(expression))
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            return False


@contextlib.contextmanager
def visiting(browser: Browser, address: str, **options: Any) -> Iterator[Visit]:
    """Open an address and wait until all charts are drawn. options: of Playwright's context."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.complaints.append(f"{message.type}: {message.text}"))
    visit.page.on("pageerror", lambda error: visit.complaints.append(f"error: {error}"))
    visit.page.on("dialog", lambda dialog: (visit.complaints.append("a dialog opened"), dialog.dismiss()))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    try:
        began = time.monotonic()
        visit.page.goto(address)
        visit.wait_until_drawn()
        visit.seconds = time.monotonic() - began
        yield visit
    finally:
        context.close()

"""A browser for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from chromium_browser import NoBrowserError, running_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        with running_browser() as found:
            yield found
    except NoBrowserError as error:
        pytest.skip(str(error))

"""One headless Chromium for all tests of pages; without it, or without Playwright, they are skipped and say why."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.browsing import CHROMIUM, FLAGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium, driven by Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'launch-llm[dev]'")
    if not CHROMIUM.exists():
        pytest.skip("no Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield made
        made.close()

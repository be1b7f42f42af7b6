"""Pages in Debian's Chromium: what they ask of the network, what they say in the console, and what axe finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

CHROMIUM = Path("/usr/bin/chromium")
# As root it has no sandbox; without the others it calls Google's hosts at every start.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


@dataclass(slots=True)
class Opened:
    """An open page, and what happened on it.

    Attributes:
        problems: errors and warnings in the console, and exceptions of scripts.
        requests: addresses that were asked for, beside the page's own origin and data of its own.
    """

    page: Page
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def axe(self, *impacts: str) -> list[str]:
        """Return what axe-core finds of these impacts (default: serious and critical), a line for each element."""
        import axe_playwright_python

        wanted = impacts or ("serious", "critical")
        source = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
        self.page.evaluate(source)
        answer: dict[str, Any] = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{violation['id']} ({violation['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
            for violation in answer["violations"]
            if violation["impact"] in wanted
            for node in violation["nodes"]
        ]


@contextmanager
def opened(browser: Browser, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Opened]:
    """Open a page in a window of its own; its origin may be asked for more, everything else is recorded."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        permissions=["clipboard-read", "clipboard-write"] if url.startswith("http") else [],
    )
    page = context.new_page()
    found = Opened(page=page)
    origin = "/".join(url.split("/")[:3])

    def told(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            found.problems.append(f"{message.type}: {message.text}")

    def asked(address: str) -> None:
        own = address == url if url.startswith("file:") else address.startswith(origin)
        if not own and not address.startswith(("data:", "blob:")):
            found.requests.append(address)

    page.on("console", told)
    page.on("pageerror", lambda error: found.problems.append(f"exception: {error}"))
    page.on("request", lambda request: asked(request.url))
    try:
        page.goto(url)
        yield found
    finally:
        context.close()

"""docs/search.md is the page of its generator: its text, and a block of output for each of its commands."""

from tests.conftest import ROOT
from tools.docs.import_page import _COMMAND

TEXT = (ROOT / "tools" / "docs" / "search_page.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")


def test_the_page_has_the_text_and_the_commands_of_its_generator() -> None:
    place = 0
    for part in _COMMAND.split(TEXT)[::3]:
        assert part in PAGE[place:], "run python -m tools.docs.search_page"
        place = PAGE.index(part, place) + len(part)
    for match in _COMMAND.finditer(TEXT):
        assert f"$ {match.group(1)}\n" in PAGE
    assert "Traceback" not in PAGE

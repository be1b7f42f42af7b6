"""docs/search.md is the page of its generator: its text, and a block of output for each of its commands."""

import re
import shutil
from pathlib import Path

import pytest

from tests.commands import SocketServer
from tests.conftest import ROOT
from tools.docs.commands.blocks import blocks
from tools.docs.commands.session import Session
from tools.docs.import_page import COMMAND, UnexpectedExit, expected_code, filled
from tools.docs.search_page import MEASURED, without_seconds

TEXT = (ROOT / "tools" / "docs" / "search_page.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")


def test_the_page_has_the_text_and_the_commands_of_its_generator() -> None:
    place, groups = 0, 1 + COMMAND.groups
    for part in COMMAND.split(TEXT)[::groups]:
        assert part in PAGE[place:], "run python -m tools.docs.search_page"
        place = PAGE.index(part, place) + len(part)
    for match in COMMAND.finditer(TEXT):
        _, _, block = PAGE.partition(f"$ {match['command']}\n")
        assert block.partition("```")[0].endswith(f"(exit code {expected_code(match)})\n"), match["command"]
    assert "Traceback" not in PAGE


SHORT = [match for match in COMMAND.finditer(TEXT) if not TEXT[: match.start()].endswith("-->\n")]


@pytest.mark.slow
@pytest.mark.parametrize("match", SHORT, ids=[str(number) for number in range(len(SHORT))])
def test_short_commands_print_what_the_page_records(match: re.Match[str], tmp_path: Path) -> None:
    shutil.copy(MEASURED, tmp_path / "measured.csv")
    printed = without_seconds(filled(match[0], str(tmp_path)))
    assert printed in PAGE, f"python -m tools.docs.search_page\n{printed}"


def test_options_of_long_commands_exist(tmp_path: Path) -> None:
    long = [block for block in blocks(PAGE) if block.not_run and "launch " in block.body]
    (tmp_path / "server").mkdir()
    with SocketServer(tmp_path / "server") as server:
        session = Session(tmp_path, server)
        assert [refused for block in long if (refused := session.refused(block))] == []
    assert len(long) > 5


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ("$ echo a; echo b\n#lines 2\n", "b\n(exit code 0)\n"),
        ("$ echo a; exit 3\n#exit 3\n", "a\n(exit code 3)\n"),
        ("$ exit 3\n", None),
        ("$ true\n#exit 1\n", None),
    ],
    ids=["some lines", "an expected error", "an unexpected error", "no error where one is expected"],
)
def test_a_page_is_written_only_where_its_commands_end_as_it_says(
    block: str, shown: str | None, tmp_path: Path
) -> None:
    text = f"```console\n{block}```\n"
    if shown is None:
        with pytest.raises(UnexpectedExit, match="exit code"):
            filled(text, str(tmp_path))
    else:
        assert filled(text, str(tmp_path)).endswith(f"{shown}```\n")

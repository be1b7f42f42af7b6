"""Pages whose commands are run, and their translations, which have the same blocks."""

import dataclasses
import difflib
import re
from pathlib import Path

from tests.commands import ROOT, SocketServer
from tools.docs.commands.blocks import Block, Command, blocks, shown
from tools.docs.commands.output import agrees, recorded_anew
from tools.docs.commands.session import Ran, Session

DOCS = ROOT / "docs"
# Written by generators of their own, which run the commands: tools/docs/import_page.py, tools/docs/search_page.py.
GENERATED = ("import.md", "search.md")
_COMMENT = re.compile(r"(^|\s)#(?!!).*$", re.MULTILINE)


def commands_pages() -> list[Path]:
    """Return the English pages that have commands."""
    pages = [*DOCS.glob("start/*.md"), *DOCS.glob("guides/*.md"), *topics(), ROOT / "README.md"]
    return sorted(page for page in pages if any(map(_concerns, blocks(page.read_text(encoding="utf-8")))))


def topics() -> list[Path]:
    """Return the English pages of topics, apart from those that a generator writes."""
    return [page for page in DOCS.glob("*.md") if page.name not in GENERATED]


def _concerns(block: Block) -> bool:
    return bool(block.commands or block.not_run)


def translation(page: Path) -> Path:
    """Return where the Chinese translation of a page is, if it has one."""
    if page.name == "README.md":
        return page.with_name("README.zh-CN.md")
    page = page.resolve()
    return DOCS / "zh" / page.relative_to(DOCS) if page.is_relative_to(DOCS) else page.with_suffix(".zh.md")


def failures(page: Path, folder: Path, server: SocketServer) -> list[str]:
    """Run a page; return a text for each command that ends or prints otherwise than the page says."""
    session = Session(folder, server)
    found = blocks(page.read_text(encoding="utf-8"))
    bad = [_difference(ran) for ran in session.run(found) if not _is_as_recorded(ran)]
    refused = [session.refused(block) for block in found if block.not_run and "launch " in block.body]
    return bad + [text for text in refused if text]


def rewrite(page: Path, folder: Path, server: SocketServer) -> list[str]:
    """Record the output of a page anew, in its translation too; return a text for each exit code that changed."""
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    runs = iter(Session(folder, server).run(found))
    pieces, place, changed = [], 0, []
    for block in found:
        if block.commands and not block.not_run:
            ran = [next(runs) for _ in block.commands]
            changed += [_difference(one) for one in ran if one.code != one.command.code]
            pieces += [text[place : block.start], "".join(shown(_recorded(one)) for one in ran)]
            place = block.start + len(block.body)
    page.write_text("".join(pieces) + text[place:], encoding="utf-8")
    if translation(page).is_file():
        copy_blocks(page, translation(page))
    return changed


def _recorded(ran: Ran) -> Command:
    output = tuple(recorded_anew(ran.command.output, ran.printed))
    return dataclasses.replace(ran.command, output=output, code=ran.code)


def _is_as_recorded(ran: Ran) -> bool:
    return ran.code == ran.command.code and agrees(ran.command.output, ran.printed)


def _difference(ran: Ran) -> str:
    lines = difflib.unified_diff(ran.command.output, ran.printed, "recorded", "printed", lineterm="")
    code = "" if ran.code == ran.command.code else f"\nexit code {ran.code}, recorded {ran.command.code}"
    return f"$ {ran.command.text}{code}\n" + "\n".join(lines)


def same_blocks(page: Path, translated: Path) -> list[str]:
    """Return a text for each block of a translation that differs from the original's, apart from comments."""
    ours, theirs = (blocks(each.read_text(encoding="utf-8")) for each in (page, translated))
    bad = [] if len(ours) == len(theirs) else [f"{len(ours)} blocks, {len(theirs)} in {translated.name}"]
    for one, other in zip(ours, theirs, strict=False):
        if _compared(one) != _compared(other):
            bad.append(f"{one.body}\n--- in {translated.name}:\n{other.body}")
    return bad


def _compared(block: Block) -> tuple[str, str, str, bool]:
    body = block.body if block.language == "console" else _COMMENT.sub("", block.body)
    return block.language, block.file, "\n".join(line.rstrip() for line in body.splitlines()), bool(block.not_run)


def copy_blocks(page: Path, translated: Path) -> None:
    """Copy the console blocks of a page to its translation, which has as many blocks."""
    text = translated.read_text(encoding="utf-8")
    ours, theirs = blocks(page.read_text(encoding="utf-8")), blocks(text)
    if len(ours) != len(theirs):
        return
    pieces, place = [], 0
    for one, other in zip(ours, theirs, strict=True):
        if one.language == other.language == "console":
            pieces += [text[place : other.start], one.body]
            place = other.start + len(other.body)
    translated.write_text("".join(pieces) + text[place:], encoding="utf-8")

"""Sources of the site: the repository's Markdown where it stands, so that links are the same, and the reference.

A translation has no copy of a measured table or of an output that a generator writes. `<!-- NAME: as in PAGE -->`
stands for what PAGE has between `<!-- NAME: begin -->` and `<!-- NAME: end -->`; above a console block that has a
command alone, `<!-- command: as in PAGE -->` stands for the block of PAGE that begins with this command.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tools.docs import reference
from tools.docs.reference import conversions

ROOT = Path(__file__).resolve().parents[3]
_TABLE = re.compile(r"^<!-- (?P<name>\w+): as in (?P<page>\S+) -->$", re.MULTILINE)
_OUTPUT = re.compile(r"^<!-- command: as in (?P<page>\S+) -->\n```console\n\$ (?P<command>.+)\n```\n", re.MULTILINE)
_LINKED = ("launcher/importing/shell/README.md", "launcher/convert/containers/README.md")


def write_sources(folder: Path) -> None:
    """Write every page of the site below this folder, with its path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if is_page(name) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for convert in (folder / "docs" / "convert.md", folder / "docs" / "zh" / "convert.md"):
        convert.write_text(conversions.filled(convert.read_text(encoding="utf-8")), encoding="utf-8")
    for page in sorted((folder / "docs" / "zh").rglob("*.md")):
        page.write_text(with_shared(page.read_text(encoding="utf-8"), page), encoding="utf-8")
    for name, text in reference.pages().items():
        page = folder / "docs" / "reference" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


class NotShared(RuntimeError):
    """A page does not have what its translation refers to."""


def with_shared(text: str, page: Path) -> str:
    """Return a translation with the tables and outputs of the pages that it refers to.

    Raises:
        NotShared: a page does not have one of them.
    """

    def table(match: re.Match[str]) -> str:
        name = re.escape(match["name"])
        return _found(rf"^<!-- {name}: begin -->\n(?P<part>.*?)^<!-- {name}: end -->$", match, page)

    def output(match: re.Match[str]) -> str:
        command = re.escape(match["command"])
        return _found(rf"^(?P<part>```console\n\$ {command}\n.*?^```\n)", match, page)

    return _TABLE.sub(table, _OUTPUT.sub(output, text))


def _found(pattern: str, match: re.Match[str], page: Path) -> str:
    source = page.parent / match["page"]
    found = re.search(pattern, source.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if found is None:
        raise NotShared(f"{page}: {match['page']} has no part as in {match[0]!r}")
    return found["part"]


def is_page(name: str) -> bool:
    """Return whether a file of the repository belongs to the site's sources."""
    return name.startswith("docs/") or name in _LINKED or "/" not in name

"""Lists the external links of the documentation and checks their form; with --online also whether each one answers.

    python -m tools.docs.external_links [--online]

The pages are the site's sources, the generated reference included; links between pages are checked by the site's build.
Not part of CI: what is online changes without a commit. Exit code 1: a link has a wrong form, or its server says that
there is no such page. A link whose server does not answer is listed as not checked.
"""

import argparse
import re
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tools.docs.site.sources import write_sources

_LINK = re.compile(r"\b(?:https?|ftp)://[^\s<>\"'`|\\]+")
_ARXIV = re.compile(r"\barXiv[: ](?P<number>\d[\d.]*\d)")
_ARXIV_NUMBER = re.compile(r"\d\d(0[1-9]|1[0-2])\.\d{4,5}")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# owner/name, and below it only what GitHub and GitCode have.
_REPOSITORY = re.compile(rf"/{_NAME}/{_NAME}(/(issues|pull|discussions)/\d+|/(blob|tree|commit)/.+|/releases(/.+)?)?/?")
_HOST = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}")
# In examples: addresses of the reader's own machine, and names that have no owner.
_EXAMPLES = re.compile(r"(localhost|[\d.]+|\[.*|([a-z0-9-]+\.)*example(\.(com|org|net))?|[A-Z_]+)(:\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An external link: the page and line where it stands first."""

    address: str
    page: str
    line: int


def links(text: str, page: str) -> Iterator[Link]:
    """Yield the external links of a page; a paper that is named by its number is a link to arXiv."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _LINK.finditer(line):
            address = _trimmed(match[0])
            if not _EXAMPLES.fullmatch(address.partition("://")[2].partition("/")[0]):
                yield Link(address=address, page=page, line=number)
        for match in _ARXIV.finditer(line):
            yield Link(address=f"https://arxiv.org/abs/{match['number']}", page=page, line=number)


def _trimmed(address: str) -> str:
    """Return an address without the punctuation of the sentence and the bracket around it."""
    while address[-1] in ".,;:!?*_" or (address[-1] in ")]}" and address.count(address[-1]) > _opened(address)):
        address = address[:-1]
    return address


def _opened(address: str) -> int:
    return address.count({")": "(", "]": "[", "}": "{"}[address[-1]])


def fault(address: str) -> str:
    """Return what is wrong with the form of an address; empty: nothing."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return f"{parts.scheme} is not https"
    if not _HOST.fullmatch(host):
        return f"{host!r} is no host"
    if parts.username or parts.password:
        return "it has a user or password"
    if re.search(r"%(?![0-9A-Fa-f]{2})", address) or not address.isascii():
        return "a character is not escaped"
    if host == "arxiv.org" and not _ARXIV_NUMBER.fullmatch(parts.path.rpartition("/")[2].partition("v")[0]):
        return "arXiv has no such number"
    if host in ("github.com", "gitcode.com", "gitee.com") and not _REPOSITORY.fullmatch(parts.path):
        return "it is no repository, or no page of one"
    return ""


def answer(address: str, *, timeout: float = 20) -> tuple[bool | None, str]:
    """Ask a server for a page; return whether it is there (None: no answer that says so), and what was answered."""
    request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "Mozilla/5.0 (link check)"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return True, str(response.status)
    except urllib.error.HTTPError as error:
        return (False if error.code in (404, 410) else None), f"{error.code} {error.reason}"
    except OSError as error:
        return None, str(getattr(error, "reason", error))


def found() -> list[Link]:
    """Return the external links of the site's sources, each address once, in the order of the addresses."""
    first: dict[str, Link] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_sources(Path(folder))
        for path in sorted(Path(folder).rglob("*.md")):
            page = str(path.relative_to(folder))
            for link in links(path.read_text(encoding="utf-8"), page):
                first.setdefault(link.address, link)
    return [first[address] for address in sorted(first)]


def main(argv: list[str] | None = None) -> int:
    """Print a line for each link and a summary; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--online", action="store_true", help="ask the servers")
    options = parser.parse_args(argv)
    bad, unchecked, all_links = 0, 0, found()
    for link in all_links:
        wrong = fault(link.address)
        state, said = (None, "") if wrong or not options.online else answer(link.address)
        bad += bool(wrong) or state is False
        unchecked += not wrong and state is None
        note = (
            f"wrong: {wrong}"
            if wrong
            else f"{'there' if state else 'GONE' if state is False else 'not checked'}: {said}"
        )
        print(f"{link.address}  {link.page}:{link.line}" + (f"  {note}" if wrong or options.online else ""))
    asked = (
        f"{unchecked} not checked, as no server said whether they exist"
        if options.online
        else "servers not asked (--online)"
    )
    print(f"{len(all_links)} external links, {bad} wrong or gone; {asked}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

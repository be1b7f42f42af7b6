"""Generated pages: written, or checked against the repository."""

import argparse
import sys
from pathlib import Path


def write_or_check(doc: str | None, name: str, page: Path, text: str) -> int:
    """Write a page, or with --check report whether it is current; return the exit code.

    Args:
        doc: what the command says of itself in its help.
        name: module that makes the page, as `python -m tools.docs.NAME`.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        current = page.read_text(encoding="utf-8") == text
        print("current" if current else f"{page} is not current: run python -m tools.docs.{name}", file=sys.stderr)
        return 0 if current else 1
    page.write_text(text, encoding="utf-8")
    return 0


def escaped(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")

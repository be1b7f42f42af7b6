"""The terms of the English and Chinese pages, from glossary.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

_FILE = Path(__file__).resolve().parent.parent / "glossary.yaml"
HEAD = """# Glossary / 术语表

| English | 中文 |
|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term in both languages, and Chinese variants that no page uses."""

    english: str
    chinese: str
    forbidden: tuple[str, ...]


def terms() -> list[Term]:
    """Return the terms of the glossary, in its order."""
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return [Term(english=row["en"], chinese=row["zh"], forbidden=tuple(row["not"])) for row in rows]


def pages() -> Mapping[str, str]:
    """Return the page of the glossary."""
    return {"glossary.md": HEAD + "".join(f"| {term.english} | {term.chinese} |\n" for term in terms())}

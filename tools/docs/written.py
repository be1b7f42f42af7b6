"""Parts of generated pages."""

import re
from collections.abc import Iterable, Mapping


def escaped(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(names: Iterable[str], separator: str = " ") -> str:
    """Return names as code."""
    return separator.join(f"`{name}`" for name in names)


def contents(paths: Iterable[str]) -> str:
    """Return the table of contents that puts pages below this one in the site's navigation."""
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(paths) + "\n```\n"


def marked(text: str, parts: Mapping[str, str]) -> str:
    """Return a page with marks around the parts that its translation shows as they are (`tools/docs/site/sources.py`).

    Args:
        parts: by name, how the first line of the table, list or paragraph begins.

    A part ends at the next empty line. One that the page does not have is an empty one, so that the translation can
    be built.
    """
    for name, start in parts.items():
        part = re.compile(rf"^{re.escape(start)}.*?(?=^$|\Z)", re.DOTALL | re.MULTILINE)
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        text, found = part.subn(lambda match, b=begin, e=end: f"{b}{match[0].rstrip()}\n{e}", text, count=1)
        if not found:
            text = f"{text.rstrip()}\n\n{begin}{end}"
    return text

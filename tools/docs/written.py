"""Parts of generated pages."""

from collections.abc import Iterable


def escaped(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(names: Iterable[str], separator: str = " ") -> str:
    """Return names as code."""
    return separator.join(f"`{name}`" for name in names)


def contents(paths: Iterable[str]) -> str:
    """Return the table of contents that puts pages below this one in the site's navigation."""
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(paths) + "\n```\n"

"""Fixed bash code that rendered files share (`shell/`)."""

from functools import cache
from pathlib import Path

_SHELL = Path(__file__).parent / "shell"


@cache
def shell_body(name: str) -> str:
    """Return a body of bash by name."""
    return (_SHELL / f"{name}.sh").read_text(encoding="utf-8")

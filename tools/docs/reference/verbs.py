"""The help of every verb, as the command prints it."""

import contextlib
import io
from collections.abc import Mapping
from unittest import mock

from launcher.cli.dispatch import VERBS, dispatch

HEAD = """# Verbs of the command line

What `launch VERB --help` prints.
"""


def pages() -> Mapping[str, str]:
    """Return one page with the help of the program and of each verb."""
    parts = [HEAD, _section("launch", ["--help"])]
    parts += [_section(f"launch {name}", [name, "--help"]) for name in VERBS]
    return {"verbs.md": "\n".join(parts)}


def _section(title: str, words: list[str]) -> str:
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        mock.patch.dict("os.environ", {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.suppress(SystemExit),
    ):
        dispatch(words)
    text = "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
    return f"## `{title}`\n\n```text\n{text}\n```\n"

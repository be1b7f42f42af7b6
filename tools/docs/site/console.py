"""Colours of console blocks: what is typed stands out from what is printed, whatever that is."""

from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Generic, Name


class Console(RegexLexer):
    """Lines after `$ ` or `> ` are typed; the lexer of Pygments reads output as shell and fails on it."""

    name = "Console"
    aliases: ClassVar[list[str]] = ["console"]
    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"^(\$ )(.*\\\n)", bygroups(Generic.Prompt, Name.Builtin), "continued"),
            (r"^([$>] )(.*\n)", bygroups(Generic.Prompt, Name.Builtin)),
            (r".*\n", Generic.Output),
        ],
        "continued": [(r".*\\\n", Name.Builtin), (r".*\n", Name.Builtin, "#pop")],
    }

"""Guards of a script (`[ -z "$DATA" ] && exit 1`): users set such variables, so evaluation continues after them."""

import re
from collections.abc import Iterable, Iterator

from launcher.importing.shell.grammar import Node, line_of, text_of
from launcher.importing.shell.placeholders import has_output, names, only, placeholder
from launcher.importing.shell.state import State

# What bash sets itself.
_OF_BASH = re.compile(r"0|BASH\w*|RANDOM|SECONDS|LINENO|PIPESTATUS")
# How tests are joined: one value is enough for the script to go on, or each is needed.
_ALTERNATIVES, _EACH = re.compile(r"&&|\s-a\s"), re.compile(r"\|\||\s-o\s")


class Guards:
    """Detects conditions that end the script only because a variable is unset that its user would set."""

    def __init__(self, state: State) -> None:
        self.state = state

    def ends(self, condition: list[Node], body: list[Node]) -> bool:
        """Return whether a body only ends the script because a value is missing; adds a warning with its name."""
        required = [*dict.fromkeys(self._required("\n".join(text_of(node) for node in condition)))]
        if not required or not self.exits(body):
            return False
        for name in (each.strip("$") for each in required):
            if name.isidentifier() and self.state.variables.get(name) == "":
                self.state.set(name, placeholder(f"${name}"))
        typed = text_of(condition[0]).split("\n")[0][:80]
        either = _ALTERNATIVES.search(typed) is not None and not _EACH.search(typed)
        names_ = (" or " if either else " and ").join(required)
        self.state.warn(
            f"`{typed}` would end the script: {names_} must be set; reading continues as if it were",
            f"{self.state.script}:{line_of(condition[0])}",
            *(f"--set {name.strip('$')}=VALUE" for name in required),
        )
        return True

    def _required(self, text: str) -> Iterator[str]:
        """Yield the unset variables that a condition reads."""
        given = self.state.positional or any(name.isdigit() for name in self.state.variables)
        if re.search(r"\$#|\$\{#\}", text) and not given:
            yield "$1"
        for expanded, tested in re.findall(r"\$\{?(\w+)|-v\s+(\w+)", text):
            name = expanded or tested
            if (
                name not in self.state.variables
                and not _OF_BASH.fullmatch(name)
                and not (name.isdigit() and (given or self.state.scopes))
            ):
                yield f"${name}"
        # `A=${1:-}` is empty because the argument is not given.
        empty = [name for name in re.findall(r"-z\s+\"?\$\{?(\w+)", text) if self.state.variables.get(name) == ""]
        for name in dict.fromkeys([*self.state.assumed, *empty]):
            if re.search(rf"\$\{{?{re.escape(name)}\b|-v\s+{re.escape(name)}\b", text):
                yield f"${name}"
        for name in re.findall(r"\$\{?(\w+)", text):  # `M=$1`, and then a test of $M
            value = self.state.variables.get(name)
            if isinstance(value, str) and only(value) and not has_output(value):
                yield from (f"${each}" for each in names(value))

    def exits(self, body: list[Node]) -> bool:
        """Return whether a body ends the script and starts no training before."""
        rest = (node for node in body if not _prints(node))
        return self._exits(body) and not any(self.state.starts_training(node) for node in rest)

    def _exits(self, nodes: Iterable[Node]) -> bool:
        """Return whether statements end the script, directly or through a function such as `usage`."""
        for node in nodes:
            if node.type == "command":
                name = node.child_by_field_name("name")
                called = "" if name is None else text_of(name)
                if called == "exit" or re.search(r"\bexit\b", self._function(called)):
                    return True
            elif node.type not in ("if_statement", "case_statement") and self._exits(node.children):
                return True
        return False

    def _function(self, name: str) -> str:
        body = self.state.functions.get(name)
        return "" if body is None else text_of(body)


def _prints(node: Node) -> bool:
    """Return whether a statement only prints text, which may name a script."""
    if node.type == "redirected_statement":  # >&2
        body = node.child_by_field_name("body")
        return body is None or _prints(body)
    name = node.child_by_field_name("name") if node.type == "command" else None
    return name is not None and text_of(name) in ("echo", "printf", "cat")

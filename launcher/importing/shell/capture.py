"""`$(…)` where the output follows from the text alone: echo, pwd, dirname, basename, seq, expr, bc, `cd X && pwd`."""

import os.path
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.filters import FILTERS, grep
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.placeholders import emptied, has_output, is_open, shown

if TYPE_CHECKING:
    from launcher.importing.shell.evaluate import Interpreter

# What only joins lines and blanks leaves the open parts of a text as they are.
_BLANKS_ONLY = re.compile(r"(?:-[esEr] |s(?=/)|\[\[?:space:\]\]?|\\[nst]|[\s*+/g;])*")
_TRIVIAL = frozenset({"$(", ")", "`", "comment", "\n", ";", "&&"})


def captured(node: Node, interpreter: "Interpreter") -> str | None:
    """Return what a command substitution prints; None where it is not known without running it."""
    directory = interpreter.state.directory
    try:
        return _statements([child for child in node.children if child.type not in _TRIVIAL], interpreter)
    finally:
        interpreter.state.directory = directory


def _statements(nodes: list[Node], interpreter: "Interpreter") -> str | None:
    output = ""
    for node in nodes:
        printed = _statement(node, interpreter, None)
        if printed is None:
            return None
        output += printed
    return output


def _statement(node: Node, interpreter: "Interpreter", given: str | None) -> str | None:
    if node.type == "list" and any(child.type == "&&" for child in node.children):
        return _statements([child for child in node.children if child.is_named], interpreter)
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        return None if body is None else _statement(body, interpreter, given)
    if node.type == "pipeline":
        for child in (child for child in node.children if child.is_named):
            given = _statement(child, interpreter, given)
            if given is None:
                return None
        return given
    if node.type != "command":
        return None
    return _command(node, interpreter, given)


def _command(node: Node, interpreter: "Interpreter", given: str | None) -> str | None:
    parts = (child for child in node.children if child.is_named and child.type not in ("comment", "file_redirect"))
    words = [word for part in parts for word in interpreter.expander.words(part)]
    return _printed(words, interpreter, given) if words else None


def answered(pipeline: Node, interpreter: "Interpreter") -> bool | None:
    """Tell whether `echo "$A" | grep -q b` succeeds; None where a pipeline asks something else, or of unknown text."""
    *first, last = [child for child in pipeline.children if child.is_named]
    name = last.child_by_field_name("name") if last.type == "command" else None
    if name is None or text_of(name) not in ("grep", "egrep"):
        return None
    given: str | None = None
    negated = bool(first) and first[0].type == "negated_command"  # the grammar ties `!` to the first program alone
    for part in [*first[0].children[-1:], *first[1:]] if negated else first:
        given = _statement(part, interpreter, given)
        if given is None or has_output(given):
            return None
    words = [word for child in last.children[1:] if child.is_named for word in interpreter.expander.words(child)]
    extended = ["-E"] if text_of(name) == "egrep" else []
    lines = None if any(is_open(word) for word in words) else grep([*extended, *words], emptied(given or ""))
    return None if lines is None else bool(lines) != negated


def _printed(words: list[str], interpreter: "Interpreter", given: str | None) -> str | None:
    name, arguments = words[0], words[1:]
    if name == "cd" and arguments:
        target = arguments[-1]
        interpreter.state.directory = os.path.normpath(os.path.join(interpreter.state.directory, target))
        return ""
    if name == "pwd":
        return interpreter.state.directory + "\n"
    command = _COMMANDS.get(name)
    if command is None or (name != "echo" and any(has_output(argument) for argument in arguments)):
        return None
    if name not in ("echo", "dirname", "basename", "realpath") and any(is_open(argument) for argument in arguments):
        return None
    if name in FILTERS and is_open(given or "") and not _BLANKS_ONLY.fullmatch(" ".join(arguments)):
        return None
    return command(arguments, given)


def _echo(arguments: list[str], given: str | None) -> str | None:
    while arguments and arguments[0] in ("-n", "-e", "-ne", "-en"):
        arguments = arguments[1:]
    return " ".join(arguments) + "\n"


def _printf(arguments: list[str], given: str | None) -> str | None:
    if not arguments or "%" not in arguments[0]:
        return "".join(arguments[:1]).replace("\\n", "\n")
    values = iter(arguments[1:])

    def one(match: re.Match[str]) -> str:
        value = next(values, "")
        width = match.group(1)
        if match.group(2) == "d" and width.isdigit():
            return value.zfill(int(width)) if width.startswith("0") else value.rjust(int(width))
        return value

    return re.sub(r"%(\d*)([sd])", one, arguments[0]).replace("\\n", "\n")


def _dirname(arguments: list[str], given: str | None) -> str | None:
    return (os.path.dirname(arguments[-1].rstrip("/")) or ".") + "\n" if arguments else None


def _basename(arguments: list[str], given: str | None) -> str | None:
    if not arguments:
        return None
    name = os.path.basename(arguments[0].rstrip("/"))
    return (name.removesuffix(arguments[1]) if len(arguments) > 1 else name) + "\n"


def _realpath(arguments: list[str], given: str | None) -> str | None:
    return os.path.normpath(arguments[-1]) + "\n" if arguments else None


def _expr(arguments: list[str], given: str | None) -> str | None:
    try:
        return f"{evaluate(' '.join(arguments), lambda name: '')}\n"
    except NotArithmetic:
        return None


def _seq(arguments: list[str], given: str | None) -> str | None:
    if not arguments or not all(re.fullmatch(r"-?\d+", argument) for argument in arguments):
        return None
    numbers = [int(argument) for argument in arguments]
    first, step, last = (
        (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1] if len(numbers) > 2 else 1, numbers[-1])
    )
    if step == 0 or abs(last - first) > 10_000:
        return None
    return "".join(f"{number}\n" for number in range(first, last + (1 if step > 0 else -1), step))


def _bc(arguments: list[str], given: str | None) -> str | None:
    """Plain arithmetic with `scale=N`, as it is piped into bc."""
    text = (given or "").strip()
    scale, expression = 0, text
    match = re.fullmatch(r"scale=(\d+);\s*(.*)", text, re.DOTALL)
    if match:
        scale, expression = int(match.group(1)), match.group(2)
    if not re.fullmatch(r"[\d\s.+*/()-]{1,100}", expression) or "**" in expression:
        return None
    import ast

    try:
        value = _number(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, ValueError):
        return None
    if value == int(value) and "/" not in expression:
        return f"{int(value)}\n"
    return f"{int(value)}\n" if scale == 0 else f"{value:.{scale}f}\n"


def _number(node: object) -> float:
    import ast
    import operator

    kinds: dict[type, Callable[[float, float], float]] = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
    }
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in kinds:
        return kinds[type(node.op)](_number(node.left), _number(node.right))
    raise ValueError("not arithmetic")


def _cat(arguments: list[str], given: str | None) -> str | None:
    return given if not arguments else None


_COMMANDS: dict[str, Callable[[list[str], str | None], str | None]] = {
    **FILTERS,
    "echo": _echo,
    "printf": _printf,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "expr": _expr,
    "seq": _seq,
    "bc": _bc,
    "cat": _cat,
}
__all__ = ["captured", "shown"]

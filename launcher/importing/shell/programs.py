"""Programs whose output depends on their arguments only: echo, printf, dirname, basename, seq, expr, bc …"""

import os.path
import re
from collections.abc import Callable

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.filters import FILTERS
from launcher.importing.shell.patterns import ansi
from launcher.importing.shell.printf import formatted


def _echo(arguments: list[str], given: str | None) -> str | None:
    letters = ""
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        letters += arguments[0][1:]
        arguments = arguments[1:]
    text = " ".join(arguments)
    return (ansi(text) if "e" in letters else text) + ("" if "n" in letters else "\n")


def _printf(arguments: list[str], given: str | None) -> str | None:
    rest = arguments[1:] if arguments[:1] == ["--"] else arguments
    return formatted(rest[0], rest[1:]) if rest and rest[0] != "-v" else None


def _uname(arguments: list[str], given: str | None) -> str | None:
    return "Linux\n" if arguments in ([], ["-s"]) else None


def _dirname(arguments: list[str], given: str | None) -> str | None:
    paths = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not paths or any(path.startswith("-") for path in paths):
        return None
    found = (os.path.dirname(path.rstrip("/")).rstrip("/") or "/."[not path.startswith("/")] for path in paths)
    return "".join(f"{folder}\n" for folder in found)


def _basename(arguments: list[str], given: str | None) -> str | None:
    words = arguments[1:] if arguments[:1] == ["--"] else arguments
    if len(words) not in (1, 2) or words[0].startswith("-"):
        return None
    name = os.path.basename(words[0].rstrip("/")) or "/"[: len(words[0])]
    return name.removesuffix("" if name in words[1:] else "".join(words[1:])) + "\n"


def _realpath(arguments: list[str], given: str | None) -> str | None:
    return os.path.normpath(arguments[-1]) + "\n" if arguments else None


def _expr(arguments: list[str], given: str | None) -> str | None:
    try:
        return f"{evaluate(' '.join(arguments), lambda name: '')}\n"
    except NotArithmetic:
        return None


def _seq(arguments: list[str], given: str | None) -> str | None:
    sign = "\n"
    if len(arguments) > 1 and arguments[0].startswith("-s"):
        short = arguments[0] != "-s"
        sign, arguments = (arguments[0][2:], arguments[1:]) if short else (arguments[1], arguments[2:])
    if not arguments or not all(re.fullmatch(r"-?\d+", argument) for argument in arguments):
        return None
    numbers = [int(argument) for argument in arguments]
    first, step, last = (
        (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1] if len(numbers) > 2 else 1, numbers[-1])
    )
    if step == 0 or abs(last - first) > 10_000:
        return None
    return sign.join(str(number) for number in range(first, last + (1 if step > 0 else -1), step)) + "\n"


def _bc(arguments: list[str], given: str | None) -> str | None:
    """Plain arithmetic with `scale=N`, as piped into bc."""
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
    return given if arguments in ([], ["-"]) else None


def _nothing(arguments: list[str], given: str | None) -> str | None:
    return ""


PROGRAMS: dict[str, Callable[[list[str], str | None], str | None]] = {
    **FILTERS,
    "echo": _echo,
    "printf": _printf,
    "dirname": _dirname,
    "basename": _basename,
    "realpath": _realpath,
    "readlink": _realpath,
    "expr": _expr,
    "uname": _uname,
    **dict.fromkeys((":", "true"), _nothing),
    "seq": _seq,
    "bc": _bc,
    "cat": _cat,
}

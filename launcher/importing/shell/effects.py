"""Whether a part of a script matters for what is started: then an undecided condition deserves a word."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from launcher.importing.shell.grammar import Node, text_of

_HARMLESS_NAMES = """
echo printf : true false exit return break continue mkdir rm cp mv touch chmod ln cat tee sleep wait
kill pkill pip conda cd pushd popd trap ulimit ls git wget curl tar unzip read grep sed awk head
tail du df date nvidia-smi npu-smi source . ps test command which type set shift find docker apt
apt-get yum bash sh
"""
_HARMLESS = frozenset(_HARMLESS_NAMES.split())


def has_effect(nodes: Iterable[Node]) -> bool:
    """Tell whether statements set variables or start a program that is more than housekeeping."""
    for node in nodes:
        if node.type in ("variable_assignment", "declaration_command", "unset_command", "function_definition"):
            return True
        if node.type == "command":
            name = node.child_by_field_name("name")
            if name is None or text_of(name) not in _HARMLESS:
                return True
        elif has_effect(node.children):
            return True
    return False


@cache
def _starts() -> "re.Pattern[str]":
    """Return a pattern for what starts trainings: launchers, programs of backends, Python scripts, `eval`."""
    from launcher.importing.launchers import LAUNCHERS
    from launcher.translate.backend import backend_names, get_backend

    programs = [program for name in backend_names() for program in get_backend(name).entry.programs]
    names = "|".join(re.escape(name) for name in (*LAUNCHERS, *programs, "srun", "mpirun", "eval"))
    return re.compile(rf"\b({names}|[\w/]+\.py|\w+_launcher\.sh)\b")


def starts_training(body: Node) -> bool:
    """Tell whether a part of a script may start what is to be imported."""
    return _starts().search(text_of(body)) is not None


def assigned(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the names of the variables that statements assign."""
    for node in nodes:
        if node.type == "variable_assignment":
            name = node.child_by_field_name("name")
            yield text_of(name.children[0] if name.type == "subscript" else name)
        else:
            yield from assigned(node.children)

"""A plan as a bash script that runs without this program."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace

from launcher.plan.node import NodePlan
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.syntax import escaped, is_text, is_variable, shown

REFERENCE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_NODE_RANK = "${NODE_RANK}"
# The folder in which a script or run is started: files of the plan lie below it, whatever the workdir of a command.
LAUNCH_DIR = "LAUNCH_DIR"
# Search paths that a plan extends: empty where the environment has none.
OPTIONAL = ("PYTHONPATH", "LD_LIBRARY_PATH")
# References in a file are inside double quotes, as in YAML and JSON: these characters end or change the text.
_ENDS_TEXT = re.compile(r'["\\\x00-\x1f\x7f-\x9f]')
WRONG_IN_FILE = "holds a quote, a backslash or a control character, and"


class Unwritable(ValueError):
    """A plan that cannot be written as a script: an invalid variable name, or bytes that are not text."""


def references(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the environment variables that the plan refers to as `${NAME}`, in order of appearance."""
    texts: list[str] = []
    for node in map(settled, (*plan.prepare, *plan.nodes[:1])):
        texts += [*node.argv, *node.env.values(), node.workdir]
    texts += [file.content for file in plan.files]
    names = (name for text in texts for name in REFERENCE.findall(text))
    return tuple(dict.fromkeys(name for name in names if name not in ("NODE_RANK", *OPTIONAL)))


def settled(node: NodePlan) -> NodePlan:
    """Return the node with references to its own variables resolved, so that all output formats agree.

    A variable may extend an outer one of the same name (`/x:${PYTHONPATH}`).
    """
    own: dict[str, str] = {}

    def value_of(text: str) -> str:
        return REFERENCE.sub(lambda found: own.get(found[1], found[0]), text) if "${" in text else text

    for key, value in node.env.items():
        own[key] = value_of(value)
    return replace(node, env=own, argv=tuple(map(value_of, node.argv)))


def script(plan: LaunchPlan) -> str:
    """Return the bash script of a plan. With several nodes it runs on each of them and reads NODE_RANK.

    Raises:
        Unwritable: a variable name is invalid, or a word is not text; rules reject such a job.
    """
    comments = [f"# {escaped(line)}" for line in (plan.what, *plan.notes) if line]
    lines = ["#!/usr/bin/env bash", *comments, "set -euo pipefail"]
    if LAUNCH_DIR in references(plan):
        lines.append(f'export {LAUNCH_DIR}="$PWD"')
    needed = [name for name in references(plan) if name != LAUNCH_DIR]
    for name in needed:
        lines.append(f': "${{{name}:?set {name} before running this script}}"')
        if name.endswith("_PATH"):
            # A command may run in another folder: a relative path means the folder where the script is started.
            lines.append(f'[ ! -e "${name}" ] || {{ {name}=$(realpath -- "${name}"); export {name}; }}')
    if len(plan.nodes) > 1:
        last = len(plan.nodes) - 1
        lines.append(f': "${{NODE_RANK:?set NODE_RANK to 0..{last}, a different one on each node}}"')
    for file in plan.files:
        lines += _checked(file)
        lines += _file(file, shared=len(plan.nodes) > 1)
    lines += _preparation(plan)
    for command in _nodes(plan):
        lines += command
    return "\n".join(lines) + "\n"


def _preparation(plan: LaunchPlan) -> list[str]:
    """Return the commands that run once: with several nodes on node 0, while the others wait at the rendezvous."""
    steps = map(settled, plan.prepare)
    lines = [f"( {' && '.join(_command(step, exec_it=False))} )" for step in steps]
    if not lines or len(plan.nodes) == 1:
        return lines
    return ['if [ "$NODE_RANK" = 0 ]; then', *(f"  {line}" for line in lines), "fi"]


def _nodes(plan: LaunchPlan) -> Iterable[list[str]]:
    nodes = [settled(node) for node in plan.nodes]
    if len(nodes) == 1:
        return [_command(nodes[0])]
    common = [_by_rank(node) for node in nodes]
    if all(node == common[0] for node in common):
        return [_command(common[0])]
    cases = ['case "$NODE_RANK" in']
    for node in nodes:
        cases += [f"{node.rank})", *(f"  {line}" for line in _command(node)), "  ;;"]
    return [[*cases, "esac"]]


def _by_rank(node: NodePlan) -> NodePlan:
    """Return the node with its own rank replaced by a reference where an option or variable of that name holds it."""
    argv = list(node.argv)
    for index, word in enumerate(argv[:-1]):
        if word.lstrip("-").replace("-", "_") == "node_rank" and argv[index + 1] == str(node.rank):
            argv[index + 1] = _NODE_RANK
    env = {
        key: _NODE_RANK if key == "NODE_RANK" and value == str(node.rank) else value for key, value in node.env.items()
    }
    return NodePlan(rank=0, argv=tuple(argv), env=env, workdir=node.workdir)


def references_of(file: PlanFile) -> tuple[str, ...]:
    """Return the environment variables whose values become part of a file."""
    return tuple(dict.fromkeys(REFERENCE.findall(file.content)))


def fits_in_file(value: str) -> bool:
    """Return whether the value of a variable can be inserted into a file unescaped, between double quotes."""
    return _ENDS_TEXT.search(value) is None and is_text(value)


def _checked(file: PlanFile) -> list[str]:
    """Return the lines that reject a variable whose value would change the structure of a file."""
    return [
        f'case "${{{name}:-}}" in *[\\"\\\\]*|*[[:cntrl:]]*) '
        f"echo {shlex.quote(f'{name} {WRONG_IN_FILE} {escaped(file.path)} refers to it')} >&2; exit 1 ;; esac"
        for name in references_of(file)
    ]


def _file(file: PlanFile, *, shared: bool) -> list[str]:
    """Return the lines that write a file; on a shared disk no node ever sees it partially written."""
    path = quote(file.path)
    target = f'{path}.node"$NODE_RANK"' if shared else path
    marker = "END_OF_FILE"
    while marker in file.content:
        marker += "_"
    body, word = _text(file.content).removesuffix("\n"), f"'{marker}'"
    if REFERENCE.search(body):
        body, word = _escaped(body, r"([\\$`])"), marker
    lines = [f'mkdir -p -- "$(dirname -- {path})"', f"(umask 077; cat > {target}) <<{word}", body, marker]
    lines.append(f"chmod {file.mode:o} -- {target}")
    return [*lines, f"mv -f -- {target} {path}"] if shared else lines


def _command(node: NodePlan, *, exec_it: bool = True) -> list[str]:
    lines = [] if node.workdir == "." else [f"cd -- {quote(node.workdir)}"]
    lines += [f"export {_variable(key)}={quote(value)}" for key, value in node.env.items()]
    command = " ".join(quote(word) for word in node.argv)
    # What begins with - would be an option of `exec`, or of `command` in its place.
    end = "-- " if node.argv[0].startswith("-") else ""
    return [*lines, f"exec {end}{command}" if exec_it else f"{'command ' if end else ''}{end}{command}"]


def _variable(name: str) -> str:
    if not is_variable(name):
        raise Unwritable(f"{shown(name)} is not a name of an environment variable")
    return name


def _text(text: str) -> str:
    if not is_text(text):
        raise Unwritable(f"{shown(text)} is not valid text: it has NUL or an invalid byte")
    return text


def quote(word: str) -> str:
    """Quote one word for bash; `${NAME}` references stay references, everything else is literal."""
    if not REFERENCE.search(_text(word)):
        return shlex.quote(word)
    return '"' + _escaped(word, r'([\\"$`])') + '"'


def _escaped(text: str, special: str) -> str:
    """Escape the special characters outside `${NAME}` references."""
    parts = REFERENCE.split(text)
    texts, names = parts[::2], parts[1::2]
    quoted = [re.sub(special, r"\\\1", part) for part in texts]
    return "".join(part + _reference(name) for part, name in zip(quoted, [*names, ""], strict=True))


def _reference(name: str) -> str:
    if not name:
        return ""
    return f"${{{name}:-}}" if name in OPTIONAL else f"${{{name}}}"


def one_line(words: Iterable[str]) -> str:
    """Return words as one line that a shell splits into the same words."""
    return " ".join(quote(word) for word in words)

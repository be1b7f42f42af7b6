"""A plan as a bash script that runs without this program."""

import re
import shlex
from collections.abc import Iterable

from launcher.plan.plan import LaunchPlan, NodePlan, PlanFile

REFERENCE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_NODE_RANK = "${NODE_RANK}"
# The folder in which a script or run is started: files of the plan lie below it, whatever the workdir of a command.
LAUNCH_DIR = "LAUNCH_DIR"
# Search paths that a plan extends: empty where the environment has none.
OPTIONAL = ("PYTHONPATH", "LD_LIBRARY_PATH")


def references(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the environment variables that the plan refers to as `${NAME}`, in order of appearance."""
    texts: list[str] = []
    for node in (*plan.prepare, *plan.nodes[:1]):
        texts += [*node.argv, *node.env.values(), node.workdir]
    texts += [file.content for file in plan.files]
    names = (name for text in texts for name in REFERENCE.findall(text))
    return tuple(dict.fromkeys(name for name in names if name not in ("NODE_RANK", *OPTIONAL)))


def script(plan: LaunchPlan) -> str:
    """Return the bash script of a plan. With several nodes it runs on each of them and reads NODE_RANK."""
    lines = ["#!/usr/bin/env bash", *(f"# {line}" for line in (plan.what, *plan.notes) if line), "set -euo pipefail"]
    if LAUNCH_DIR in references(plan):
        lines.append(f'export {LAUNCH_DIR}="$PWD"')
    needed = [name for name in references(plan) if name != LAUNCH_DIR]
    for name in needed:
        lines.append(f': "${{{name}:?set {name} before running this script}}"')
        if name.endswith("_PATH"):
            # A command may run in another folder: a relative path means the folder where the script is started.
            lines.append(f'[ ! -e "${name}" ] || export {name}="$(realpath -- "${name}")"')
    if len(plan.nodes) > 1:
        last = len(plan.nodes) - 1
        lines.append(f': "${{NODE_RANK:?set NODE_RANK to 0..{last}, a different one on each node}}"')
    for file in plan.files:
        lines += _file(file, shared=len(plan.nodes) > 1)
    lines += _preparation(plan)
    for command in _nodes(plan):
        lines += command
    return "\n".join(lines) + "\n"


def _preparation(plan: LaunchPlan) -> list[str]:
    """Return the commands that run once: with several nodes on node 0, while the rendezvous makes the others wait."""
    lines = [f"( {' && '.join(_command(step, exec_it=False))} )" for step in plan.prepare]
    if not lines or len(plan.nodes) == 1:
        return lines
    return ['if [ "$NODE_RANK" = 0 ]; then', *(f"  {line}" for line in lines), "fi"]


def _nodes(plan: LaunchPlan) -> Iterable[list[str]]:
    first = plan.nodes[0]
    if len(plan.nodes) == 1:
        return [_command(first)]
    common = [_by_rank(node) for node in plan.nodes]
    if all(node == common[0] for node in common):
        return [_command(common[0])]
    cases = ['case "$NODE_RANK" in']
    for node in plan.nodes:
        cases += [f"{node.rank})", *(f"  {line}" for line in _command(node)), "  ;;"]
    return [[*cases, "esac"]]


def _by_rank(node: NodePlan) -> NodePlan:
    """Return the node with its own rank replaced by a reference where an option or variable of that name carries it."""
    argv = list(node.argv)
    for index, word in enumerate(argv[:-1]):
        if word.lstrip("-").replace("-", "_") == "node_rank" and argv[index + 1] == str(node.rank):
            argv[index + 1] = _NODE_RANK
    env = {
        key: _NODE_RANK if key == "NODE_RANK" and value == str(node.rank) else value for key, value in node.env.items()
    }
    return NodePlan(rank=0, argv=tuple(argv), env=env, workdir=node.workdir)


def _file(file: PlanFile, *, shared: bool) -> list[str]:
    """Return the lines that write a file; on a disk that nodes share no node ever sees it half-written."""
    path = quote(file.path)
    target = f"{path}.node$NODE_RANK" if shared else path
    marker = "END_OF_FILE"
    while marker in file.content:
        marker += "_"
    body, word = file.content.rstrip("\n"), f"'{marker}'"
    if REFERENCE.search(body):
        body, word = _escaped(body, r"([\\$`])"), marker
    lines = [f'mkdir -p "$(dirname {path})"', f"cat > {target} <<{word}", body, marker]
    if file.mode != 0o644:
        lines.append(f"chmod {file.mode:o} {target}")
    return [*lines, f"mv -f {target} {path}"] if shared else lines


def _command(node: NodePlan, *, exec_it: bool = True) -> list[str]:
    lines = [f"export {key}={quote(value)}" for key, value in node.env.items()]
    if node.workdir != ".":
        lines.append(f"cd {quote(node.workdir)}")
    command = " ".join(quote(word) for word in node.argv)
    return [*lines, f"exec {command}" if exec_it else command]


def quote(word: str) -> str:
    """Quote one word for bash; `${NAME}` references stay references, everything else is literal."""
    if not REFERENCE.search(word):
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

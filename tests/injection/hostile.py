"""Text that would run, redirect or split if it were taken for more than a value, and programs that record their calls.

`pwned` is a program on the PATH of the tests that records its calls: none may be recorded.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.executors.files import resolved
from launcher.plan import NodePlan
from launcher.plan.shell import OPTIONAL, settled

TEXTS: dict[str, str] = {
    "a space": "a b",
    "an apostrophe": "it's",
    "a closed apostrophe": "'; pwned; '",
    "a double quote": 'a"b',
    "a closed double quote": '"; pwned; "',
    "a command": "$(pwned)",
    "a command in backticks": "`pwned`",
    "a command in apostrophes": "'$(pwned)'",
    "a second command": "; pwned ;",
    "a command in the background": "& pwned &",
    "a pipe": "| pwned",
    "a redirection": "> pwned.txt",
    "a process": "<(pwned)",
    "a second line": "a\npwned\n",
    "a line of its own": "\npwned\n",
    "a return": "a\rpwned",
    "another header": "x\n#SBATCH --wrap=pwned\npwned",
    "the end of a file": "a\nEND_OF_FILE\npwned\n",
    "a comment": "# pwned",
    "arithmetic": "$((a[$(pwned)]))",
    "an index": "a[$(pwned)]",
    "a default": "${x:-$(pwned)}",
    "an indirection": "${!HOME}",
    "a variable": "$HOME",
    "a reference": "${HOME}/x",
    "a reference and more": '${HOME}"; pwned; "$(pwned)',
    "a backslash": "a\\",
    "an escaped quote": "\\'; pwned; \\'",
    "an escaped command": "\\$(pwned)",
    "history": "!!",
    "a home": "~",
    "a file in a home": "~/x",
    "a pattern": "*",
    "braces": "{a,b}",
    "an option": "-x",
    "a long option": "--load=x",
    "a proxy": "-oProxyCommand=pwned",
    "the end of options": "--",
    "a dash": "-",
    "a pattern of Slurm": "%j%n%%",
    "a template": "{{ pwned }} {% pwned %}",
    "a flow of YAML": "a: [b, {c: d}]",
    "a tag of YAML": "!!python/object/apply:os.system ['pwned']",
    "an anchor": "&a *a",
    "a truth of YAML": "y",
    "a number": "0o7",
    "nothing": "null",
    "another script": "é🙂 微调",
    "a line of Unicode": "a\u2028pwned\x85b",
    "an escape": "\x1b]0;pwned\x07",
    "a delete": "a\x7f",
    "a tab": "a\tb",
    "a call of make": "a=b c:d @e",
    "a script of sed": "x/e;e pwned\n#",
    "half a pair": "a\udcffb",
    "NUL": "a\0b",
    "empty": "",
    "a blank": " ",
}
"""By what they are."""

PLAIN = {name: text for name, text in TEXTS.items() if "\0" not in text and "\udcff" not in text}
"""Those that a program can be handed at all."""

_RECORD = """#!/bin/bash
folder=$(mktemp -d "$STUB_SEEN/XXXXXXXX")
printf '%s\\0' "${0##*/}" "$@" >"$folder/argv"
cp /proc/self/environ "$folder/env"
"""
_PROGRAMS = ("pwned", "megatron", "torchrun", "msrun", "python", "sbatch", "squeue", "scancel", "kubectl", "curl")
# What runs behind them stands for the other machine: a login shell that is no bash.
_SSH = 'shift $(($# - 1))\nexec dash -c "$1"\n'
_SRUN = (
    'while [ "${1#-}" != "$1" ]; do shift; done\n'
    'for SLURM_NODEID in $(seq 0 $((STUB_NODES - 1))); do export SLURM_NODEID; "$@" & done\nwait\n'
)
_BODIES = {
    "ssh": _SSH,
    "srun": _SRUN,
    "scontrol": "for number in $(seq $STUB_NODES); do echo n$number; done\n",
    "hostname": "echo here\n",
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a stub: its words, its name first, and its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Stubs:
    """A folder of programs that record how they are called; nothing else of the job's is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._seen = folder / "bin", folder / "seen"
        self.folder.mkdir()
        self._seen.mkdir()
        for name in (*_PROGRAMS, *_BODIES):
            (self.folder / name).write_text(_RECORD + _BODIES.get(name, ""))
            (self.folder / name).chmod(0o755)

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment in which only the stubs and the system's tools are found."""
        own = {"STUB_SEEN": str(self._seen), "PATH": f"{self.folder}:/usr/bin:/bin", "HOME": "/home/it's me"}
        checkouts = dict.fromkeys(
            ("MEGATRON_LM_PATH", "MINDSPEED_LLM_PATH", "MINDSPEED_PATH", "MINDFORMERS_PATH"), str(self.folder.parent)
        )
        return {**own, **checkouts, "DATA_PATH": "/data", "MODEL_PATH": "/model", "LC_ALL": "C.UTF-8", **more}

    def calls(self) -> list[Call]:
        """Return the calls since the last time, in no order, and forget them."""
        found = []
        for folder in sorted(self._seen.iterdir()):
            argv, env = ((folder / name).read_bytes().decode() for name in ("argv", "env"))
            pairs = dict(entry.split("=", 1) for entry in env.split("\0") if "=" in entry)
            found.append(Call(argv=tuple(argv.split("\0")[:-1]), env=pairs))
            for name in ("argv", "env"):
                (folder / name).unlink()
            folder.rmdir()
        return found

    def run(self, args: Iterable[str], folder: Path, **env: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a command in a folder with nothing but the stubs."""
        return subprocess.run(list(args), cwd=folder, env=self.environ(**env), capture_output=True, check=False)


def expected(node: NodePlan, environ: Mapping[str, str]) -> Call:
    """Return the call that a node of a plan is: its references have the environment's values."""
    node, environ = settled(node), {**dict.fromkeys(OPTIONAL, ""), **environ}
    argv = tuple(resolved(arg, environ) for arg in node.argv)
    env = {name: resolved(value, environ) for name, value in node.env.items()}
    return Call(argv=(os.path.basename(argv[0]), *argv[1:]), env=env)


def agrees(call: Call, wanted: Call) -> bool:
    """Tell whether a call has these very words, and these variables among its own."""
    return call.argv == wanted.argv and wanted.env.items() <= call.env.items()


def header_options(script: str) -> Iterator[str]:
    """Yield the words of a batch script's header as sbatch reads them, up to the first command.

    After Slurm 22.05, src/sbatch/opt.c, _opt_batch_script and _get_argument.
    """
    for line in script.split("\n"):
        if line.startswith("#SBATCH"):
            yield from _arguments(line.removeprefix("#SBATCH"))
        elif line.strip() and not line.startswith("#"):
            return


def _arguments(line: str) -> Iterator[str]:
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        if line[at] == "#":
            return
        arg, quote = "", ""
        while at < len(line) and (quote or not line[at].isspace()):
            char = line[at]
            if char == "\\":
                arg += line[at + 1 : at + 2]
                at += 2
                continue
            if char == quote:
                quote = ""
            elif char in "'\"" and not quote:
                quote = char
            elif char == "#" and not quote:
                yield arg
                return
            else:
                arg += char
            at += 1
        yield arg

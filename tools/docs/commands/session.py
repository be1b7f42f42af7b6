"""A reader's shell: the commands of one page, one after the other, in an empty folder.

`launch` is a child of one process that has imported every verb (tests/commands.py), so that a command costs a fork.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.commands import ROOT, SocketServer
from tools.docs.commands.blocks import Block, Command

# Of blocks that are not run: jobs are checked and not started, options are looked for in the help, other programs are
# not there.
_STUB = """#!/bin/bash
words=("$@")
case "$*" in *+job=*|*+strategy=*|*--changed*) exit 0 ;; esac
case "${1:-}" in
  -m|--multirun) exit 0 ;;
  run) words=(check "${@:2}") ;;
  *[=+]*) words=(check "$@") ;;
  check) launch-itself "$@"; exit $(($? > 1)) ;;
  dry-run|estimate|explain|args) ;;
  convert|catalogue) verb="$1 $2" ;;
  *) verb="$1" ;;
esac
if [ -n "${verb:-}" ]; then
  help=$(launch-itself $verb --help) || exit
  for word in "$@"; do
    [ "$word" != -- ] || break
    option="${word%%=*}"
    [ "${word#-}" = "$word" ] || /usr/bin/grep -qE -- "(^|[^-[:alnum:]])$option([^-[:alnum:]]|$)" <<<"$help" || {
      echo "launch $verb has no $option"; exit 1; }
  done
  exit
fi
exec launch-itself "${words[@]}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that ran: its exit code and what it printed, standard error included."""

    command: Command
    code: int
    printed: tuple[str, ...]


class Session:
    """An empty folder `work` in which the commands of a page run; `bin`, `home` and records stand beside it."""

    def __init__(self, folder: Path, server: SocketServer) -> None:
        self.folder, self.work = folder, folder / "work"
        for name in ("work", "bin", "stubs", "home", "records"):
            (folder / name).mkdir()
        client = f'#!/bin/sh\nexec {sys.executable} -S -I {ROOT}/tests/command_client.py {server.path} "$@"\n'
        python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        for place, text in (("bin/launch", client), ("stubs/launch-itself", client), ("stubs/launch", _STUB)):
            self._program(place, text)
        for name in ("bin/python", "bin/python3"):
            self._program(name, python)
        for name in ("pip", "sbatch", "kubectl", "ssh", "npm", "git", "grep"):
            self._program(f"stubs/{name}", "#!/bin/sh\n")
        self.env = {
            "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder / "home"),
            "LAUNCH_HOME": str(folder / "home" / "launch"),
            "LAUNCH_CATALOGUES": str(folder / "home" / "catalogues"),
            "REPOSITORY": str(ROOT),
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }

    def _program(self, place: str, text: str) -> None:
        (self.folder / place).write_text(text)
        (self.folder / place).chmod(0o755)

    def run(self, blocks: Sequence[Block], *, timeout: float = 300) -> list[Ran]:
        """Write the files of the blocks and run their commands in one shell; return what each printed."""
        lines, commands = ["cd work"], []
        for block in blocks:
            if block.file:
                lines.append(_written(block))
            elif not block.not_run:
                for command in block.commands:
                    record = f"{self.folder}/records/{len(commands)}"
                    Path(f"{record}.sh").write_text(f"{command.text}\n", encoding="utf-8")
                    run = f'eval "$(<{record}.sh)"'
                    lines.append(f"{{ {run}\n}} >{record}.out 2>&1 </dev/null; echo $? >{record}.code")
                    commands.append(command)
        script = "\n".join(lines)
        subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.env, timeout=timeout, check=False)
        return [self._ran(number, command) for number, command in enumerate(commands)]

    def _ran(self, number: int, command: Command) -> Ran:
        record = self.folder / "records" / str(number)
        if not record.with_suffix(".code").is_file():
            return Ran(command=command, code=-1, printed=("not reached",))
        text = record.with_suffix(".out").read_text(encoding="utf-8", errors="replace")
        text = text.replace(str(self.work), "…").replace(str(self.folder), "…").replace(str(ROOT), "…")
        lines = tuple(re.sub(r"^.*\r(?!$)", "", line).rstrip() for line in text.splitlines())
        return Ran(command=command, code=int(record.with_suffix(".code").read_text()), printed=lines)

    def refused(self, block: Block) -> str:
        """Return what is wrong with the `launch` lines of a block that is not run: its jobs are checked instead."""
        env = {**self.env, "PATH": f"{self.folder}/stubs:/usr/bin:/bin"}
        text = "\n".join(command.text for command in block.commands) or block.body
        done = subprocess.run(
            ["bash", "-euc", text], cwd=self.work, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        return "" if done.returncode == 0 else f"{text}\n{done.stdout}{done.stderr}"


def _written(block: Block) -> str:
    path = shlex.quote(block.file)
    return f'mkdir -p "$(dirname {path})"\nprintf %s {shlex.quote(block.body)} >{path}'

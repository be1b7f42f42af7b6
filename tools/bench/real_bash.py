"""Runs scripts with a real bash in an empty root, where programs that start something are stubs that note their words.

The root holds bash, a few programs for text and files, and the scripts' own folder; there is no network, no process of
others and no right of root. For Linux, as root (`unshare`, `chroot`).
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

_PROGRAMS = (
    *("bash", "cat", "dirname", "basename", "seq", "cut", "sed", "grep", "awk", "tr", "wc", "head", "tail", "expr"),
    *("sort", "uniq", "env", "realpath", "readlink", "mkdir", "tee", "ls", "touch", "rm"),
)
_STUBS = (
    *("torchrun", "python", "python3", "megatron", "swift", "msrun", "deepspeed", "accelerate", "srun", "sbatch"),
    *("mpirun", "nvidia-smi", "npu-smi", "rocm-smi", "pip", "conda", "git", "docker", "ray", "module", "nohup", "nsys"),
    *("numactl", "taskset", "hostname", "date", "scontrol", "sleep", "kill", "pkill", "ssh", "scp", "rsync", "curl"),
    *("wget", "uv"),
)
_STUB = '#!/bin/bash\n{ printf "%s\\037" "${0##*/}" "$@"; printf "\\036"; } >> /log\n'
# Slurm's commands run the script that they are given, with its arguments.
_SUBMITS = _STUB + 'while (($#)); do [[ $1 == *.sh && -f $1 ]] && exec bash "$@"; shift; done\n'
# What scripts read on machines of Ascend, empty.
_SOURCED = (
    *("ascend-toolkit/set_env.sh", "nnal/atb/set_env.sh", "cann/set_env.sh", "driver/bin/setenv.bash"),
    *("ascend-toolkit/latest/set_env.sh", "mindspore/set_env.sh"),
)
_SECONDS = 10


def make_root(root: Path) -> None:
    """Make the folder that scripts see as `/`."""
    for folder in ("bin", "tmp", "work", "dev", "proc"):
        (root / folder).mkdir(parents=True)
    # Without it `>/dev/null` fails, and with `set -e` the script ends there.
    os.mknod(root / "dev" / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (root / "dev" / "null").chmod(0o666)
    (root / "dev" / "fd").symlink_to("/proc/self/fd")  # of `> >(tee log)` and `< <(seq 3)`
    for name in _PROGRAMS:
        found = shutil.which(name)
        if found is None:
            continue
        shutil.copy(Path(found).resolve(), root / "bin" / name)
        libraries = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+)", libraries):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(library, target)
    (root / "bin" / "sh").symlink_to("bash")
    for name in _STUBS:
        stub = root / "bin" / name
        stub.write_text(_SUBMITS if name in ("srun", "sbatch") else _STUB, encoding="utf-8")
        stub.chmod(0o755)
    for name in _SOURCED:
        (root / "usr/local/Ascend" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "usr/local/Ascend" / name).touch()
    for path in (root / "tmp", root):  # of scripts that make `/data/logs`
        path.chmod(0o777)


def commands_of(root: Path, folder: Path, script: str, variables: Mapping[str, str]) -> list[list[str]]:
    """Return the words of every stub that a script starts, in their order.

    The script runs in its own folder; if it starts nothing there, in that of the checkout.

    Args:
        folder: the scripts' checkout, copied into the root.
        script: its path there.
    """
    for place in (Path(script).parent, Path()):
        found = _run(root, folder, script, variables, place)
        if programs_of(found):
            return found
    return found


def _run(root: Path, folder: Path, script: str, variables: Mapping[str, str], place: Path) -> list[list[str]]:
    inside = root / "work" / folder.name
    if not inside.exists():
        shutil.copytree(folder, inside, symlinks=True)
        for path in (inside, *(each for each in inside.rglob("*") if each.is_dir() and not each.is_symlink())):
            path.chmod(0o777)
    log = root / "log"
    log.write_text("", encoding="utf-8")
    log.chmod(0o666)
    start, path = Path("/work") / folder.name / place, Path(script).relative_to(place)
    given = " ".join(variables[name] for name in sorted(filter(str.isdigit, variables), key=int))
    text = f"exec >/dev/null 2>&1 </dev/null; cd {str(start)!r} && exec bash {str(path)!r} {given}"
    timeout, unshare, chroot = (str(shutil.which(name)) for name in ("timeout", "unshare", "chroot"))
    apart = (unshare, "-n", "-p", "-f", f"--mount-proc={root / 'proc'}")
    enter = [*apart, chroot, "--userspec=65534:65534", str(root), "/bin/bash", "-c", text]
    environment = {"PATH": "/bin", "HOME": "/tmp"} | {n: text for n, text in variables.items() if not n.isdigit()}
    subprocess.run([timeout, "-k", "1", str(_SECONDS), *enter], env=environment, capture_output=True, check=False)
    found = log.read_text(encoding="utf-8", errors="replace").split("\036")
    return [each.split("\037")[:-1] for each in found if each]


def words_after(commands: Sequence[Sequence[str]], program: str) -> list[list[str]]:
    """Return what follows a program's name (`pretrain_gpt.py`, `megatron sft`) in each command that starts it."""
    name, _, command = program.partition(" ")
    found = []
    for words in map(_opened, commands):
        for at, word in enumerate(words):
            follows = not command or list(words[at + 1 : at + 2]) == [command]
            if (word.rpartition("/")[2] == name) and follows:
                found.append(list(words[at + 1 + bool(command) :]))
                break
    return found


# Programs that start others, or prepare; what they start has a name of its own.
_TOOLS = frozenset({*_STUBS, "bash", "sh", "env", "run", "torch.distributed.launch", "torch.distributed.run"}) - {
    "megatron",
    "swift",
}


def programs_of(commands: Sequence[Sequence[str]]) -> list[str]:
    """Return the name of each program that stubs start: a script, a module, or a command with its first word."""
    found = []
    for words in map(_opened, commands):
        scripts = [word.rpartition("/")[2] for word in words if word.endswith(".py") and not word.startswith("-")]
        modules = [word for before, word in zip(["", *words], words, strict=False) if before in ("-m", "--module")]
        named = [f"{word} {rest}" for word, rest in pairwise([*words, ""]) if word in ("swift", "megatron")]
        driven = "--use_ray" in words and words[words.index("--use_ray") + 1 :][:1] != ["false"]
        named = [f"{name} --use_ray" if driven else name for name in named]
        modules = [word for word in modules if word not in _TOOLS]
        found += [*named, *scripts, *modules][:1]
    return found


def _opened(words: Sequence[str]) -> list[str]:
    """Return the words of a command, with those of the text that `bash -c` gets in its place."""
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        try:
            found += shlex.split(word) if re.fullmatch(r"-\w*c", before) else [word]
        except ValueError:
            found.append(word)
    return found

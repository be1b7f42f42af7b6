"""What a worker process of the planner cannot reach, tried in one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.mapping.backend import backend_names
from tests.conftest import ROOT

# Tried within the jail; each prints what it got.
ATTEMPTS = {
    "read a file": "open('/etc/passwd').read()",
    "read a file of the user": "open({secret!r}).read()",
    "read it by its descriptor's number": "os.open({secret!r}, os.O_RDONLY)",
    "read it through a link": "open({link!r}).read()",
    "read it above an allowed folder": "open({allowed!r} + '/../secret.txt').read()",
    "see it": "os.stat({secret!r})",
    "see it as a link": "os.lstat({secret!r})",
    "see it by pathlib": "open if Path({secret!r}).exists() else Path('/none').stat()",
    "list a folder": "os.listdir('/etc')",
    "list the working folder": "os.listdir()",
    "walk a folder": "list(os.scandir('/etc'))",
    "write a file": "open({allowed!r} + '/new', 'w')",
    "write by a descriptor": "os.open({allowed!r} + '/new', os.O_CREAT | os.O_WRONLY)",
    "remove a file": "os.remove({allowed!r} + '/script.sh')",
    "run a program": "subprocess.run(['id'])",
    "run a shell": "os.system('id')",
    "fork": "os.fork()",
    "connect": "socket.create_connection(('127.0.0.1', 9))",
    "look up a name": "socket.getaddrinfo('localhost', 80)",
    "read the environment": "os.environ['PLANTED']",
    "read the environment of the process": "open('/proc/self/environ').read()",
    "read its memory": "open('/proc/self/mem', 'rb')",
    "find an account": "pwd.getpwnam('root')",
    "find the home folder": "1 / (os.path.expanduser('~root') != '~root')",
}
ALLOWED = {
    "an uploaded script": "open({allowed!r} + '/script.sh').read()",
    "a recipe": "open({recipe!r}).read()",
    "a module": "importlib.import_module('launcher.search')",
    "a job": "answers.plan(['+recipe=qwen3_moe', 'backend=megatron', 'hardware=h100_80g'])['estimate']['fits']",
}
# Data, weights and checkpoints that a job names are text: they are on other machines.
_NAMED = "+recipe=qwen3_8b data.paths=[/data/x] data.validation_paths=[/data/y] model.path=/m checkpoint.load=/data/c"
ALLOWED |= {
    f"a job of {backend} with files in {form}": "answers.plan("
    f"{[*_NAMED.split(), f'backend={backend}', f'data.format={form}']!r})['mistakes']"
    for backend in backend_names()
    for form in ("megatron", "messages")
}
SCRIPT = """
import importlib, json, os, pwd, socket, subprocess, sys
from pathlib import Path
attempts, folders = json.load(sys.stdin)
from launcher.ui import answers
from launcher.ui.jail import Jail
Jail(folders).enter()
found = {}
for name, code in attempts.items():
    try:
        found[name] = repr(eval(code))[:40]
    except Exception as error:
        found[name] = f"refused: {type(error).__name__}"
sys.stdout.write(json.dumps(found))
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("server")
    allowed = folder / "uploads"
    allowed.mkdir()
    (folder / "secret.txt").write_text("planted")
    (allowed / "script.sh").write_text("echo")
    link = allowed / "link.sh"
    link.symlink_to(folder / "secret.txt")
    places: dict[str, Any] = {"secret": str(folder / "secret.txt"), "link": str(link), "allowed": str(allowed)}
    places["recipe"] = str(ROOT / "recipes" / "qwen3_moe.yaml")
    attempts = {name: code.format(**places) for name, code in (ATTEMPTS | ALLOWED).items()}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([attempts, [str(allowed)]]),
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        env={**os.environ, "PLANTED": "planted", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_worker_cannot(tried: dict[str, str], attempt: str) -> None:
    assert tried[attempt].startswith("refused"), tried[attempt]


@pytest.mark.parametrize("what", ALLOWED)
def test_a_worker_reads(tried: dict[str, str], what: str) -> None:
    assert not tried[what].startswith("refused"), tried[what]


def test_what_exists_cannot_be_told_from_what_does_not(tried: dict[str, str], tmp_path: Path) -> None:
    assert tried["see it"] == tried["read a file"] == "refused: FileNotFoundError"

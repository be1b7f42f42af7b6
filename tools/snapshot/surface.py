"""The public surface: fields, rules, arguments of the command line, keys of its JSON, exit codes, API signatures."""

import contextlib
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from launcher import api
from tests.sampling import ROOT
from tools.snapshot.cases import Answer, Case

_RECIPE = ("+recipe=tiny_qwen3", "backend=megatron")
_SCRIPT = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --dataset x --tensor_model_parallel_size 5\n"
# Commands of each verb that succeed, are refused, or are misspelt; {} is a folder with the script.
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("dry-run", *_RECIPE),
    ("dry-run", *_RECIPE, "--json"),
    ("dry-run", *_RECIPE, "--format", "shell"),
    ("dry-run", *_RECIPE, "--format", "yaml"),
    ("dry-run", *_RECIPE, "parallel.tp=3", "--json"),
    ("dry-run", *_RECIPE, "parallel.tq=3"),
    ("check", *_RECIPE, "--json"),
    ("check", *_RECIPE, "parallel.tp=3"),
    ("check", *_RECIPE, "parallel.tp=3", "--json"),
    ("check", "{}/job.sh", "--json"),
    ("check", "{}/job.sh"),
    ("check", "{}/absent.sh"),
    ("explain", "parallel.tp", "--json"),
    ("explain", "PAR-TP-HEADS", "--json"),
    ("explain", "--tensor-model-parallel-size", "--json"),
    ("explain", "parallel.tq"),
    ("args", "megatron", "--json"),
    ("args", "nothing"),
    ("diff", *_RECIPE, "--backends", "megatron,mindspeed", "--json"),
    ("import", "{}/job.sh", "--json"),
    ("import", "{}/absent.sh", "--json"),
    ("estimate", "+recipe=qwen3_8b", "backend=megatron", "--json"),
    ("search", "+recipe=qwen3_8b", "backend=megatron", "--top", "1", "--json"),
    ("balance", "+recipe=qwen3_8b", "backend=megatron", "parallel.pp=2", "--json"),
    ("convert", "hf-to-mcore", "--model", "{}/absent", "--out", "{}/out", "--json"),
    ("convert", "verify", "{}/absent", "{}/out", "--json"),
    ("ps", "--json"),
    ("status", "absent", "--json"),
    ("logs", "absent"),
    ("stop", "absent"),
    ("doctor", *_RECIPE, "--json"),
    ("list", "recipes", "--json"),
    ("list", "rules", "--json"),
    ("schema",),
    ("completion", "bash"),
    ("nonsense",),
)


def surface() -> Iterator[Case]:
    """Yield the signatures of the API, and the output of each verb."""
    for name in sorted(api.__all__):
        yield Case(name=f"surface/api/{name}", answer=partial(_signature, getattr(api, name)))
    yield from _commands()


def _signature(value: Any) -> Answer:
    found: dict[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):  # an exception has none
        found["signature"] = _plain(str(inspect.signature(value)))
    if dataclasses.is_dataclass(value):
        found["fields"] = {field.name: _plain(str(field.type)) for field in dataclasses.fields(value)}
    if inspect.isclass(value):
        found["members"] = sorted(name for name in vars(value) if not name.startswith("_"))
    return found


def _plain(text: str) -> str:
    """Return a type without what no caller sees: the module that a class is in, the place of a function in memory."""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])| at 0x[0-9a-f]+", "", text)


def _commands() -> Iterator[Case]:
    help_of = {args[0] for args in COMMANDS} - {"nonsense"}
    for verb in sorted(help_of):
        yield Case(name=f"surface/help/{verb}", answer=partial(_ran, (verb, "--help")))
    for args in COMMANDS:
        yield Case(name=f"surface/command/{' '.join(args)}", answer=partial(_ran, args))


def _ran(args: tuple[str, ...]) -> Answer:
    with tempfile.TemporaryDirectory(prefix="launch-surface-") as folder:
        Path(folder, "job.sh").write_text(_SCRIPT, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": folder + "/home", "COLUMNS": "120"}
        done = subprocess.run(
            [sys.executable, "-m", "launcher", *(arg.replace("{}", folder) for arg in args)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    reported = {"code": done.returncode, "err": done.stderr.replace(folder, "FOLDER")}
    try:
        tree = json.loads(done.stdout)
    except ValueError:
        return {**reported, "out": done.stdout.replace(folder, "FOLDER")}
    if args[0] == "schema":
        return {**reported, "schema": tree}
    return {**reported, "keys": sorted(_keys(tree)), "rules": _rules(args, tree)}


def _keys(tree: Any, path: str = "") -> set[str]:
    """Return the paths of a JSON tree with the types at their ends; what a list holds counts once."""
    if isinstance(tree, Mapping):
        return {each for key, value in tree.items() for each in _keys(value, f"{path}.{key}")}
    if isinstance(tree, list):
        return {each for value in tree for each in _keys(value, f"{path}[]")} or {f"{path}[]"}
    return {f"{path}: {type(tree).__name__}"}


def _rules(args: tuple[str, ...], tree: Any) -> Any:
    return tree if args[:2] == ("list", "rules") else None

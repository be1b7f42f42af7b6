"""Megatron-LM and MindSpeed-LLM: their real parsers, built in a child process without a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.catalogue.writer import Row

_REPOSITORY = Path(__file__).resolve().parents[2]
_ORIGINS = {"MindSpeed-LLM": "mindspeed_llm", "MindSpeed": "mindspeed", "Megatron-LM": "megatron"}


class ParserFailed(Exception):
    """The child process could not build the parser; the message ends with its error output."""


def build(project: str, roots: Mapping[str, Path]) -> list[Row]:
    """Return the rows of a project's parser; `roots` name its checkouts, the first one wins an import."""
    command = [sys.executable, "-m", "tools.catalogue.parser_child", project]
    command += [f"{label}={path.resolve()}" for label, path in roots.items()]
    done = subprocess.run(
        command,
        cwd=_REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "1", "USE_TF": "FALSE", "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ParserFailed(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    if report["allow_abbrev"]:
        raise ParserFailed(f"{project}: the parser accepts abbreviations; the catalogue's style says that it does not")
    rows: list[Row] = report["rows"]
    return rows


def megatron_lm(checkout: Path) -> tuple[dict[str, object], list[Row]]:
    """Return head and rows of Megatron-LM's `pretrain_gpt.py`."""
    rows = build("megatron_lm", {"Megatron-LM": checkout})
    for row in rows:
        row["source"] = str(row["source"]).removeprefix("Megatron-LM/")
    return {"style": "argparse"}, rows


def mindspeed_llm(checkout: Path, mindspeed: Path, megatron: Path) -> tuple[dict[str, object], list[Row]]:
    """Return head and rows of MindSpeed-LLM's `pretrain_gpt.py`; `group` starts with the project that declares it."""
    roots = {"MindSpeed-LLM": checkout, "MindSpeed": mindspeed, "Megatron-LM": megatron}
    rows = build("mindspeed_llm", roots)
    for row in rows:
        row["origin"] = _ORIGINS.get(str(row["source"]).partition("/")[0], "")
    return {"style": "argparse"}, rows

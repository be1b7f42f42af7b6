"""Converts a MindFormers job's plan to its CPU rehearsal, changing only what CPU does not support."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from backends.mindformers.launch import ENTRY
from backends.mindformers.rehearse.overrides import for_cpu, refusals
from backends.mindformers.rehearse.weights import FOLDER, has_rank_folders
from backends.mindformers.yaml_file import parse, render
from launcher.job import Job, Value, output_dir
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.plan.node import NodePlan
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.rehearse.refusal import RehearsalRefused

ENTRY_SCRIPT = Path(__file__).parent / "entry" / "run_mindformer.py"
"""Replacement of run_mindformer.py for the PyPI wheel, which does not contain it."""
_MEETING, _MEETING_SECONDS = "--cluster_time_out", "300"


def adapt_plan(plan: LaunchPlan, job: Job) -> LaunchPlan:
    """Return the plan with YAML files changed for CPU, a note on every change, and an existing entry point.

    Raises:
        RehearsalRefused: the file requires features that MindSpore's CPU target does not support.
    """
    files, notes, prepare = [], [], list(plan.prepare)
    for file in plan.files:
        if file.path.endswith((".yaml", ".yml")):
            file, lines, commands = _yaml_for_cpu(file, job)
            notes.extend(lines)
            prepare.extend(commands)
        files.append(file)
    nodes = tuple(_meeting_soon(node) for node in plan.nodes)
    if not os.environ.get("MINDFORMERS_PATH"):
        nodes = tuple(_with_entry_script(node) for node in nodes)
        notes.append(
            "MINDFORMERS_PATH is not set: MindFormers from PyPI is started by a script of ours with the same calls"
        )
    kept = [note for note in plan.notes if "MINDFORMERS_PATH" not in note]
    return dataclasses.replace(plan, files=tuple(files), nodes=nodes, prepare=tuple(prepare), notes=(*notes, *kept))


def _yaml_for_cpu(file: PlanFile, job: Job) -> tuple[PlanFile, list[str], list[NodePlan]]:
    flat = parse(file.content)
    findings = refusals(flat)
    if findings:
        raise RehearsalRefused(findings)
    changed, lines = for_cpu(flat)
    weights = _weights_of(flat)
    commands = []
    if weights is not None:
        place = f"{output_dir(job)}/{FOLDER}"
        changed |= {"load_checkpoint": place, "auto_trans_ckpt": False, "load_ckpt_format": "safetensors"}
        words: tuple[str, ...] = (f"backend={job.backend.name}", f"backend.version={job.backend.version}")
        words += ("model.legacy=true",) if flat.get("use_legacy") else ()
        module = ("-m", "backends.mindformers.rehearse.weights", weights, place, str(job.cluster.world_size))
        commands.append(NodePlan(rank=0, argv=(sys.executable, *module, *words)))
        lines.append(f"changed for CPU: load_checkpoint: {weights} -> {place} (each data parallel rank loads one file)")
    native = NativeArgs(
        backend=str(job.backend.name),
        version=str(job.backend.version),
        args=tuple(NativeArg(flag=flag, value=value) for flag, value in changed.items()),
    )
    return dataclasses.replace(file, content=render(native, {"": "\n".join(lines)})), lines, commands


def _weights_of(flat: Mapping[str, Value]) -> str | None:
    """Return the folder of complete weights that a file loads; None: it loads none, or what its ranks have written."""
    named = str(flat.get("load_checkpoint") or flat.get("pretrained_model_dir") or "")
    source = Path(named)
    if not named or has_rank_folders(source):
        return None
    return named if "$" in named or next(source.rglob("*.safetensors"), None) is not None else None


def _meeting_soon(node: NodePlan) -> NodePlan:
    """Return the node with a short cluster timeout: if the port is taken, workers would wait until it expires."""
    words = list(node.argv)
    if _MEETING in words:
        words[words.index(_MEETING) + 1] = _MEETING_SECONDS
    return dataclasses.replace(node, argv=tuple(words))


def _with_entry_script(node: NodePlan) -> NodePlan:
    return dataclasses.replace(node, argv=tuple(str(ENTRY_SCRIPT) if word == ENTRY else word for word in node.argv))

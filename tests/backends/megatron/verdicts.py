"""Our verdict and the real one of ms-swift 4.6.0 for the same jobs, and what may differ, with the reason."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backends.megatron.launch import argv, command
from launcher.compose import compose
from launcher.families.config_json import config_from_model
from launcher.families.source import ModelConfigError
from launcher.job import Job
from launcher.pipeline import judge
from tests.backends.megatron.jobs import NEWEST
from tests.backends.users_path import UsersPath, reasons
from tests.backends.verdicts import ROOT, Validator, Verdict, ask

# Rules whose fault the argument classes and the model's configuration do not see, and where it shows.
LATER = {
    "LR-WARMUP-LENGTH": "when the scheduler is built (optimizer_param_scheduler.py:157)",
    "LR-ORDER": "when the scheduler is built (optimizer_param_scheduler.py)",
    "REQ-LENGTH": "when the scheduler is built: training has no number of steps",
    "MOE-TP-SP": "in the first forward pass (moe_layer.py:379)",
    "MOE-EP-EXPERTS": "when the model is built (moe_layer.py:101)",
    "MOE-TOPK": "in the first forward pass",
    "PAR-PP-LAYERS": "when the model is built (transformer_block.py:155)",
    "PAR-TP-FFN": "when the model is built (tensor_parallel/utils.py)",
    "PAR-CP-SEQ": "in the first forward pass",
    "PAR-SP-SEQ": "in the first forward pass",
    "BATCH-VPP": "when the schedule starts",
    "SW-BUILD-BIAS": "when weights are loaded (mcore-bridge 1.6.5 gpt_bridge.py:963, run in test_bridge_checkpoint)",
    "SW-BUILD-OUTPUT-BIAS": "never: the weights' bias is left out in silence (run in test_bridge_checkpoint)",
    "SW-BUILD-DENSE-LAYERS": "when weights are loaded (KeyError gate.weight, run in test_bridge_checkpoint)",
    "SW-PRECISION-AWARE": "after the weights are loaded (optimizer_config.py)",
    "SW-STATE-DTYPE": "after the weights are loaded (optimizer_config.py)",
    "SW-LOSS-SCALE": "when the template is built (loss_scale/mapping.py)",
    "SW-AGENT-TEMPLATE": "when the template is built (template/base.py)",
    "SW-LORA-NAMES": "when adapters are attached (peft)",
    "SW-REPORT-TO": "when the trainer is built (megatron/trainers/base.py:113)",
    "SW-CALLBACKS": "when the trainer is built (megatron/trainers/base.py:113)",
    "SW-REWARD-NAMES": "when the trainer is built, or when answers are scored",
    "SW-MULTI-TURN-NAMES": "when the trainer is built (rollout_mixin.py:442)",
    "SW-GRPO-LOSS": "in the first step (grpo_trainer.py:1069)",
    "SW-KTO-LOSS": "in the first step (trl)",
    "SW-TASK-LOSS": "when the trainer is built (embedding_trainer.py:20)",
    "SW-TASK-LOSS-NONE": "when the trainer is built (embedding_trainer.py:20)",
    "SW-CP-COMM-NAMES": "in the first forward pass (Transformer Engine)",
    "SW-MUON-COEFFICIENTS": "when the optimizer is built, or in its first step",
    "SW-MUON-SCALAR": "when the optimizer is built",
    "SW-STREAM-ITERS": "when training starts",
    "SW-STREAM-EVAL": "when training starts",
    "SW-EPOCH-STREAM": "when training starts",
    "MAP-UNSUPPORTED": "never: a value that no option expresses would be left out in silence",
    "SW-RC-MODULES": "never where recompute is off",
}
# What only the machine decides, not the job.
MACHINE = (
    "FileNotFoundError: path",
    "TE >=",
    "TE version",
    "transformer-engine",
    "fused permutation",
    "apply_rope_fusion is not available",
)


def validator(python: Path, *, title: str = "", cache: Path | None = None, workers: int = 1) -> Validator:
    """Return the program that asks ms-swift's own classes, in an environment with ms-swift 4.6.0."""
    return Validator(
        command=(str(python), "-m", "tests.backends.megatron.real_parser"),
        env={"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        as_list=True,
        title=title,
        cache=cache,
        workers=workers,
    )


def compare(jobs: Iterable[tuple[str, Job]], path: UsersPath, program: Validator) -> list[Verdict]:
    """Judge every job as a job file by `launch check`, and its command line by the real classes.

    Args:
        path: its folder also holds the models; answers that are kept are those of the same folder.
    """
    ours: dict[str, tuple[str, ...]] = {}
    cases = []
    for name, job in jobs:
        try:
            located, case = case_of(job, path.folder)
        except ModelConfigError:  # no config.json says this model
            continue
        ours[name] = path.job(located).errors
        outcome = judge(compose([f"+job={path.job_file(located)}"]), fixes=False)
        cases.append(case | {"argv": [*argv(outcome.native), *case["argv"]]})
    answers = ask(program, cases)
    return [
        Verdict(name=name, ours=ours[name], real=answer["error"], later=_later(ours[name]), machine=MACHINE)
        for name, answer in zip(ours, answers, strict=True)
    ]


def _later(ours: tuple[str, ...]) -> Mapping[str, str]:
    """Return what may show later; what no option expresses is not asked about, and may break other rules, too."""
    known = reasons(ours, NEWEST, LATER)
    return dict.fromkeys(ours, known["MAP-UNSUPPORTED"]) if "MAP-UNSUPPORTED" in ours else known


def case_of(job: Job, folder: Path) -> tuple[Job, dict[str, Any]]:
    """Return a job with its model in a folder of its own, and the case for the program, without the job's arguments.

    Raises:
        ModelConfigError: no config.json says this model.
    """
    content = json.dumps(config_from_model(job.model))
    home = folder / hashlib.sha256(content.encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(content, encoding="utf-8")
    model = dataclasses.replace(job.model, path=str(home))
    checkpoint = dataclasses.replace(job.checkpoint, save=str(folder / "out"), save_interval=5)
    located = dataclasses.replace(job, model=model, checkpoint=checkpoint)
    return located, {
        "name": "",
        "command": command(job),
        "argv": ["--check_model", "false"],
        "world_size": job.cluster.world_size,
        "local_world_size": job.cluster.devices_per_node,
    }

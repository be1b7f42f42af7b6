"""Jobs of every kind that Megatron-SWIFT trains, by name, and what tests do with them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from backends.megatron import BACKEND
from backends.megatron.launch import command
from backends.megatron.versions import catalogue
from launcher.catalogue.catalogue import Argument
from launcher.job import Job, Value, build
from launcher.mapping.engine import ReadBack, Translation, read_back, translate
from tests.backends import models

Tree = Mapping[str, Any]
NEWEST, SEED = "4.6.0", "3.5-dev"
WITH_LORA = ("4.6.0", "4.0.0", "3.12.6")

QWEN3_8B: Tree = {**models.QWEN3_8B, "hub_id": "Qwen/Qwen3-8B"}
QWEN3_30B_A3B: Tree = {**models.QWEN3_30B_A3B, "hub_id": "Qwen/Qwen3-30B-A3B"}
DEEPSEEK_V3: Tree = {**models.DEEPSEEK_V3, "hub_id": "deepseek-ai/DeepSeek-V3"}
_STEPS: Tree = {
    "batch": {"micro_batch_size": 1, "global_batch_size": 16, "seq_length": 8192},
    "schedule": {"train_iters": 2000, "lr_warmup_iters": 100},
    "optimizer": {"lr": 1e-5, "min_lr": 1e-6},
    "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1},
    "checkpoint": {"save": "out", "save_interval": 200, "no_save_optim": True, "no_save_rng": True},
}


def _job(model: Tree, **sections: Any) -> Tree:
    return {**_STEPS, "model": model, **sections}


_CHAT: Tree = {"paths": ["chat.jsonl"], "format": "messages"}
_MOE: Tree = {"grouped_gemm": True, "permute_fusion": True, "aux_loss_coeff": 1e-3}

JOBS: Mapping[str, Tree] = {
    "dense pretrain": _job(QWEN3_8B, data={"paths": ["text.jsonl"], "format": "text"}, parallel={"tp": 2, "cp": 2}),
    "moe pretrain": _job(
        QWEN3_30B_A3B,
        data={"paths": ["text.jsonl"], "format": "text"},
        parallel={"tp": 2, "pp": 2, "ep": 8, "sequence_parallel": True},
        moe=_MOE,
        cluster={"nodes": 2, "master_addr": "node0"},
    ),
    "sft": _job(QWEN3_8B, task={"type": "sft"}, data=_CHAT, parallel={"tp": 4, "sequence_parallel": True}),
    "resume": _job(QWEN3_8B, task={"type": "sft"}, data=_CHAT, checkpoint={"save": "out", "load": "out/checkpoint-6"}),
    "random weights": _job(
        {**QWEN3_8B, "hub_id": None, "initializer_range": 0.006}, data=_CHAT, tokenizer={"path": "/data/tokenizer"}
    ),
    "fp32": _job(QWEN3_8B, task={"type": "sft"}, data=_CHAT, precision={"dtype": "fp32"}),
}
NEWER_JOBS: Mapping[str, Tree] = {
    "mla and mtp": _job(
        DEEPSEEK_V3,
        data={"paths": ["text.jsonl"], "format": "text"},
        parallel={"pp": 8, "ep": 32, "first_stage_layers": 6, "last_stage_layers": 7},
        moe={**_MOE, "load_balancing_type": "seq_aux_loss"},
        batch={"micro_batch_size": 1, "global_batch_size": 256, "seq_length": 4096},
        cluster={"nodes": 32},
    ),
    "lora": _job(
        QWEN3_8B,
        task={"type": "sft"},
        data=_CHAT,
        lora={"rank": 16, "alpha": 32.0, "dropout": 0.0, "target_modules": ["linear_qkv", "linear_proj"]},
    ),
    "dpo": _job(QWEN3_8B, task={"type": "dpo", "beta": 0.1, "loss_type": "sigmoid", "rpo_alpha": 1.0}, data=_CHAT),
    "kto": _job(QWEN3_8B, task={"type": "kto", "desirable_weight": 1.0, "undesirable_weight": 1.5}, data=_CHAT),
}
CASES = [
    *((name, version) for name in JOBS for version in BACKEND.versions),
    *((name, version) for name in NEWER_JOBS for version in WITH_LORA),
]


def named_job(name: str) -> Job:
    """Return one of the jobs above."""
    return make({**JOBS, **NEWER_JOBS}[name])


def make(tree: Tree) -> Job:
    """Build a job from a nested mapping that has no mistakes."""
    job, problems = build({"name": "job", **tree})
    assert not problems, problems
    return job


def translated(job: Job, version: str) -> Translation:
    """Translate as the launcher does."""
    return translate(BACKEND.prepare(job, version), BACKEND, version)


def written(job: Job, version: str) -> dict[str, Value]:
    """Return the arguments of a job that the version can express."""
    translation = translated(job, version)
    assert [finding.message for finding in translation.findings if finding.severity == "error"] == []
    return {arg.flag: arg.value for arg in translation.native}


def imported(native: Mapping[str, Value], version: str, subcommand: str) -> ReadBack:
    """Read arguments backwards, as an importer does that knows which command was typed."""
    return read_back({**native, "command": subcommand}, BACKEND, version)


def there_and_back(job: Job, version: str) -> Job:
    """Write the job and read it again; nothing may be left over."""
    read = imported(written(job, version), version, command(job))
    assert [arg.flag for arg in read.unmapped] == []
    assert read.warnings == ()
    return read.job


def typed(args: Sequence[str], version: str) -> dict[str, Value]:
    """Parse a command line as the version's own parser would: names, types, lists and booleans of the catalogue."""
    given: dict[str, list[str]] = {}
    for token in args:
        if token.startswith("--"):
            flag, equals, value = token[2:].partition("=")
            given[flag] = [value] if equals else []
        else:
            given[list(given)[-1]].append(token)
    found = {}
    for flag, texts in given.items():
        argument = catalogue(version).get(flag)
        assert argument is not None, f"{flag} is not an argument of {version}"
        assert argument.is_list or len(texts) == 1, f"--{flag} {texts}"
        values = [_value(argument, text) for text in texts]
        found[argument.name] = values if argument.is_list else values[0]
    return found


def _value(argument: Argument, text: str) -> Value:
    kinds = argument.type.split("|")
    if "bool" in kinds:
        return {"true": True, "false": False}[text]
    for kind, read in (("int", int), ("float", float)):
        if kind in kinds:
            try:
                return read(text)
            except ValueError:
                continue
    if "json" in kinds and text.startswith("{"):
        return json.loads(text)
    return text


def effective(native: Mapping[str, Value], version: str, subcommand: str) -> dict[str, Value]:
    """Return the value of every argument: as given, or the parser's default."""
    arguments = catalogue(version).arguments
    values = {arg.name: native.get(arg.name, arg.default_for(subcommand)) for arg in arguments}
    if values.get("truncation_strategy") is None:
        values["truncation_strategy"] = "delete"  # template_args.py:167 @4.6.0
    if values.get("calculate_per_token_loss") is None:
        values["calculate_per_token_loss"] = subcommand != "rlhf"  # megatron_args.py:758 @4.6.0
    values["use_flash_attn"] = None  # no model of Megatron-core reads it
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Value) -> Value:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value] if len(value) != 1 else _plain(value[0])
    return int(value) if isinstance(value, float) and value.is_integer() else value

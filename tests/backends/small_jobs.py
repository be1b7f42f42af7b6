"""A small job, the backend versions that it is written for, and what each makes of it."""

from typing import Any

from launcher.job import Job
from launcher.job.build import build
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import nest, translate

MODEL = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
}
LM, LM_12, MS, MS_OLD = (
    ("megatron_lm", "0.16.1"),
    ("megatron_lm", "0.12.1"),
    ("mindspeed", "26.1.0"),
    ("mindspeed", "2.1.0"),
)
LM_19 = ("megatron_lm", "0.19.0")
SWIFT, SWIFT_3, SWIFT_36 = ("megatron", "4.6.0"), ("megatron", "3.12.6"), ("megatron", "3.6.4")
MF, MF_OLD = ("mindformers", "2.1.0"), ("mindformers", "1.6.0")


def job_of(**values: Any) -> Job:
    """Return a small job with values at dotted paths (`__` for the dot)."""
    tree = nest({path.replace("__", "."): value for path, value in values.items()})
    small: dict[str, dict[str, Any]] = {"model": MODEL, "batch": {"global_batch_size": 16}, "optimizer": {"lr": 1e-4}}
    for section, usual in small.items():
        tree[section] = {**usual, **tree.get(section, {})}
    tree.setdefault("schedule", {}).setdefault("train_iters", 100)
    job, problems = build(tree)
    assert not problems, problems
    return job


def written(job: Job, where: tuple[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments that a job becomes, and why fields cannot be expressed."""
    backend = get_backend(where[0])
    result = translate(backend.prepare(job, where[1]), backend, where[1])
    refused = {field: finding.severity for finding in result.findings for field in finding.fields}
    return {arg.flag: arg.value for arg in result.native}, refused

"""Our verdict and that of megatron-core 0.16.1's TransformerConfig for jobs drawn at random."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.job import Job
from launcher.pipeline import judge
from tests.backends.megatron.fuzzed import jobs as swift_jobs

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.16.1"
# Fields of the job that the class knows under another name.
_NAMES = {
    "tensor_model_parallel_size": "parallel.tp",
    "pipeline_model_parallel_size": "parallel.pp",
    "virtual_pipeline_model_parallel_size": "parallel.vpp",
    "context_parallel_size": "parallel.cp",
    "expert_model_parallel_size": "parallel.ep",
    "expert_tensor_parallel_size": "parallel.etp",
    "num_layers_in_first_pipeline_stage": "parallel.first_stage_layers",
    "num_layers_in_last_pipeline_stage": "parallel.last_stage_layers",
    "account_for_loss_in_pipeline_split": "parallel.account_for_loss",
    "pipeline_model_parallel_layout": "parallel.layout",
    "recompute_granularity": "recompute.granularity",
    "recompute_method": "recompute.method",
    "recompute_num_layers": "recompute.num_layers",
    "num_layers": "model.num_hidden_layers",
    "hidden_size": "model.hidden_size",
    "ffn_hidden_size": "model.intermediate_size",
    "num_attention_heads": "model.num_attention_heads",
    "num_query_groups": "model.num_key_value_heads",
    "num_moe_experts": "model.num_experts",
    "moe_router_topk": "model.num_experts_per_tok",
    "moe_ffn_hidden_size": "model.moe_intermediate_size",
    "moe_shared_expert_intermediate_size": "model.shared_expert_intermediate_size",
    "moe_router_enable_expert_bias": "model.router_expert_bias",
    "moe_router_score_function": "model.scoring_func",
}
_EXPERTS = {
    "moe_token_dispatcher_type": "moe.token_dispatcher_type",
    "moe_expert_capacity_factor": "moe.capacity_factor",
    "moe_pad_expert_input_to_capacity": "moe.pad_to_capacity",
    "moe_router_load_balancing_type": "moe.load_balancing_type",
    "moe_shared_expert_overlap": "moe.shared_expert_overlap",
    "moe_grouped_gemm": "moe.grouped_gemm",
}
_MACHINE = ("TE >=", "TE version", "transformer-engine", "fused permutation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One job's verdicts: ids of our errors, and what the class said against it (None: nothing)."""

    name: str
    ours: tuple[str, ...]
    real: str | None

    @property
    def kind(self) -> str:
        """Return `same`, `later` (other parts of Megatron refuse it), `machine` or `missed`."""
        if bool(self.ours) == (self.real is not None):
            return "same"
        if self.real is None:
            return "later"
        return "machine" if any(text in self.real for text in _MACHINE) else "missed"


def jobs(count: int, seed: int) -> Iterator[tuple[str, Job]]:
    """Yield the jobs drawn for ms-swift as pre-training jobs of Megatron-LM."""
    for name, job in swift_jobs(count, seed):
        choice = dataclasses.replace(job.backend, name="megatron_lm", version=VERSION, args={})
        data = dataclasses.replace(job.data, format="mock", paths=(), lazy_tokenize=None, streaming=None)
        batch = dataclasses.replace(job.batch, packing=None)
        checkpoint = dataclasses.replace(job.checkpoint, async_save=None, save_total_limit=None)
        model = dataclasses.replace(job.model, path=None)
        precision = dataclasses.replace(job.precision, fp8_param_gather=None)
        parts = {"backend": choice, "data": data, "batch": batch, "checkpoint": checkpoint, "model": model}
        yield name, dataclasses.replace(job, **parts, precision=precision)


def arguments(job: Job) -> dict[str, Any]:
    """Return the job as keyword arguments of the class."""
    from launcher.job import value_at

    names = {**_NAMES, **(_EXPERTS if job.model.is_moe else {})}
    found = {name: value_at(job, path) for name, path in names.items()}
    if job.recompute.modules:
        found["recompute_modules"] = list(job.recompute.modules)
    if found["virtual_pipeline_model_parallel_size"] == 1:
        del found["virtual_pipeline_model_parallel_size"]
    found["sequence_parallel"] = bool(job.parallel.sequence_parallel) and job.parallel.tp > 1
    if job.moe.deepep:
        found["moe_flex_dispatcher_backend"] = "deepep"
    found["moe_router_pre_softmax"] = not job.model.norm_topk_prob
    sized = {name: value for name, value in found.items() if value is not None}
    return {**sized, "dtype": job.precision.dtype, "latent": job.model.is_mla}


def compare(count: int, seed: int, timeout: float = 900) -> list[Verdict]:
    """Judge jobs ourselves and by the class, in one child process; jobs that the mapping refuses are left out."""
    drawn: list[tuple[str, tuple[str, ...]]] = []
    cases = []
    for name, job in jobs(count, seed):
        errors = tuple(sorted({f.rule for f in judge(job, fixes=False).findings if f.severity == "error"}))
        if "MAP-UNSUPPORTED" not in errors:
            drawn.append((name, errors))
            cases.append(arguments(job))
    result = subprocess.run(
        [sys.executable, "-m", "tests.rules.real_core"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(result.stderr[-4000:])
    real = [json.loads(line) for line in result.stdout.splitlines()]
    return [Verdict(name=name, ours=ours, real=said) for (name, ours), said in zip(drawn, real, strict=True)]

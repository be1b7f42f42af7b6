"""Our verdict and that of megatron-core 0.16.1's TransformerConfig for jobs drawn at random."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launcher.job import Job
from tests.backends.megatron.fuzzed import jobs as swift_jobs
from tests.backends.users_path import UsersPath
from tests.backends.verdicts import ROOT, Validator, Verdict, ask

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
    "microbatch_group_size_per_vp_stage": "parallel.microbatch_group_size",
    "account_for_embedding_in_pipeline_split": "parallel.account_for_embedding",
    "distribute_saved_activations": "recompute.distribute_saved_activations",
    "fp8": "precision.fp8_format",
    "fp8_recipe": "precision.fp8_recipe",
    "first_last_layers_bf16": "precision.first_last_layers_bf16",
    "num_layers_at_start_in_bf16": "precision.num_layers_at_start_in_bf16",
    "attention_dropout": "model.attention_dropout",
    "hidden_dropout": "model.hidden_dropout",
    "apply_query_key_layer_scaling": "precision.apply_query_key_layer_scaling",
    "attention_softmax_in_fp32": "precision.attention_softmax_in_fp32",
    "cross_entropy_loss_fusion": "kernels.cross_entropy_fusion",
    "cross_entropy_fusion_impl": "kernels.cross_entropy_fusion_impl",
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
    "overlap_moe_expert_parallel_comm": "moe.batch_overlap",
    "moe_token_drop_policy": "moe.token_drop_policy",
    "moe_input_jitter_eps": "moe.input_jitter_eps",
    "moe_z_loss_coeff": "moe.z_loss_coeff",
}
MACHINE = ("NoneType' and 'Version", "TE >=", "TE version", "transformer-engine", "fused permutation")
_OTHERS = "by another check of Megatron-LM, which is not asked here"


def jobs(count: int, seed: int) -> Iterator[tuple[str, Job]]:
    """Yield the jobs drawn for ms-swift as pre-training jobs of Megatron-LM."""
    for name, job in swift_jobs(count, seed):
        choice = dataclasses.replace(job.backend, name="megatron_lm", version=VERSION, args={})
        data = dataclasses.replace(job.data, format="mock", paths=(), lazy_tokenize=None, streaming=None)
        batch = dataclasses.replace(job.batch, packing=None)
        checkpoint = dataclasses.replace(job.checkpoint, async_save=None, save_total_limit=None)
        model = dataclasses.replace(job.model, path=None)
        precision = dataclasses.replace(job.precision, fp8_param_gather=None)
        parts: dict[str, Any] = {
            "backend": choice,
            "data": data,
            "batch": batch,
            "checkpoint": checkpoint,
            "model": model,
        }
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


def validator(*, title: str = "", cache: Path | None = None) -> Validator:
    """Return the program that asks the class itself, in this environment."""
    command = (sys.executable, "-m", "tests.rules.real_core")
    return Validator(command=command, env={"PYTHONPATH": str(ROOT)}, as_list=True, title=title, cache=cache)


def compare(count: int, seed: int, path: UsersPath, program: Validator) -> list[Verdict]:
    """Judge jobs as job files by `launch check`, and by the class; jobs that the mapping refuses are left out."""
    drawn: list[tuple[str, tuple[str, ...]]] = []
    cases = []
    for name, job in jobs(count, seed):
        errors = path.job(job).errors
        if "MAP-UNSUPPORTED" not in errors:
            drawn.append((name, errors))
            cases.append(arguments(job))
    return [
        # The class sees a part of the arguments, so that what a rule refuses beyond it is never called unexplained:
        # the rows of Megatron-LM's own parser and validate_args are the evidence for those rules.
        Verdict(name=name, ours=ours, real=reported, later=dict.fromkeys(ours, _OTHERS), machine=MACHINE)
        for (name, ours), reported in zip(drawn, ask(program, cases), strict=True)
    ]

"""What is changed in ms-swift's real command lines, and the real classes' verdicts on them beside ours.

Their models are replaced by two whose configuration is here: a dense one and one with experts.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.families.config_json import config_from_model
from launcher.job.model import Model
from tests.backends.megatron.jobs import NEWEST, QWEN3_8B, QWEN3_30B_A3B, make
from tests.backends.megatron.verdicts import LATER, MACHINE, validator
from tests.backends.mutated import Line, Mutations, Words
from tests.backends.users_path import UsersPath, nodes_of, reasons, swift_script
from tests.backends.verdicts import Verdict, ask

# Sizes of experts in the names of models.
_EXPERTS = re.compile(r"-A\d+B|\d+E-|Moonlight")
# What needs other programs, files or models than the two.
_LEFT_OUT = (
    "new_special",
    "--system",
    "vllm",
    "external_plugins",
    "gym_env",
    "multi_turn",
    "model_type",
    "freeze_",
    "config",
    "use_ray",
    "reward",
)
_SWITCH = ("true", "false", None)
MUTATIONS = Mutations(
    sizes={
        "--tensor_model_parallel_size": (1, 2, 3, 4, 8),
        "--pipeline_model_parallel_size": (1, 2, 3, 4, 8),
        "--context_parallel_size": (1, 2, 3, 4),
        "--expert_model_parallel_size": (1, 2, 3, 4, 8),
        "--expert_tensor_parallel_size": (1, 2, 3),
        "--virtual_pipeline_model_parallel_size": (1, 2, 3),
        "--decoder_first_pipeline_num_layers": (5, 10, 11, 12),
        "--decoder_last_pipeline_num_layers": (5, 10, 11, 12),
        "--micro_batch_size": (1, 2, 3, 4),
        "--global_batch_size": (1, 4, 8, 16, 20, 32),
        "--max_length": (127, 2048, 8192, 65536),
        "--recompute_num_layers": (1, 2, 50),
        "--train_iters": (1, 100),
        "--num_train_epochs": (1, 3),
        "--lr_warmup_iters": (1, 10),
        "--save_steps": (1, 100),
        "--eval_steps": (1, 100),
        "--eval_iters": (1, 10),
        "--mtp_num_layers": (1, 2),
        "--lora_rank": (1, 8, 64),
        "--save_total_limit": (1, 2, 3),
        "--seed": (1, 42),
        "--microbatch_group_size_per_vp_stage": (1, 2, 4),
    },
    values={
        "--recompute_granularity": ("full", "selective", "none", None),
        "--recompute_method": ("uniform", "block", None),
        "--recompute_modules": ("core_attn", "moe_act", "mlp layernorm", "moe", "mla_up_proj", None),
        "--moe_token_dispatcher_type": ("allgather", "alltoall", "flex", None),
        "--moe_router_load_balancing_type": ("aux_loss", "sinkhorn", "none", "seq_aux_loss", None),
        "--moe_expert_capacity_factor": ("1.0", None),
        "--moe_aux_loss_coeff": ("0", "1e-3", None),
        "--moe_router_dtype": ("fp32", "none", None),
        "--attention_backend": ("flash", "fused", "unfused", "auto", "flsh", None),
        "--optimizer": ("adam", "sgd", "muon", None),
        "--lr_decay_style": ("cosine", "linear", "constant", "WSD", None),
        "--lr_warmup_fraction": ("0.05", "1.5", None),
        "--min_lr": ("0", "1e-6", "1", None),
        "--weight_decay": ("0.1", None),
        "--fp8_format": ("e4m3", "hybrid", None),
        "--fp8_recipe": ("delayed", "tensorwise", "mxfp8", "blockwise", None),
        "--torch_dtype": ("bfloat16", "float16", "float32", None),
        "--tuner_type": ("full", "lora", None),
        "--target_modules": ("all-linear", "linear_qkv", None),
        "--split_dataset_ratio": ("0", "0.01", None),
        "--optimizer_offload_fraction": ("0.5", "1", None),
        "--exp_avg_dtype": ("bf16", "fp32", "fp8", None),
        "--pipeline_model_parallel_layout": ("Et*18|t*18L", "Et*24|t*24L", None),
        "--cross_entropy_fusion_impl": ("native", "te", None),
        "--padding_free": _SWITCH,
        "--packing": _SWITCH,
        "--streaming": _SWITCH,
        "--lazy_tokenize": _SWITCH,
        "--group_by_length": _SWITCH,
        "--sequence_parallel": _SWITCH,
        "--use_distributed_optimizer": _SWITCH,
        "--overlap_grad_reduce": _SWITCH,
        "--overlap_param_gather": _SWITCH,
        "--tp_comm_overlap": _SWITCH,
        "--moe_grouped_gemm": _SWITCH,
        "--moe_permute_fusion": _SWITCH,
        "--moe_shared_expert_overlap": _SWITCH,
        "--moe_pad_expert_input_to_capacity": _SWITCH,
        "--moe_enable_deepep": _SWITCH,
        "--fp8_param_gather": _SWITCH,
        "--use_precision_aware_optimizer": _SWITCH,
        "--optimizer_cpu_offload": _SWITCH,
        "--async_save": _SWITCH,
        "--finetune": _SWITCH,
        "--no_save_optim": _SWITCH,
        "--no_load_optim": _SWITCH,
        "--no_load_rng": _SWITCH,
        "--save_safetensors": _SWITCH,
        "--merge_lora": _SWITCH,
        "--calculate_per_token_loss": _SWITCH,
        "--cross_entropy_loss_fusion": _SWITCH,
        "--account_for_loss_in_pipeline_split": _SWITCH,
        "--account_for_embedding_in_pipeline_split": _SWITCH,
        "--bf16": _SWITCH,
        "--fp16": _SWITCH,
        "--overlap_p2p_comm": _SWITCH,
        "--align_param_gather": _SWITCH,
        "--gradient_accumulation_fusion": _SWITCH,
        "--apply_rope_fusion": _SWITCH,
    },
    switches=(),
    joint=(
        "--recompute_granularity full --recompute_method uniform --recompute_num_layers 1",
        "--tensor_model_parallel_size 2 --sequence_parallel true",
        "--pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 2",
        "--pipeline_model_parallel_size 2 --decoder_last_pipeline_num_layers 10",
        "--expert_model_parallel_size 2 --expert_tensor_parallel_size 1",
        "--fp8_format hybrid --fp8_recipe delayed --fp8_param_gather true",
        "--optimizer_cpu_offload true --use_precision_aware_optimizer true",
        "--moe_expert_capacity_factor 1.5 --moe_pad_expert_input_to_capacity true",
        "--streaming true --train_iters 10",
        "--context_parallel_size 2 --padding_free false",
        "--optimizer muon --use_distributed_optimizer false",
        "--tp_comm_overlap true --tensor_model_parallel_size 2 --sequence_parallel true",
    ),
    keep=frozenset({"--model", "--dataset", "--rlhf_type", "--check_model"}),
)


def bases(corpus: Path, folder: Path) -> list[Line]:
    """Return the training command lines of 4.6.0 in the corpus file, with models whose configuration is in a folder."""
    records = map(json.loads, corpus.read_text(encoding="utf-8").splitlines())
    return lines_of(
        [
            {
                "source": record["path"],
                "env": record.get("env") or {},
                "words": [*(record.get("command") or "").split(), *record["argv"]],
            }
            for record in records
            if record["version"] == "main" and "argv" in record
        ],
        folder,
    )


def lines_of(records: Sequence[Mapping[str, Any]], folder: Path) -> list[Line]:
    """Return the training command lines among records with source, words and environment."""
    for kind, model in _models().items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / "config.json").write_text(json.dumps(config_from_model(model)), encoding="utf-8")
    return [
        _line(record, folder)
        for record in records
        if record["words"][0] == "megatron"
        and record["words"][1] in ("sft", "pt", "rlhf")
        and "--model" in record["words"]
    ]


def _models() -> dict[str, Model]:
    """Return the models by the names of their folders, by which ms-swift recognises them."""
    return {"Qwen3-8B": make({"model": QWEN3_8B}).model, "Qwen3-30B-A3B": make({"model": QWEN3_30B_A3B}).model}


def _line(record: Mapping[str, Any], folder: Path) -> Line:
    args = Words(record["words"][2:])
    for flag in args.flags():
        if any(part in flag for part in _LEFT_OUT):
            args.set(flag, None)
    kind = "Qwen3-30B-A3B" if _EXPERTS.search(args.value("--model") or "") else "Qwen3-8B"
    args.set("--model", [str(folder / kind)])
    args.set("--output_dir", [str(folder / "out")])
    args.set("--check_model", ["false"])
    env = {name: value for name, value in record["env"].items() if name in ("NPROC_PER_NODE", "NNODES")}
    world = int(env.get("NPROC_PER_NODE", "1")) * int(env.get("NNODES", "1"))
    return Line(name=record["source"], argv=tuple(args), world_size=world, program=tuple(record["words"][:2]))


def compare(lines: Sequence[Line], python: Path, path: UsersPath, **settings: Any) -> list[Verdict]:
    """Judge command lines by `launch check` and by ms-swift's own classes."""
    cases = [
        {
            "name": "",
            "command": line.program[1],
            "argv": list(line.argv),
            "world_size": line.world_size,
            "local_world_size": nodes_of(line.world_size)[1],
        }
        for line in lines
    ]
    answers = ask(validator(python, **settings), cases)
    ours = [
        path.script(swift_script(_by_hub_id(line) if number % 2 else line)).errors for number, line in enumerate(lines)
    ]
    return [
        Verdict(
            name=line.name,
            ours=refused,
            real=answer["error"],
            later=reasons(refused, NEWEST, LATER),
            machine=MACHINE,
            about={"argv": " ".join(line.argv), "devices": line.world_size},
        )
        for line, refused, answer in zip(lines, ours, answers, strict=True)
    ]


def _by_hub_id(line: Line) -> Line:
    """Return a command line that names the model by its hub id, as most people's do; ms-swift would download it."""
    args = Words(line.argv)
    args.set("--model", [f"Qwen/{Path(args.value('--model') or '').name}"])
    return dataclasses.replace(line, argv=tuple(args))

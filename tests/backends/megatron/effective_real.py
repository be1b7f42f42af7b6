"""What ms-swift 4.6.0's own classes change in the arguments of command lines, beside what our rules say."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends.megatron.launch import argv
from launcher.families.source import ModelConfigError
from launcher.mapping.backend import get_backend
from launcher.mapping.equivalence import canonical, default_of
from launcher.pipeline import judge
from tests.backends.effective import Compared, changed_by
from tests.backends.megatron import fuzzed, mutated
from tests.backends.megatron.jobs import NEWEST
from tests.backends.megatron.verdicts import case_of, validator
from tests.backends.mutated import Line, Mutations, Words, changed
from tests.backends.verdicts import ask

# Arguments whose last value is not a question of the command line, and whose it is.
ELSEWHERE: Mapping[str, str] = {
    "model_type": "what swift knows of the model's name and config.json",
    "template": "what swift knows of the model's name",
    "loss_scale": "+ignore_empty_think, where the model's template has a mode for thinking",
    "rope_scaling": "config.json's positions",
    "max_model_len": "config.json's positions",
    "output_dir": "the folder of the run: a number and the time",
    "tensorboard_dir": "below the folder of the run",
    "local_rank": "the process",
    "gradient_accumulation_fusion": "whether apex is installed",
    "use_hf": "the environment variable USE_HF",
    "freeze_parameters": "names of a multimodal model's modules",
    "trainable_parameters": "names of a multimodal model's modules",
}
# The same, where they are not written.
UNWRITTEN = {"torch_dtype": "config.json's numbers"}
# What needs other programs or skips what is compared.
_NOT_DRAWN = ("use_ray", "bridge_backend", "ignore_args_error", "load_args", "skip_megatron_init", "rlhf_type")
# What upstream's command lines do not reach, as words that are put in; MODEL is their model, `-` takes an argument out.
MOVES = (
    "--rlhf_type kto",
    "--rlhf_type kto --loss_type apo_zero_unpaired",
    "--rlhf_type rm",
    "--rlhf_type dpo",
    "--rlhf_type dpo --truncation_strategy left",
    "--rlhf_type gkd --teacher_model MODEL",
    "--rlhf_type gkd --teacher_model MODEL --tuner_type lora",
    "--rlhf_type gkd --teacher_model MODEL --num_generations 4 --calculate_per_token_loss false",
    "--rlhf_type grpo --reward_funcs soft_overlong --soft_cache_length 10",
    "--rlhf_type grpo --loss_type real --num_generations 1",
    "--rlhf_type grpo --advantage_estimator rloo",
    "--rlhf_type grpo --advantage_estimator reinforce_plus_plus",
    "--rlhf_type grpo --advantage_estimator rloo --kl_in_reward false",
    "--rlhf_type grpo --dataset_shuffle false",
    "--rlhf_type grpo --steps_per_generation 2",
    "--rlhf_type grpo --steps_per_generation - --generation_batch_size 256 --global_batch_size 128",
    "--rlhf_type grpo --steps_per_generation - --generation_batch_size -",
    "--rlhf_type gkd --teacher_model MODEL --steps_per_generation - --generation_batch_size 256",
    "--rlhf_type grpo --teacher_model MODEL --tuner_type lora",
    "--rlhf_type grpo --cosine_max_len 5",
    "--rlhf_type grpo --gym_env x",
    "--task_type seq_cls --num_labels 2",
    "--task_type seq_cls --num_labels 2 --problem_type multi_label_classification",
    "--task_type embedding",
    "--task_type generative_reranker --num_labels 2",
    "--num_labels 3",
    "--target_regex x",
    "--save_safetensors false",
    "--metric_for_best_model reward",
    "--metric_for_best_model acc --greater_is_better false",
    "--callbacks mine",
    "--report_to wandb swanlab",
    "--custom_register_path",
    "--eval_steps 3",
    "--packing true --packing_length 512",
    "--packing true --max_length 512",
    "--packing true --padding_free false",
    "--attention_backend unfused --padding_free true",
    "--streaming true --train_iters 10 --dataloader_num_workers 4",
    "--streaming true --train_iters 10 --dataloader_num_workers 0 --split_dataset_ratio 0.1",
    "--val_dataset v.jsonl --split_dataset_ratio 0.1",
    "--cached_dataset d",
    "--lr -",
    "--lr - --tuner_type lora",
    "--recompute_modules",
    "--recompute_modules --recompute_granularity selective",
    "--truncation_strategy -",
    "--truncation_strategy delete",
    "--eval_steps -",
    "--stream true",
    "--max_length - --packing true",
    "--lazy_tokenize false",
    "--tuner_type lora --merge_lora false",
    "--weight_decay_incr_style linear --start_weight_decay 0.1 --end_weight_decay 0.2",
    "--weight_decay 0.3",
    "--bf16 false",
    "--bf16 false --fp16 false",
    "--fp16 true --bf16 false",
    "--torch_dtype float16",
    "--torch_dtype float32",
    "--torch_dtype float32 --bf16 false --fp16 false",
    "--torch_dtype float16 --apply_query_key_layer_scaling false",
    "--apply_query_key_layer_scaling true --attention_softmax_in_fp32 false",
    "--main_grads_dtype bf16 --use_precision_aware_optimizer true",
    "--moe_layer_recompute true",
    "--moe_layer_recompute true --recompute_modules mlp",
    "--moe_layer_recompute true --recompute_granularity none",
    "--moe_expert_capacity_factor -1",
    "--moe_router_dtype none",
    "--moe_aux_loss_coeff 0.1",
    "--moe_router_load_balancing_type aux_loss seq_aux_loss --moe_aux_loss_coeff 0.1 0.1",
    "--mtp_num_layers 1",
    "--mtp_num_layers 2 --mtp_shared_weights true",
    "--expert_tensor_parallel_size 2 --tensor_model_parallel_size 2",
    "--virtual_pipeline_model_parallel_size 1",
    "--pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 2",
    "--pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 2 --overlap_p2p_comm false",
    "--pipeline_model_parallel_size 2 --virtual_pipeline_model_parallel_size 2 --batch_p2p_comm true",
    "--pipeline_model_parallel_size 2 --pipeline_model_parallel_layout Et*18|t*18L",
    "--pipeline_model_parallel_size 2 --pipeline_model_parallel_layout Et*12|t*12|t*12|t*12L",
    "--pipeline_model_parallel_size 2 --microbatch_group_size_per_vp_stage 4",
    "--optimizer muon",
    "--optimizer dist_muon",
    "--recompute_granularity none",
    "--freeze_vit false",
    "--vit_gradient_checkpointing true",
    "--response_prefix a\\nb",
    "--use_chat_template false",
    "--cp_comm_type a2a --context_parallel_size 2",
    '--megatron_extra_kwargs {"moe_grouped_gemm":false,"attention_dropout":0.1}',
    '--megatron_extra_kwargs {"mtp_num_layers":1}',
    '--megatron_extra_kwargs {"recompute_granularity":"full","recompute_method":"uniform","recompute_num_layers":1}',
    '--megatron_extra_kwargs {"apply_rope_fusion":true}',
    "--router_replay_mode R2",
    "--quant_method fp8",
    "--bnb_4bit_compute_dtype float16",
    "--language_model_only true",
    "--lora_dtype float32 --tuner_type lora",
    "--sequence_parallel true --tensor_model_parallel_size 1",
    "--sequence_parallel true --tensor_model_parallel_size 2",
    "--sequence_parallel_size 4",
    "--remove_unused_columns true",
    "--ref_adapters a",
    "--mcore_adapter a",
    "--use_megatron_fsdp true --use_distributed_optimizer false",
    "--fp8_format e4m3 --fp8_recipe blockwise",
    '--vllm_limit_mm_per_prompt {"image":1}',
    '--mrl_dims {"32":1.0}',
)


def lines(count: int, seed: int, folder: Path) -> list[Line]:
    """Return the bases with every one of `MOVES`, upstream's command lines with drawn changes, and those of jobs.

    Args:
        count: of command lines with drawn changes, and of jobs.
        folder: for the models' directories.
    """
    known, first = _known(folder), bases(folder)
    moves = ((name, move) for move in ("", *MOVES) for name in first if "--rlhf_type" not in move or "rlhf" in name)
    return [
        *(made(first, name, move) for name, move in moves),
        *changed(known, _wider(mutated.MUTATIONS), count, seed),
        *_of_jobs(count, seed, folder),
    ]


def bases(folder: Path) -> dict[str, Line]:
    """Return a command line of upstream for each command and each of the two models in the folder."""
    found: dict[str, Line] = {}
    for line in _known(folder):
        kind = "moe" if "A3B" in (Words(line.argv).value("--model") or "") else "dense"
        found.setdefault(f"{line.program[1]}-{kind}", line)
    return found


def _known(folder: Path) -> list[Line]:
    records = json.loads(Path(__file__).with_name("upstream_commands.json").read_text(encoding="utf-8"))
    return mutated.lines_of([each for each in records if each["version"] == NEWEST], folder)


def made(first: Mapping[str, Line], base: str, move: str) -> Line:
    """Return a base with a move; its name says both."""
    line = first[base]
    args, model = Words(line.argv), Words(line.argv).value("--model") or ""
    for flag, values in Words(move.split(" ")).items() if move else ():
        args.set(flag, None if values == ["-"] else [value.replace("MODEL", model) for value in values])
    # ms-swift 4.6.0 megatron_args.py:967
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"} if "fsdp" in move else {}
    return dataclasses.replace(line, name=f"{base} {move}", argv=tuple(args), env=env)


def _wider(mutations: Mutations) -> Mutations:
    """Return the mutations with every switch and choice of the catalogue."""
    values: dict[str, Sequence[str | None]] = {}
    for argument in get_backend("megatron").catalogue(NEWEST).arguments:
        if (argument.commands and "sft" not in argument.commands) or argument.name in _NOT_DRAWN:
            continue
        if argument.type == "bool":
            values[f"--{argument.name}"] = ("true", "false", None)
        elif argument.choices:
            values[f"--{argument.name}"] = (*map(str, argument.choices), None)
    return dataclasses.replace(mutations, values={**values, **mutations.values})


def _of_jobs(count: int, seed: int, folder: Path) -> Iterator[Line]:
    for name, job in fuzzed.jobs(count, seed):
        try:
            located, case = case_of(job, folder)
        except ModelConfigError:
            continue
        written = argv(judge(located, fixes=False).native)
        program = ("megatron", case["command"])
        yield Line(name=name, argv=(*written, *case["argv"]), world_size=case["world_size"], program=program)


def compare(lines: Sequence[Line], python: Path, **settings: Any) -> list[Compared]:
    """Return the command lines that ms-swift accepts, with what its classes and our rules change.

    Args:
        python: an interpreter with ms-swift 4.6.0.
    """
    cases = [
        {
            "name": "",
            "command": line.program[1],
            "argv": list(line.argv),
            "env": dict(line.env),
            "world_size": line.world_size,
            "local_world_size": min(8, line.world_size),
        }
        for line in lines
    ]
    program = validator(python, **settings)
    answers = ask(dataclasses.replace(program, command=(*program.command, "values")), cases)
    found = []
    for line, answer in zip(lines, answers, strict=True):
        if answer["error"] is None and (one := compared(line, answer["changed"])) is not None:
            found.append(one)
    return found


def compared(line: Line, real: Mapping[str, Sequence[Any]]) -> Compared | None:
    """Return an accepted command line's changes by ms-swift and by ours; None where it cannot be read."""
    known = changed_by(line, real, "megatron", NEWEST)
    if known is None:
        return None
    catalogue = get_backend("megatron").catalogue(NEWEST)
    found = tuple(
        each
        for each in known.found
        if not (each.dest in ELSEWHERE or (each.dest in UNWRITTEN and f"--{each.dest}" not in line.argv))
        # JSON that is not written only became an empty mapping, or the catalogue has what an absent argument is.
        and each.real not in ({}, [])
        and not (each.kind == "missed" and canonical(each.real) == canonical(default_of(each.dest, catalogue)))
    )
    dests = {each.dest for each in found}
    return dataclasses.replace(
        known, found=found, real={dest: pair for dest, pair in known.real.items() if dest in dests}
    )

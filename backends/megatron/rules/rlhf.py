"""Checks of ms-swift for preference training and RL: generation batch sizes, unsupported options."""

from backends.megatron.rules.view import FOUR, SwiftRule, View, declare

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_SIZES = ("generation_batch_size", "steps_per_generation", "global_batch_size", "num_generations")
_FIELDS = ("batch.global_batch_size", "batch.micro_batch_size", "cluster.nodes", "cluster.devices_per_node")


def _generated(v: View) -> tuple[int, int] | None:
    """Return the generation batch size and generations per prompt; None where the sizes contradict each other."""
    size, steps, batch = v.generation_batch_size, v.steps_per_generation, v.global_batch_size
    if size is not None and steps is not None:
        return (size, _generations(v)) if size == batch * steps else None
    return size if size is not None else batch * (steps or 1), _generations(v)


def _generations(v: View) -> int:
    return 1 if v.rlhf_type == "gkd" else v.num_generations or 1


def _size_fault(v: View) -> str | None:
    size, steps, batch = v.generation_batch_size, v.steps_per_generation, v.global_batch_size
    if size is not None and steps is not None and size != batch * steps:
        return f"generation_batch_size {size} is not global_batch_size {batch} × steps_per_generation {steps}"
    if size is not None and size % batch:
        return f"generation_batch_size {size} is not a multiple of global_batch_size {batch}"
    if steps is not None and steps <= 0:
        return f"steps_per_generation {steps} must be above 0"
    generated = _generated(v)
    if generated is not None and generated[0] % generated[1]:
        return f"generation_batch_size {generated[0]} is not a multiple of num_generations {generated[1]}"
    return None


def _prompt_fault(v: View) -> str | None:
    generated, dp = _generated(v), v.dp
    if generated is None or dp is None or _size_fault(v):
        return None
    size, generations = generated
    prompts, micro = size // generations, v.micro_batch_size
    if prompts % dp:
        return f"{prompts} prompts ({size} samples / {generations} generations) do not spread over dp {dp}"
    if prompts // dp < 1 or (prompts // dp) % micro:
        return f"{prompts // dp} prompts of a data-parallel rank are not a multiple of micro_batch_size {micro}"
    if size // v.world < 1:
        return f"{size} generated samples are fewer than the {v.world} devices"
    return None


def _grpo(v: View) -> bool:
    return bool(v.rlhf_type == "grpo" and v.job.task.type == "grpo")


def _generates(v: View) -> bool:
    return _grpo(v) or bool(v.rlhf_type == "gkd" and v.job.task.type == "gkd")


def _lacks(option: str, what: str, since: str | None = "3.7", until: str | None = None) -> SwiftRule:
    return SwiftRule(
        id=f"SW-GRPO-{what}",
        doc=f"GRPO under Megatron does not have {option} yet.",
        source=f"{_ARGS}:393-400; 3.12.6 :199-208",
        flags=(option,),
        fields=("task.type",),
        when=lambda v: _grpo(v) and (getattr(v, option) or 0) > (1 if option == "num_iterations" else 0),
        say=f"GRPO under Megatron does not support {option} {{{option}}}",
        since=since,
        until=until,
    )


RLHF = (
    _lacks("async_generate", "ASYNC"),
    _lacks("sync_ref_model", "SYNC-REF"),
    _lacks("num_iterations", "ITERATIONS"),
    SwiftRule(
        id="SW-GRPO-SIZES",
        doc="Generated samples are whole global batches, and hold whole groups of generations.",
        source=f"{_ARGS}:260-291",
        flags=_SIZES,
        fields=_FIELDS,
        when=lambda v: _generates(v) and _size_fault(v),
        say=lambda v: str(_size_fault(v)),
        since="4.6",
    ),
    SwiftRule(
        id="SW-GRPO-SIZES-TWICE",
        doc="The number of generated samples is given once.",
        source="ms-swift 3.12.6 megatron_args.py:217, 4.0.0 :242",
        flags=_SIZES[:2],
        fields=("task.type",),
        when=lambda v: _grpo(v) and v.generation_batch_size is not None and v.steps_per_generation is not None,
        say="generation_batch_size and steps_per_generation both given: keep one",
        since="3.7",
        until="4.5.99",
    ),
    SwiftRule(
        id="SW-GRPO-PROMPTS",
        doc="Prompts spread evenly over data-parallel ranks, in whole micro-batches.",
        source=f"{_ARGS}:307-329; 3.12.6 :228-255",
        flags=(*_SIZES, "micro_batch_size"),
        fields=_FIELDS,
        when=lambda v: _generates(v) and _prompt_fault(v),
        say=lambda v: str(_prompt_fault(v)),
        since="3.7",
    ),
    SwiftRule(
        id="SW-GRPO-VLLM",
        doc="GRPO under Megatron generates with vLLM only.",
        source=f"{_ARGS}:464; 3.12.6 :280",
        flags=("use_vllm",),
        fields=("task.type",),
        when=lambda v: _grpo(v) and v.use_vllm is False and not v.use_ray,
        say="GRPO under Megatron needs use_vllm true",
        since="3.7",
    ),
    SwiftRule(
        id="SW-GRPO-TRUNCATION",
        doc="Prompts are cut from the left, or dropped.",
        source=f"{_ARGS}:413; 3.12.6 :263",
        flags=("truncation_strategy",),
        fields=("task.type",),
        when=lambda v: _grpo(v) and v.truncation_strategy not in (None, "left", "delete"),
        say="GRPO needs truncation_strategy left or delete, not {truncation_strategy}",
        since="3.7",
    ),
    SwiftRule(
        id="SW-GRPO-OVERLONG",
        doc="The soft punishment of long answers needs the length of its ramp.",
        source=f"{_ARGS}:455; 3.12.6 :275",
        flags=("reward_funcs", "soft_cache_length"),
        fields=("task.type",),
        when=lambda v: _grpo(v) and "soft_overlong" in v.many("reward_funcs") and v.soft_cache_length is None,
        say="reward soft_overlong needs soft_cache_length",
        since="3.7",
    ),
    SwiftRule(
        id="SW-GRPO-REAL",
        doc="The REAL loss compares all generations of a prompt within one micro-batch.",
        source=f"{_ARGS}:401",
        flags=("loss_type", "micro_batch_size", "num_generations"),
        when=lambda v: _grpo(v) and v.loss_type == "real" and v.micro_batch_size % (v.num_generations or 1),
        say="loss real: micro_batch_size {micro_batch_size} is not a multiple of num_generations {num_generations}",
        since="4.6",
    ),
    SwiftRule(
        id="SW-GRPO-SHUFFLE",
        doc="Prompts of GRPO are shuffled.",
        source="ms-swift 3.12.6 megatron_args.py:204, 4.0.0 :229",
        flags=("dataset_shuffle",),
        when=lambda v: _grpo(v) and v.dataset_shuffle is False,
        say="GRPO does not support data.shuffle=false in this version",
        since="3.7",
        until="4.5.99",
    ),
    SwiftRule(
        id="SW-GKD-SEQUENCE",
        doc="Distillation from sequences of the teacher is not written yet.",
        source=f"{_ARGS}:247",
        flags=("seq_kd",),
        fields=("task.type",),
        when=lambda v: v.rlhf_type == "gkd" and v.job.task.type == "gkd" and v.seq_kd,
        say="GKD under Megatron does not support seq_kd",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-GKD-TOPK",
        doc="A teacher behind a server returns the most probable tokens only: their number must be given.",
        source=f"{_ARGS}:239-245; 4.0.0 :215-219",
        flags=("gkd_logits_topk", "teacher_model_server"),
        fields=("task.type",),
        when=lambda v: (
            v.rlhf_type == "gkd"
            and v.job.task.type == "gkd"
            and (
                (v.teacher_model_server is not None and v.gkd_logits_topk is None)
                or (v.gkd_logits_topk is not None and v.gkd_logits_topk <= 0)
            )
        ),
        say="gkd_logits_topk must be above 0, and is needed with teacher_model_server",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-GKD-TEACHER",
        doc="Distillation needs one teacher: a model or a server.",
        source="ms-swift 4.0.0 megatron_args.py:207-210",
        flags=("teacher_model", "teacher_model_server"),
        fields=("task.type",),
        when=lambda v: (
            v.rlhf_type == "gkd"
            and v.job.task.type == "gkd"
            and (v.teacher_model is None) == (v.teacher_model_server is None)
        ),
        say="GKD needs teacher_model or teacher_model_server, one of them",
        since=FOUR,
        until="4.5.99",
    ),
)

declare(*RLHF)

"""Checks of ms-swift for preference training and RL: generation batch sizes, unsupported options."""

from backends.megatron.rules.terms import BACKENDS, FOUR, data_parallel
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_SIZES = ("generation_batch_size", "steps_per_generation", "global_batch_size", "num_generations")
_FIELDS = ("batch.global_batch_size", "batch.micro_batch_size", "cluster.nodes", "cluster.devices_per_node")


def _generated(facts: RuleContext) -> tuple[int, int] | None:
    """Return the generation batch size and generations per prompt; None where the sizes contradict each other."""
    size, steps, batch = facts["generation_batch_size"], facts["steps_per_generation"], facts["global_batch_size"]
    if size is not None and steps is not None:
        return (size, _generations(facts)) if size == batch * steps else None
    return size if size is not None else batch * (steps or 1), _generations(facts)


def _generations(facts: RuleContext) -> int:
    return 1 if facts["rlhf_type"] == "gkd" else facts["num_generations"] or 1


def _size_fault(facts: RuleContext) -> str | None:
    size, steps, batch = facts["generation_batch_size"], facts["steps_per_generation"], facts["global_batch_size"]
    if size is not None and steps is not None and size != batch * steps:
        return f"generation_batch_size {size} is not global_batch_size {batch} × steps_per_generation {steps}"
    if size is not None and size % batch:
        return f"generation_batch_size {size} is not a multiple of global_batch_size {batch}"
    if steps is not None and steps <= 0:
        return f"steps_per_generation {steps} must be above 0"
    generated = _generated(facts)
    if generated is not None and generated[0] % generated[1]:
        return f"generation_batch_size {generated[0]} is not a multiple of num_generations {generated[1]}"
    return None


def _prompt_fault(facts: RuleContext) -> str | None:
    generated, dp = _generated(facts), data_parallel(facts)
    if generated is None or dp is None or _size_fault(facts):
        return None
    size, generations = generated
    prompts, micro = size // generations, facts["micro_batch_size"]
    if prompts % dp:
        return f"{prompts} prompts ({size} samples / {generations} generations) do not spread over dp {dp}"
    if prompts // dp < 1 or (prompts // dp) % micro:
        return f"{prompts // dp} prompts of a data-parallel rank are not a multiple of micro_batch_size {micro}"
    if size // facts.job.cluster.world_size < 1:
        return f"{size} generated samples are fewer than the {facts.job.cluster.world_size} devices"
    return None


def _grpo(facts: RuleContext) -> bool:
    return bool(facts["rlhf_type"] == "grpo" and facts.job.task.type == "grpo")


def _generates(facts: RuleContext) -> bool:
    return _grpo(facts) or bool(facts["rlhf_type"] == "gkd" and facts.job.task.type == "gkd")


def _lacks(option: str, what: str, since: str | None = "3.7", until: str | None = None) -> Rule:
    return Rule(
        id=f"SW-GRPO-{what}",
        doc=f"GRPO under Megatron does not have {option} yet.",
        source=f"{_ARGS}:393-400; 3.12.6 :199-208",
        flags=(option,),
        fields=("task.type",),
        when="rlhf_type=grpo & job.task.type=grpo",
        check=lambda facts: (facts[option] or 0) > (1 if option == "num_iterations" else 0),
        message=f"GRPO under Megatron does not support {option} {{{option}}}",
        since=since,
        until=until,
    )


RLHF = (
    _lacks("async_generate", "ASYNC"),
    _lacks("sync_ref_model", "SYNC-REF"),
    _lacks("num_iterations", "ITERATIONS"),
    Rule(
        id="SW-GRPO-SIZES",
        doc="Generated samples are whole global batches, and hold whole groups of generations.",
        source=f"{_ARGS}:260-291",
        flags=_SIZES,
        fields=_FIELDS,
        check=lambda facts: _generates(facts) and _size_fault(facts),
        reads="rlhf_type job.task.type",
        since="4.6",
    ),
    Rule(
        id="SW-GRPO-SIZES-TWICE",
        doc="The number of generated samples is given once.",
        source="ms-swift 3.12.6 megatron_args.py:217, 4.0.0 :242",
        flags=_SIZES[:2],
        fields=("task.type",),
        when="rlhf_type=grpo & job.task.type=grpo & generation_batch_size!=None & steps_per_generation!=None",
        message="generation_batch_size and steps_per_generation both given: keep one",
        since="3.7",
        until="4.5.99",
    ),
    Rule(
        id="SW-GRPO-PROMPTS",
        doc="Prompts spread evenly over data-parallel ranks, in whole micro-batches.",
        source=f"{_ARGS}:307-329; 3.12.6 :228-255",
        flags=(*_SIZES, "micro_batch_size"),
        fields=_FIELDS,
        check=lambda facts: _generates(facts) and _prompt_fault(facts),
        reads="rlhf_type job.task.type job.cluster.world_size context_parallel_size pipeline_model_parallel_size "
        "tensor_model_parallel_size",
        since="3.7",
    ),
    Rule(
        id="SW-GRPO-VLLM",
        doc="GRPO under Megatron generates with vLLM only.",
        source=f"{_ARGS}:464; 3.12.6 :280",
        flags=("use_vllm",),
        fields=("task.type",),
        when="rlhf_type=grpo & job.task.type=grpo & use_vllm=False & !use_ray",
        message="GRPO under Megatron needs use_vllm true",
        since="3.7",
    ),
    Rule(
        id="SW-GRPO-TRUNCATION",
        doc="Prompts are cut from the left, or dropped.",
        source=f"{_ARGS}:413; 3.12.6 :263",
        flags=("truncation_strategy",),
        fields=("task.type",),
        when="rlhf_type=grpo & job.task.type=grpo & truncation_strategy!=None|left|delete",
        message="GRPO needs truncation_strategy left or delete, not {truncation_strategy}",
        since="3.7",
    ),
    Rule(
        id="SW-GRPO-OVERLONG",
        doc="The soft punishment of long answers needs the length of its ramp.",
        source=f"{_ARGS}:455; 3.12.6 :275",
        flags=("reward_funcs", "soft_cache_length"),
        fields=("task.type",),
        when="rlhf_type=grpo & job.task.type=grpo & reward_funcs~soft_overlong & soft_cache_length=None",
        message="reward soft_overlong needs soft_cache_length",
        since="3.7",
    ),
    Rule(
        id="SW-GRPO-REAL",
        doc="The REAL loss compares all generations of a prompt within one micro-batch.",
        source=f"{_ARGS}:401",
        flags=("loss_type", "micro_batch_size", "num_generations"),
        when="rlhf_type=grpo & job.task.type=grpo & loss_type=real",
        check=lambda facts: facts["micro_batch_size"] % (facts["num_generations"] or 1),
        message="loss real: micro_batch_size {micro_batch_size} is not a multiple of num_generations {num_generations}",
        since="4.6",
    ),
    Rule(
        id="SW-GRPO-SHUFFLE",
        doc="Prompts of GRPO are shuffled.",
        source="ms-swift 3.12.6 megatron_args.py:204, 4.0.0 :229",
        flags=("dataset_shuffle",),
        when="rlhf_type=grpo & job.task.type=grpo & dataset_shuffle=False",
        message="GRPO does not support data.shuffle=false in this version",
        since="3.7",
        until="4.5.99",
    ),
    Rule(
        id="SW-GKD-SEQUENCE",
        doc="Distillation from sequences of the teacher is not written yet.",
        source=f"{_ARGS}:247",
        flags=("seq_kd",),
        fields=("task.type",),
        when="rlhf_type=gkd & job.task.type=gkd & seq_kd",
        message="GKD under Megatron does not support seq_kd",
        since=FOUR,
    ),
    Rule(
        id="SW-GKD-TOPK",
        doc="A teacher behind a server returns the most probable tokens only: their number must be given.",
        source=f"{_ARGS}:239-245; 4.0.0 :215-219",
        flags=("gkd_logits_topk", "teacher_model_server"),
        fields=("task.type",),
        when="rlhf_type=gkd & job.task.type=gkd",
        check=lambda facts: (
            (facts["teacher_model_server"] is not None and facts["gkd_logits_topk"] is None)
            or (facts["gkd_logits_topk"] is not None and facts["gkd_logits_topk"] <= 0)
        ),
        message="gkd_logits_topk must be above 0, and is needed with teacher_model_server",
        since=FOUR,
    ),
    Rule(
        id="SW-GKD-TEACHER",
        doc="Distillation needs one teacher: a model or a server.",
        source="ms-swift 4.0.0 megatron_args.py:207-210",
        flags=("teacher_model", "teacher_model_server"),
        fields=("task.type",),
        when="rlhf_type=gkd & job.task.type=gkd",
        check=lambda facts: (facts["teacher_model"] is None) == (facts["teacher_model_server"] is None),
        message="GKD needs teacher_model or teacher_model_server, one of them",
        since=FOUR,
        until="4.5.99",
    ),
)

declare(RLHF, backends=BACKENDS)

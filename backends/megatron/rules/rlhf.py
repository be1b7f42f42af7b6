"""Checks of ms-swift for preference training and RL: generation batch sizes, unsupported options."""

from backends.megatron.rules.terms import BACKENDS, FOUR, data_parallel
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import checked, declare, never

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_SIZES = ("generation_batch_size", "steps_per_generation", "global_batch_size", "num_generations")
_FIELDS = ("batch.global_batch_size", "batch.micro_batch_size", "cluster.nodes", "cluster.devices_per_node")


def _generated(context: RuleContext) -> tuple[int, int] | None:
    """Return the generation batch size and generations per prompt; None where the sizes contradict each other."""
    size, steps, batch = context["generation_batch_size"], context["steps_per_generation"], context["global_batch_size"]
    if size is not None and steps is not None:
        return (size, _generations(context)) if size == batch * steps else None
    return size if size is not None else batch * (steps or 1), _generations(context)


def _generations(context: RuleContext) -> int:
    return 1 if context["rlhf_type"] == "gkd" else context["num_generations"] or 1


def _size_fault(context: RuleContext) -> str | None:
    size, steps, batch = context["generation_batch_size"], context["steps_per_generation"], context["global_batch_size"]
    if size is not None and steps is not None and size != batch * steps:
        return f"generation_batch_size {size} is not global_batch_size {batch} × steps_per_generation {steps}"
    if size is not None and size % batch:
        return f"generation_batch_size {size} is not a multiple of global_batch_size {batch}"
    if steps is not None and steps <= 0:
        return f"steps_per_generation {steps} must be above 0"
    generated = _generated(context)
    if generated is not None and generated[0] % generated[1]:
        return f"generation_batch_size {generated[0]} is not a multiple of num_generations {generated[1]}"
    return None


def _prompt_fault(context: RuleContext) -> str | None:
    generated, dp = _generated(context), data_parallel(context)
    if generated is None or dp is None or _size_fault(context):
        return None
    size, generations = generated
    prompts, micro = size // generations, context["micro_batch_size"]
    if prompts % dp:
        return f"{prompts} prompts ({size} samples / {generations} generations) are not divisible by dp {dp}"
    if prompts // dp < 1 or (prompts // dp) % micro:
        return f"{prompts // dp} prompts of a data-parallel rank are not a multiple of micro_batch_size {micro}"
    if size // context.job.cluster.world_size < 1:
        return f"{size} generated samples are fewer than the {context.job.cluster.world_size} devices"
    return None


def _grpo(context: RuleContext) -> bool:
    return bool(context["rlhf_type"] == "grpo" and context.job.task.type == "grpo")


def _generates(context: RuleContext) -> bool:
    return _grpo(context) or bool(context["rlhf_type"] == "gkd" and context.job.task.type == "gkd")


def _lacks(option: str, what: str, since: str | None = "3.7", until: str | None = None) -> Rule:
    return Rule(
        id=f"SW-GRPO-{what}",
        doc=f"GRPO under Megatron does not support {option} yet.",
        source=f"{_ARGS}:393-400; 3.12.6 :199-208",
        flags=(option,),
        fields=("task.type",),
        when="rlhf_type=grpo & job.task.type=grpo",
        check=lambda context: (context[option] or 0) > (1 if option == "num_iterations" else 0),
        message=f"GRPO under Megatron does not support {option} {{{option}}}",
        since=since,
        until=until,
    )


# fmt: off
RLHF = (
    Rule(
        id="SW-DPO-LOSS",
        when="rlhf_type=dpo & loss_type!=None|sigmoid",
        doc="DPO under Megatron computes the sigmoid loss whatever the type: it calls dpo_loss without one.",
        source="ms-swift 4.6.0 megatron/trainers/dpo_trainer.py:43; rlhf_trainers/dpo_trainer.py:234; measured: "
        "docs/parity.md",
        message="loss_type {loss_type} is not read by DPO under Megatron, which computes the sigmoid loss",
        flags=("loss_type",),
        fields=("task.loss_type",),
        since="4.1",
        stricter=True,
        reason="it trains, with the sigmoid loss",
    ),
    _lacks("async_generate", "ASYNC"),
    _lacks("sync_ref_model", "SYNC-REF"),
    _lacks("num_iterations", "ITERATIONS"),
    checked("SW-GRPO-SIZES", lambda context: _generates(context) and _size_fault(context),
            "Generated samples are a multiple of the global batch and of the group size.", f"{_ARGS}:260-291",
            since="4.2", flags=_SIZES, fields=_FIELDS, reads="rlhf_type job.task.type"),
    never("SW-GRPO-SIZES-TWICE",
          "rlhf_type=grpo & job.task.type=grpo & generation_batch_size!=None & steps_per_generation!=None",
          "The number of generated samples is given once.", "ms-swift 3.12.6 megatron_args.py:217, 4.0.0 :242",
          since="3.7", until="4.1.99", flags=_SIZES[:2], fields=("task.type",),
          message="generation_batch_size and steps_per_generation are both set: keep one"),
    checked("SW-GRPO-PROMPTS", lambda context: _generates(context) and _prompt_fault(context),
            "Prompts spread evenly over data-parallel ranks, in whole micro-batches.",
            f"{_ARGS}:307-329; 3.12.6 :228-255", since="3.7", flags=(*_SIZES, "micro_batch_size"), fields=_FIELDS,
            reads="rlhf_type job.task.type job.cluster.world_size context_parallel_size pipeline_model_parallel_size "
            "tensor_model_parallel_size"),
    never("SW-GRPO-VLLM", "rlhf_type=grpo & job.task.type=grpo & use_vllm=False & !use_ray",
          "GRPO under Megatron generates with vLLM only.", f"{_ARGS}:464; 3.12.6 :280", since="3.7",
          flags=("use_vllm",), fields=("task.type",),
          message="GRPO under Megatron needs use_vllm true"),
    never("SW-GRPO-TRUNCATION", "rlhf_type=grpo & job.task.type=grpo & truncation_strategy!=None|left|delete",
          "Prompts are cut from the left, or dropped.", f"{_ARGS}:413; 3.12.6 :263", since="3.7",
          flags=("truncation_strategy",), fields=("task.type",),
          message="GRPO needs truncation_strategy left or delete, not {truncation_strategy}"),
    never("SW-GRPO-OVERLONG",
          "rlhf_type=grpo & job.task.type=grpo & reward_funcs~soft_overlong & soft_cache_length=None",
          "The soft punishment of long answers needs the length of its ramp.", f"{_ARGS}:455; 3.12.6 :275", since="3.7",
          flags=("reward_funcs", "soft_cache_length"), fields=("task.type",),
          message="reward soft_overlong needs soft_cache_length"),
    checked("SW-GRPO-REAL", lambda context: context["micro_batch_size"] % (context["num_generations"] or 1),
            "The REAL loss compares all generations of a prompt within one micro-batch.", f"{_ARGS}:401",
            when="rlhf_type=grpo & job.task.type=grpo & loss_type=real", since="4.2",
            flags=("loss_type", "micro_batch_size", "num_generations"),
            message="loss real: micro_batch_size {micro_batch_size} is not a multiple of num_generations "
            "{num_generations}"),
    never("SW-GRPO-SHUFFLE", "rlhf_type=grpo & job.task.type=grpo & dataset_shuffle=False",
          "Prompts of GRPO are shuffled.", "ms-swift 3.12.6 megatron_args.py:204, 4.0.0 :229", since="3.7",
          until="4.1.99", flags=("dataset_shuffle",),
          message="GRPO does not support data.shuffle=false in this version"),
    never("SW-GKD-SEQUENCE", "rlhf_type=gkd & job.task.type=gkd & seq_kd",
          "Distillation from sequences of the teacher is not implemented.", f"{_ARGS}:247", since=FOUR,
          flags=("seq_kd",), fields=("task.type",),
          message="GKD under Megatron does not support seq_kd"),
    Rule(
        id="SW-GKD-TOPK",
        doc="A teacher behind a server returns the most probable tokens only: their number must be given.",
        source=f"{_ARGS}:239-245; 4.0.0 :215-219",
        flags=("gkd_logits_topk", "teacher_model_server"),
        fields=("task.type",),
        when="rlhf_type=gkd & job.task.type=gkd",
        check=lambda context: (
            (context["teacher_model_server"] is not None and context["gkd_logits_topk"] is None)
            or (context["gkd_logits_topk"] is not None and context["gkd_logits_topk"] <= 0)
        ),
        message="teacher_model_server needs gkd_logits_topk, and gkd_logits_topk must be above 0",
        since=FOUR,
    ),
    checked("SW-GKD-TEACHER",
            lambda context: (context["teacher_model"] is None) == (context["teacher_model_server"] is None),
            "Distillation needs one teacher: a model or a server.", "ms-swift 4.0.0 megatron_args.py:207-210",
            when="rlhf_type=gkd & job.task.type=gkd", since=FOUR, until="4.0.99",
            flags=("teacher_model", "teacher_model_server"), fields=("task.type",),
            message="GKD needs exactly one of teacher_model and teacher_model_server"),
    never("SW-GKD-TEACHERS", "rlhf_type=gkd & job.task.type=gkd & teacher_model!=None & teacher_model_server!=None",
          "The teacher is a model or a server; without either it is the student itself.", f"{_ARGS}:351", since="4.1",
          flags=("teacher_model", "teacher_model_server"), fields=("task.type",),
          message="GKD takes teacher_model or teacher_model_server, not both"),
)
# fmt: on

declare(RLHF, backends=BACKENDS)

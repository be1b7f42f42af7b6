"""Rows for the task type, and the post-training that Megatron-LM lacks."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import BEFORE_0_13
from launcher.job import Job, Value, field_paths
from launcher.job.task import PREFERENCE_OPTIONS
from launcher.mapping.rows import Gap, Row, Unsupported, computed


def task() -> tuple[Row, ...]:
    """Return the rows of the task type."""
    return (
        computed(
            ("task.type",),
            ("sft",),
            lambda job: (("sft", True),) if _task(job, ("pretrain", "sft")) == "sft" else (),
            lambda view: {"task.type": "sft"} if view.take("sft", False) else {"task.type": "pretrain"},
            since="0.13",
            note="--sft reads chats from JSONL instead of token files (megatron/training/datasets/sft_dataset.py).",
        ),
        computed(
            ("task.type",),
            (),
            _only_pretrain,
            lambda view: {"task.type": "pretrain"},
            until=BEFORE_0_13,
        ),
    )


def _only_pretrain(job: Job) -> Iterable[tuple[str, Value]]:
    _task(job, ("pretrain",))
    return ()


def _task(job: Job, known: tuple[str, ...]) -> str:
    if job.task.type not in known:
        raise Unsupported(
            "task.type",
            f"its trainers are {' and '.join(known)}",
            tuple(f"task.type={name}" for name in known),
        )
    return job.task.type


UNSUPPORTED: Mapping[str, Gap] = {
    **{
        # With a preference task, task.type is the error; with other tasks they have no effect (SENSE-TASK).
        f"task.{name}": Gap(why="Megatron-LM has no preference training", matters=lambda job: False)
        for name in PREFERENCE_OPTIONS
    },
    "task.reward_models": Gap(why="Megatron-LM has no reinforcement learning", works=("task.reward_models=[]",)),
    "lora.rank": Gap(why="Megatron-LM trains all parameters", works=("lora.rank=null",)),
    **{
        path: Gap(
            why="Megatron-LM has no LoRA", works=("lora.rank=null",), matters=lambda job: job.lora.rank is not None
        )
        for path in field_paths()
        if path.startswith("lora.") and path != "lora.rank"
    },
}

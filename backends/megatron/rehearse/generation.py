"""Sizes, rewards and teacher of a rehearsed job whose trainer generates answers: GRPO and GKD."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from backends.megatron.families import ids
from backends.megatron.launch_model import draw_other_weights
from backends.megatron.rehearse.refusal import refused
from launcher.job import Job, Origin, Value, output_dir, with_values
from launcher.plan import LaunchPlan
from launcher.rehearse.native import is_installed

TASKS = ("grpo", "gkd")
PLUGIN = Path(__file__).parent / "letters.py"
REWARD = "rehearsal_letters"
"""The reward that the plugin registers."""
NOTE = (
    "vLLM is replaced: answers are drawn by transformers' generate, in the trainer's processes, from the weights that "
    "it exports before each generation; ms-swift's engine, rewards, advantages, loss and export are its own"
)
_ABSENT: Mapping[str, tuple[Callable[[Any], bool], str, str]] = {
    "vllm_mode": (lambda value: value == "server", "the server is another process, on devices of its own", "colocate"),
    "vllm_enable_lora": (bool, "the stand-in for vLLM has no adapters beside the weights", "false"),
    "structured_outputs_regex": (bool, "the stand-in for vLLM imposes no form on answers", "null"),
    "teacher_model_server": (bool, "the server has a model of another size, and would be asked in earnest", "null"),
}
"""Arguments that a rehearsal cannot follow: the values that it cannot, why, and one that it can."""
_ORIGIN = Origin(kind="derived", where="rehearsal")
_ANSWER, _GENERATIONS, _STEPS, _SAMPLES = 32, 4, 2, 2
_STOPS = ".,;:!?-0123456789"
_MATHS, _READS_FORMULAS = "math-verify", ("accuracy", "cosine")
_DEFAULT_GENERATIONS = 8  # ms-swift 4.6.0 megatron/arguments/megatron_args.py:76


def adapt_job(job: Job, version: str) -> tuple[Job, tuple[str, ...]]:
    """Return the job as its answers can be generated here, and a note for every difference.

    Raises:
        RehearsalRefused: the job asks for what the stand-in for vLLM lacks.
    """
    if job.task.type not in TASKS:
        return job, ()
    args = dict(job.backend.args)
    for name, (is_absent, why, works) in _ABSENT.items():
        if is_absent(args.get(name)):
            raise refused(f"backend.args.{name}", f"{name}: {why}", (f"+backend.args.{name}={works}",))
    if not job.rehearse.shrink:
        return job, (NOTE, *_formulas(job))
    batch = job.batch.global_batch_size
    changes = dict(_sizes(job, version))
    small = {name: value for name, value in changes.items() if value is not None}
    size = _batch(job, int(small.get("num_generations", 1)))
    args = {name: value for name, value in {**args, **small}.items() if name not in changes or name in small}
    notes = [f"shrunk: batch.global_batch_size {batch} → {size}, one group of answers or more for each rank"]
    notes += [
        f"shrunk: {name} {_shown(job.backend.passthrough.get(name))} → {_shown(value)}"
        for name, value in changes.items()
    ]
    if job.task.type == "grpo":
        args |= {
            "reward_funcs": (*_listed(args.get("reward_funcs")), REWARD),
            "external_plugins": (*_listed(args.get("external_plugins")), str(PLUGIN)),
        }
        if "reward_weights" in args:
            args["reward_weights"] = (*_listed(args["reward_weights"]), 1.0)
        notes.append(
            f"reward {REWARD} is added, the share of letters in an answer: random weights earn nothing from "
            "the others, and equal rewards train nothing"
        )
    args["stop_words"] = (*_listed(args.get("stop_words")), *_STOPS)
    notes.append(f"stop_words {' '.join(_STOPS)} are added: random weights would hardly ever end an answer")
    if "teacher_model" in args:
        notes.append(f"teacher_model {job.backend.args['teacher_model']}: random weights of the shrunken model's size")
    values: dict[str, Value] = {"batch.global_batch_size": size, "backend.args": args}
    return with_values(job, values, _ORIGIN), (NOTE, *_formulas(job), *notes)


def adapt_plan(plan: LaunchPlan, job: Job) -> LaunchPlan:
    """Return the plan with a command that draws the weights of a shrunken job's teacher."""
    if job.task.type not in TASKS or not job.rehearse.shrink or "teacher_model" not in job.backend.passthrough:
        return plan
    return dataclasses.replace(plan, prepare=(*plan.prepare, draw_other_weights(job, _teacher(job))))


def _sizes(job: Job, version: str) -> Iterator[tuple[str, Any]]:
    """Yield the passed-through arguments of a shrunken job; None: it has none."""
    args = job.backend.args
    answer = min(int(args.get("max_completion_length", _ANSWER)), _ANSWER)
    yield "max_completion_length", answer
    if "vllm_max_model_len" in args:
        yield "vllm_max_model_len", (job.batch.seq_length or 0) + answer
    if int(args.get("vllm_tensor_parallel_size", 1)) > 1:
        yield "vllm_tensor_parallel_size", math.gcd(int(args["vllm_tensor_parallel_size"]), job.cluster.world_size)
    if job.task.type == "grpo":
        yield "num_generations", min(int(args.get("num_generations", _DEFAULT_GENERATIONS)), _GENERATIONS)
    batch, size, steps = (
        job.batch.global_batch_size,
        args.get("generation_batch_size"),
        args.get("steps_per_generation"),
    )
    if size is not None:
        yield "generation_batch_size", None
    if size is not None or (steps is not None and int(steps) > _STEPS):
        many = int(steps or 0) > 1 or (size is not None and int(size) > (batch or 0))
        yield "steps_per_generation", _STEPS if many else 1
    if "teacher_model" in args:
        yield "teacher_model", _teacher(job)
        yield "teacher_model_type", ids(version).get(job.model.model_type or "")


def _batch(job: Job, generations: int) -> int:
    """Return a number of answers that gives every data-parallel rank prompts, and every rank as many answers."""
    prompts = max(_SAMPLES, job.parallel.dp or 1)
    return math.lcm(prompts * generations, job.cluster.world_size)


def _teacher(job: Job) -> str:
    folder = f"{output_dir(job)}/teacher"
    return folder if folder.startswith(("/", "./", "../", "~")) else f"./{folder}"


def _formulas(job: Job) -> tuple[str, ...]:
    """Return a note where a reward's package is not installed."""
    needs = [name for name in _listed(job.backend.passthrough.get("reward_funcs")) if name in _READS_FORMULAS]
    if not needs or is_installed(_MATHS, job.cluster.python):
        return ()
    return (f"{_MATHS} is not installed: reward {' and '.join(needs)} finds no formula in any text",)


def _listed(value: Any) -> tuple[Any, ...]:
    return () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)

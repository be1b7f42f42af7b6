"""Shrinks and trains each recipe on the embedded trainer with the first backend that takes it, or by a backend itself.

That is ms-swift, and, where its checkouts are named, MindSpeed-LLM. Their interpreters are those of the tests
(tests/rehearse/native/environments.py), made where there are none.
"""

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

from launcher.compose import compose
from launcher.job.shipped import shipped
from launcher.mapping.backend import backend_names, get_backend
from launcher.rehearse.native import missing
from tests.rehearse.native.environments import mindspeed_python, swift_python
from tools.bench.rehearsal_runs import FAILED, NOT_REHEARSED, TRAINED, NoTraining, Rehearsals, Result, Training

ITERATIONS = 3
NATIVE = "megatron"
NATIVES: Mapping[str, Callable[[], Path]] = {NATIVE: swift_python, "mindspeed": mindspeed_python}
"""Backends that train what the embedded trainer refuses; the first is on PyPI, and most recipes are of its tasks."""
# Layouts of up to 4 processes on any machine: with more cores a rehearsal keeps more.
_SHRUNKEN = (
    "rehearse.shrink=true",
    "rehearse.max_processes=4",
    f"schedule.train_iters={ITERATIONS}",
    "logging.interval=1",
)
NATIVE_RECIPES = (
    "glm4_7_flash_grpo",
    "gpt_oss_120b",
    "kimi_k2",
    "minimax_m2",
    "olmoe_1b_7b",
    "qwen2_5_7b_kto",
    "qwen3_8b_gkd",
    "qwen3_moe_grpo",
    "qwen3_moe_grpo_lora",
    "qwen3_moe_kto_lora",
    "qwen3_moe_rm_lora",
    "qwen3_next",
    "qwen3_5_27b_sft",
    "qwen3_5_moe_32k",
    "qwen3_5_moe_lora",
)
"""Recipes that it trains so."""
LEFT_OUT: Mapping[str, str] = {"llama3_70b_fp8": "precision.fp8_format"}
"""Recipes that are rehearsed without a number format: its kernels need a device."""


def recipes() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in shipped("recipes").glob("*.yaml"))


def backends() -> list[str]:
    """Return the backends in the order in which a recipe is tried: Megatron-SWIFT's check knows most tasks."""
    return sorted(backend_names(), key=lambda name: name != "megatron")


def shortened(recipe: str) -> tuple[str, ...]:
    """Return the overrides that shrink a recipe: a warm-up of its own length would not end in so few iterations."""
    warms_up = compose([f"+recipe={recipe}"]).schedule.lr_warmup_iters
    left_out = LEFT_OUT.get(recipe)
    return (
        *_SHRUNKEN,
        *(("schedule.lr_warmup_iters=1",) if warms_up else ()),
        *((f"rehearse.leave_out=[{left_out}]",) if left_out else ()),
    )


def rehearsed(recipe: str, rehearsals: Rehearsals) -> Result:
    """Train a recipe; where no backend's check or no rehearsal takes it, return the reason of the first that could."""
    refused: dict[str, Result] = {}
    small = shortened(recipe)
    for backend in backends():
        words = (f"+recipe={recipe}", f"backend={backend}")
        result = _tried(recipe, backend, partial(rehearsals.train, words, small))
        if result.verdict in (TRAINED, FAILED):
            return result
        refused[backend] = result
    for backend, python in NATIVES.items():
        if refused[backend].verdict == NOT_REHEARSED and _is_here(backend):
            words = (f"+recipe={recipe}", f"backend={backend}")
            result = _tried(recipe, backend, partial(rehearsals.train_native, (*words, *small), python()))
            if result.verdict in (TRAINED, FAILED):
                return result
    others = list(refused.values())
    return next((each for each in others if each.verdict == NOT_REHEARSED), others[0])


def _is_here(backend: str) -> bool:
    """Return whether the checkouts that a backend needs are named."""
    native = import_module(str(get_backend(backend).native_cpu)).NATIVE_CPU
    return not missing(native, os.environ, version_of=lambda _name: "installed in an environment of its own")


def _tried(recipe: str, backend: str, train: Callable[[], Training]) -> Result:
    """Return what became of a recipe on a backend."""
    title = get_backend(backend).title
    try:
        found = train()
    except NoTraining as error:
        if error.result.verdict == FAILED:
            return Result(verdict=FAILED, seen=f"{title}: {error.result.seen}")
        return error.result
    learned = len(found.losses) == ITERATIONS and all(map(math.isfinite, (*found.losses, *found.norms)))
    losses = f"loss {found.losses[0]:.3f} to {found.losses[-1]:.3f}, {found.processes} processes"
    by = f"{title}{' itself' if found.native else ''}{f' without {LEFT_OUT[recipe]}' if recipe in LEFT_OUT else ''}"
    return Result(verdict=TRAINED if learned else FAILED, seen=f"{by}: {losses}")

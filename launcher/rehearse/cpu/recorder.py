"""Records loss and gradient norm of each iteration in full precision, in the rank that has the loss.

Backends print seven digits of the loss and three decimals of the norm, and Megatron-LM the mean of iterations 1 and 2.
"""

import functools
import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from launcher.rehearse.cpu import routing, tracer

VARIABLE = "LAUNCH_RECORD"
"""Names the file: one JSON object a line, with `iteration`, `loss` and `grad_norm`. Nothing is recorded without it."""


def record(
    iteration: int,
    loss: Any,
    grad_norm: Any,
    *,
    reports: bool | None = None,
    token_loss: float | None = None,
    skipped: bool = False,
) -> None:
    """Append the values of one iteration.

    Args:
        token_loss: the mean loss of its predicted tokens, where `loss` is that of its micro-batches.
        reports: whether this rank writes them; None: the last rank of torchrun does, which has the loss under pipeline
            parallelism.
        skipped: whether no weight was updated, because gradients were not finite.
    """
    tracer.write()
    routing.write(iteration)
    file = os.environ.get(VARIABLE)
    if reports is None:
        reports = os.environ.get("RANK", "0") == str(int(os.environ.get("WORLD_SIZE", "1")) - 1)
    if not file or not reports:
        return
    values = {"iteration": iteration, "loss": float(loss), "grad_norm": None if grad_norm is None else float(grad_norm)}
    if token_loss is not None:
        values["token_loss"] = token_loss
    if skipped:
        values["skipped"] = True
    with Path(file).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(values) + "\n")


def training_log(module: ModuleType) -> None:
    """Record what Megatron-LM's `training_log` is given (megatron/training/training.py), after `module` is loaded."""
    if VARIABLE not in os.environ:
        return
    log = module.training_log
    signature = inspect.signature(log)

    @functools.wraps(log)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        given: Mapping[str, Any] = signature.bind(*args, **kwargs).arguments
        if "lm loss" in given["loss_dict"]:
            skipped = bool(given["skipped_iter"])
            record(given["iteration"], given["loss_dict"]["lm loss"], given["grad_norm"], skipped=skipped)
        return log(*args, **kwargs)

    module.training_log = recorded  # type: ignore[attr-defined]

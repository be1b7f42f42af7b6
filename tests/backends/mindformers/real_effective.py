"""Run in an environment with MindFormers 1.6.0: what its trainer's own checks leave of parallel sizes and steps.

Standard input: JSON list of [file, devices]. Standard output: one JSON line each, values by key or `error`.
"""

import json
import logging
import os
import sys
from typing import Any

from real_config import _global_batch

_SIZES = (
    "data_parallel",
    "model_parallel",
    "context_parallel",
    "expert_parallel",
    "pipeline_stage",
    "micro_batch_num",
    "use_seq_parallel",
    "vocab_emb_dp",
)
_MODES = {0: "data_parallel", 1: "semi_auto_parallel", 2: "auto_parallel"}


def _left(path: str, devices: int) -> dict[str, Any]:
    import mindspore as ms
    from mindformers.core.context.build_context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.tools.register.config import MindFormerConfig

    config = MindFormerConfig(path)
    config.use_parallel, config.context = False, MindFormerConfig(mode=0, device_target="CPU")
    build_context(config)
    ms.reset_auto_parallel_context()
    mode = _MODES[config.parallel.parallel_mode]
    ms.set_auto_parallel_context(
        parallel_mode=mode, device_num=devices, pipeline_stages=config.parallel_config.pipeline_stage
    )
    if mode != "data_parallel":
        strategy = config.parallel.get("dataset_strategy") or "data_parallel"
        ms.set_auto_parallel_context(
            full_batch=config.parallel.full_batch,
            dataset_strategy=strategy if isinstance(strategy, str) else tuple(map(tuple, strategy)),
        )
    build_parallel_config(config)
    _global_batch(config)
    found = {f"parallel_config.{name}": getattr(config.parallel_config, name) for name in _SIZES}
    found["runner_config.gradient_accumulation_steps"] = config.runner_config.gradient_accumulation_steps
    if mode != "data_parallel":
        strategy = ms.get_auto_parallel_context("dataset_strategy")
        found["parallel.dataset_strategy"] = strategy if isinstance(strategy, str) else [*map(list, strategy)]
    return found


def main() -> None:
    """Answer for every file; an exception is an answer, too."""
    logging.disable(logging.CRITICAL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # MindSpore and MindFormers print.
    for path, devices in json.load(sys.stdin):
        try:
            answer = _left(path, devices)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()

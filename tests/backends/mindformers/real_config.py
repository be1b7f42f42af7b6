"""Run in an environment with MindFormers 1.6.0: its own classes read a file, up to the layers of every stage.

Standard input: JSON list of [file, devices]. Standard output: JSON list of results or errors, in that order. What runs
is MindFormers' code: template, parallel and recompute configuration, batch check, the model's config class, conversion
to TransformerConfig, LayerSetting. The network itself is not built: it needs Ascend.
"""

import json
import logging
import os
import sys
from typing import Any

os.environ["RUN_MODE"] = "train"
_FIELDS = (
    "num_layers",
    "num_moe_experts",
    "moe_router_topk_scaling_factor",
    "moe_router_score_function",
    "moe_router_enable_expert_bias",
    "rotary_scaling_factor",
    "position_embedding_type",
    "hidden_dropout",
    "attention_dropout",
    "aux_loss_factors",
    "first_k_dense_replace",
    "mtp_num_layers",
    "shared_expert_num",
    "sequence_parallel",
    "sparse_mode",
    "data_parallel_size",
    "tensor_model_parallel_size",
    "expert_model_parallel_size",
    "mp_comm_recompute",
    "q_lora_rank",
)


def _context(config: Any, devices: int) -> None:
    import mindspore as ms

    parallel = config.parallel
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=devices,
        full_batch=parallel.full_batch,
        dataset_strategy=tuple(map(tuple, parallel.dataset_strategy)),
        pipeline_stages=config.parallel_config.pipeline_stage,
    )
    if parallel.get("pipeline_config"):
        ms.set_auto_parallel_context(pipeline_config=dict(parallel.pipeline_config))


def _global_batch(config: Any) -> int:
    import mindspore as ms
    from mindformers.trainer.base_trainer import BaseTrainer

    trainer = BaseTrainer.__new__(BaseTrainer)
    trainer.config = config
    trainer.get_pipeline_stages = lambda: ms.get_auto_parallel_context("pipeline_stages")
    trainer._check_grad_accumulation_steps()
    trainer._check_global_batch_size_for_auto_parallel()
    return int(trainer.global_batch_size)


def judge(path: str, devices: int) -> dict[str, Any]:
    """Return what MindFormers makes of a file."""
    from mindformers.core.context.build_context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.models.build_config import get_model_config
    from mindformers.parallel_core.training_graph.transformer.utils import LayerSetting
    from mindformers.parallel_core.transformer_config_utils import convert_to_transformer_config
    from mindformers.tools.register.config import MindFormerConfig

    config = MindFormerConfig(path)
    config.use_parallel, config.context = False, MindFormerConfig(mode=0, device_target="CPU")
    build_context(config)  # Tells MindFormers that the model is an mcore model.
    _context(config, devices)
    build_parallel_config(config)
    batch = _global_batch(config)
    config.model.model_config.parallel_config = config.parallel_config
    model = convert_to_transformer_config(get_model_config(config.model), is_mla_model=True)
    chunks = model.virtual_pipeline_model_parallel_size or 1
    layers = LayerSetting(model.num_layers + (model.mtp_num_layers or 0), model.offset, model, chunks)
    result = {name: getattr(model, name) for name in _FIELDS}
    recompute = layers.layer_recompute
    found = {"layers": layers.layer_list.tolist(), "recompute": recompute, "select": layers.select_recompute}
    return {**result, "global_batch": batch, **found}


def main() -> None:
    """Judge every file; an exception is a result too."""
    logging.disable(logging.CRITICAL)
    answer = os.dup(1)
    os.dup2(2, 1)  # MindSpore and MindFormers print.
    results: list[dict[str, Any]] = []
    for path, devices in json.load(sys.stdin):
        try:
            results.append(judge(path, devices))
        except Exception as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    with os.fdopen(answer, "w") as stream:
        json.dump(results, stream, default=str)


if __name__ == "__main__":
    main()

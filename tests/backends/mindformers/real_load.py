"""Run by MindFormers' own interpreter: loads a checkpoint with its loader into its network and looks at every value.

python real_load.py HF_MODEL CHECKPOINT: prints one JSON line; the network's own convert_weight_dict is the reference.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_CLASSES = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
_FIELDS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "norm_topk_prob",
    "rope_theta",
)


def _without_kernels() -> None:
    """Let the experts be built: nothing of them is computed here, and their operators are Ascend's."""
    from mindformers.parallel_core.training_graph.transformer.moe import ffn, moe_layer, token_dispatcher

    class Nothing:
        def __init__(self, *_args: Any, **_kwargs: Any) -> None:
            pass

        def add_prim_attr(self, *_args: Any) -> Nothing:
            return self

        def recompute(self, *_args: Any) -> Nothing:
            return self

    for module in (ffn, moe_layer, token_dispatcher):
        for name in list(vars(module)):
            if name in ("Morph", "Swiglu") or name.endswith("TokenDispatcher"):
                setattr(module, name, Nothing)


def _network(config: dict[str, Any], folder: Path) -> Any:
    from mindformers.core.context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.models import build_network
    from mindformers.tools.register import MindFormerConfig

    kind = config["model_type"]
    model = {name: config[name] for name in _FIELDS if config.get(name) is not None}
    floats = ("compute", "params", "layernorm_compute", "softmax_compute", "rotary", "moe_router")
    model |= {f"{name}_dtype": "float32" for name in floats}
    if kind == "qwen3_moe":
        model |= {"moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall"}
    sizes = ("data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "expert_parallel")
    tree = {
        "run_mode": "train",
        "use_parallel": False,
        "use_legacy": False,
        "output_dir": str(folder),
        "context": {"mode": 0, "device_target": "CPU"},
        "parallel": {"parallel_mode": 0},
        "trainer": {"type": "CausalLanguageModelingTrainer"},
        "model": {"model_config": {"architectures": [_CLASSES[kind]], "model_type": kind, "seq_length": 16, **model}},
        "parallel_config": {**dict.fromkeys(sizes, 1), "micro_batch_num": 1},
        "recompute_config": {"recompute": False},
        "runner_config": {"batch_size": 1, "epochs": 1},
        "train_dataset": {"data_loader": {"type": "none"}},
    }
    file = folder / "job.yaml"
    file.write_text(json.dumps(tree))
    made = MindFormerConfig(str(file))
    build_context(made)
    build_parallel_config(made)
    made.model.model_config.parallel_config = made.parallel_config
    return build_network(made.model)


def main(model: Path, checkpoint: str, folder: Path) -> None:
    """Load, convert with MindFormers' own function, compare."""
    import numpy as np
    from safetensors.numpy import load_file

    _without_kernels()
    network = _network(json.loads((model / "config.json").read_text()), folder)
    from mindformers.checkpoint.checkpoint import load_checkpoint

    load_checkpoint(checkpoint, network)
    loaded = {one.name: one.asnumpy() for one in network.get_parameters()}
    inner = network
    while not hasattr(inner, "convert_weight_dict"):
        inner = inner.network
    weights = load_file(model / "model.safetensors")
    own = inner.convert_weight_dict(dict(weights), qkv_dict={}, condition=threading.Condition())
    different = [name for name in own if name not in loaded or not np.array_equal(own[name], loaded[name])]
    print(json.dumps({"compared": len(own), "different": different}))


if __name__ == "__main__":
    from backends.mindformers.rehearse.cpu import install

    install("run_mindformer.py")
    with tempfile.TemporaryDirectory() as place:
        main(Path(sys.argv[1]), sys.argv[2], Path(place))

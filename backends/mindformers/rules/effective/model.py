"""What the configuration makes of the model section, and other keys with which it is the same."""

from dataclasses import replace

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.effective.tables import KIND, MCORE, key_of, sets
from backends.mindformers.rules.terms import BACKENDS, SP, TP
from launcher.job import Value
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare, unread

_CONFIG = "mindformers 2.1.0 parallel_core/transformer_config.py"
_MONITOR = "callbacks.CheckpointMonitor."
_ACT, _GATED, _FUSED = f"{MODEL}hidden_act", f"{MODEL}gated_linear_unit", f"{MODEL}bias_swiglu_fusion"
_SOFTMAX, _SOFTMAX_TYPE = f"{MODEL}attention_softmax_in_fp32", f"{MODEL}softmax_compute_dtype"
_SHARED = f"{MODEL}moe_shared_expert_intermediate_size"


def _shared_width(context: RuleContext) -> bool:
    one = key_of(context, "moe_intermediate_size")
    return isinstance(one, int) and context.values[_SHARED] == one * (key_of(context, "n_shared_experts") or 0)


def _one(name: str) -> Value:
    """Return the setting of a number of groups: 0 and 1 both mean no limit."""
    key = f"{MODEL}{name}"
    return lambda context: 1 if context.values.get(key) == 0 else context.values.get(key)


declare(
    (
        sets(
            "MF-SET-CHECKPOINT-FORMAT",
            MCORE,
            {f"{_MONITOR}checkpoint_format": "safetensors"},
            "Checkpoints of mcore models are saved as safetensors.",
            "mindformers 1.8.0 trainer/base_trainer.py:1375",
            check=lambda context: any(key.startswith(_MONITOR) for key in context.values),
            reads="*",
        ),
        sets(
            "MF-SET-FUSED-SWIGLU",
            f"{MCORE} & {_ACT}=swiglu & {_FUSED}",
            {_ACT: "fusedswiglu"},
            "The switch bias_swiglu_fusion sets hidden_act to fusedswiglu.",
            f"{_CONFIG}:2621",
        ),
        replace(
            sets(
                "MF-SET-GATED",
                f"{MCORE} & {_ACT}=swiglu|fusedswiglu",
                {_GATED: True},
                "SwiGLU is gated.",
                f"{_CONFIG}:2639",
            ),
            since="2.1",
        ),
    ),
    backends=BACKENDS,
    phase="config",
)
declare(
    (
        unread(
            "MF-UNREAD-FUSED-SWIGLU",
            f"{MCORE} & {_ACT}=fusedswiglu",
            _FUSED,
            "hidden_act fusedswiglu already means the fused activation.",
            f"{_CONFIG}:2621",
        ),
        unread(
            "MF-UNREAD-SOFTMAX-TYPE",
            f"{MCORE} & {_SOFTMAX_TYPE}?",
            _SOFTMAX_TYPE,
            "The dtype of the softmax is converted to a switch.",
            f"{_CONFIG}:2414",
            equivalent={_SOFTMAX: lambda context: context.values[_SOFTMAX_TYPE] in ("float32", "fp32", True)},
        ),
        unread(
            "MF-UNREAD-GROUPS",
            MCORE,
            (),
            "No groups and one group of experts mean no limit.",
            "mindformers 2.1.0 parallel_core/training_graph/transformer/moe/router.py group_limited_topk",
            equivalent={f"{MODEL}{name}": _one(name) for name in ("n_group", "topk_group")},
        ),
        unread(
            "MF-UNREAD-SHARED-WIDTH",
            f"{MCORE} & {_SHARED}?",
            _SHARED,
            "The default width of shared experts is their number times the width of one expert.",
            "mindformers 1.8.0 parallel_core/transformer_config.py:506-515",
            check=_shared_width,
            reads=f"{MODEL}moe_intermediate_size {MODEL}n_shared_experts",
        ),
        unread(
            "MF-UNREAD-HEAD-WIDTH",
            f"{MCORE} & {KIND}=deepseek_v3|telechat3_moe",
            f"{MODEL}head_dim {MODEL}kv_channels",
            "Latent attention has separate head dimensions.",
            "mindformers 2.1.0 models/deepseek3/configuration_deepseek_v3.py",
        ),
        unread(
            "MF-UNREAD-LEGACY-SP",
            "use_legacy!=False",
            SP,
            "Sequence parallelism splits over tensor-parallel ranks, and there is only one.",
            "mindformers 1.6.0 core/parallel_config.py",
            check=lambda context: context.values.get(TP, 1) == 1,
            reads=TP,
        ),
    ),
    backends=BACKENDS,
    phase="launch",
)

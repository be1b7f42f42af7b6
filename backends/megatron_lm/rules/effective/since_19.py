"""What validation sets since Megatron-LM 0.19: weight shards, checkpoints in FP8, Megatron FSDP, dispatchers."""

from collections.abc import Mapping

from backends.megatron_lm.rules.effective.tables import sets
from backends.megatron_lm.rules.versions import PLAIN, SINCE_19, configured, validated
from launcher.job import Value
from launcher.rules.registry import Range, RuleContext
from launcher.rules.table import declare

_V = "0.19.0"
_NINETEEN: Mapping[str, Range] = {"megatron_lm": (SINCE_19, None)}
_SMS, _OLDER = "moe-flex-dispatcher-num-sms", ("moe-deepep-num-sms", "moe-hybridep-num-sms")


def _older_count(context: RuleContext) -> Value:
    return next((context.flag(name) for name in _OLDER if context.flag(name) is not None), None)


_VALIDATED = (
    sets(
        "MLM-SET-SHARDS",
        "!tensor-parallel-num-weight-shards?",
        {"tensor-parallel-num-weight-shards": "{tensor-model-parallel-size}"},
        "Weights have one shard for each tensor-parallel rank by default.",
        validated(_V, 1457),
        _NINETEEN,
    ),
    sets(
        "MLM-SET-EXPERT-SHARDS",
        "!expert-tensor-parallel-num-weight-shards?",
        {"expert-tensor-parallel-num-weight-shards": "{expert-tensor-parallel-size}"},
        "Weights of experts have one shard for each expert tensor-parallel rank by default.",
        validated(_V, 1467),
        _NINETEEN,
    ),
    sets(
        "MLM-SET-STREAM-DEQUANT",
        "fp8-format & fp8-recipe=tensorwise",
        {"no-stream-ckpt-dequant": True},
        "Checkpoints are not converted from FP8 part by part where a tensor has one scale.",
        validated(_V, 1098),
        _NINETEEN,
    ),
    sets(
        "MLM-SET-MFSDP-DOUBLE",
        "use-megatron-fsdp & use-nccl-ub",
        {"fsdp-double-buffer": True},
        "Megatron FSDP has two buffers where it uses NCCL's.",
        validated(_V, 1153),
        _NINETEEN,
    ),
    sets(
        "MLM-SET-MFSDP-POOL",
        "use-megatron-fsdp & megatron-fsdp-max-pool-double-buffer",
        {"fsdp-double-buffer": True},
        "The pool is a kind of double buffer.",
        validated(_V, 1158),
        _NINETEEN,
    ),
    sets(
        "MLM-SET-DOCUMENT-MASK",
        "dataloader-inter-document-masking",
        {"no-create-attention-mask-in-dataloader": True},
        "The data loader gives the ends of documents, and no mask.",
        validated(_V, 1304),
        _NINETEEN,
    ),
    sets(
        "MLM-SET-FROZEN",
        "freeze-all-layers",
        {"use-distributed-optimizer": False, "overlap-param-gather": False},
        "Frozen weights have no states to shard and are not gathered.",
        validated(_V, "1763, 1768"),
        _NINETEEN,
    ),
)
# What YarnRotaryEmbedding is built with where the command line does not say.
_YARN = {
    "yarn-original-max-position-embeddings": (4096, 408),
    "yarn-beta-fast": (32.0, 409),
    "yarn-beta-slow": (1.0, 410),
}
_STRETCHED = "position-embedding-type=yarn & !multi-latent-attention"
_ROUNDED = "yarn-correction-range-round-to-int"
_CONFIGURED = (
    *(
        sets(
            f"MLM-SET-{flag.upper()}",
            f"{_STRETCHED} & !{flag}?",
            {flag: value},
            "YaRN has the constants of its paper by default.",
            f"Megatron-LM core_v0.19.0 argument_utils.py:{line}",
            _NINETEEN,
        )
        for flag, (value, line) in _YARN.items()
    ),
    sets(
        "MLM-SET-YARN-ROUNDED",
        f"{_STRETCHED} & !{_ROUNDED}? & !no-{_ROUNDED}",
        {_ROUNDED: True},
        "The range of dimensions that YaRN blends is rounded by default.",
        "Megatron-LM core_v0.19.0 argument_utils.py:413",
        _NINETEEN,
    ),
    sets(
        "MLM-SET-FLEX-MULTIPROCESSORS",
        f"!{_SMS}?",
        {_SMS: _older_count},
        "The older arguments of each backend mean the one of all.",
        configured(_V, 1635),
        _NINETEEN,
        " ".join(_OLDER),
    ),
)
declare(_VALIDATED, backends=PLAIN)
declare(_CONFIGURED, backends=PLAIN, phase="config")

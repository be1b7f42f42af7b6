"""What Megatron-core computes differently from version to version, for all backends that are built on it."""

from collections.abc import Mapping

from launcher.mapping.computation import Computation

_Ranges = Mapping[str, tuple[str | None, str | None]]
_PLAIN, _SWIFT, _MINDSPEED = "megatron_lm", "megatron", "mindspeed"
# The core of each version: ms-swift 4.6.0 installs 0.16.1, MindSpeed-LLM 26.1.0 is built on 0.12.1; others: not read.
_CORE_12: _Ranges = {_PLAIN: ("0.12.1", "0.12.1"), _MINDSPEED: ("26.1.0", None)}
_CORE_16: _Ranges = {_PLAIN: ("0.16.1", None), _SWIFT: ("4.6.0", None)}
_CORE: _Ranges = {**_CORE_16, _PLAIN: ("0.12.1", None), _MINDSPEED: _CORE_12[_MINDSPEED]}
_SCHEDULES = "megatron/core/pipeline_parallel/schedules.py"
_ROUTER = "megatron/core/transformer/moe/router.py"
_ROUNDED = (
    "Megatron-LM core_v0.12.1 megatron/core/fusions/fused_cross_entropy.py:82; core_v0.16.1 "
    "megatron/core/fusions/fused_cross_entropy.py:82"
)

COMPUTATIONS = (
    Computation(topic="LOSS-CP", rule="MLM-CP-MEAN", versions={_PLAIN: ("0.13", None)}),
    Computation(topic="LOSS-CP", rule="SW-CP-MEAN", versions={_SWIFT: ("4.6.0", None)}),
    Computation(
        topic="LOSS-CP",
        way="usual",
        versions=_CORE,
        source=f"Megatron-LM core_v0.12.1 {_SCHEDULES}:290; pretrain_gpt.py:179; MindSpeed-LLM 26.1.0 "
        "mindspeed_llm/tasks/posttrain/sft/sft_trainer.py:193",
    ),
    Computation(topic="LABELS-CP", rule="MS-SFT-CP-SHIFT", versions={_MINDSPEED: ("26.1.0", None)}),
    Computation(
        topic="LABELS-CP",
        way="usual",
        versions={_SWIFT: ("4.6.0", None)},
        source="ms-swift 4.6.0 megatron/trainers/utils.py:22",
    ),
    Computation(
        topic="LOSS-DP",
        way="rank",
        versions=_CORE,
        source=f"Megatron-LM core_v0.12.1 {_SCHEDULES}:290; core_v0.16.1 {_SCHEDULES}:262; MindSpeed-LLM 26.1.0 "
        "mindspeed_llm/tasks/posttrain/sft/sft_trainer.py:217; ms-swift 4.6.0 trainers/trainer.py:72",
    ),
    Computation(
        topic="LOSS-MASK",
        way="usual",
        versions={**_CORE_16, _PLAIN: ("0.15", None)},
        source="Megatron-LM core_v0.16.1 megatron/core/datasets/gpt_dataset.py:268",
    ),
    Computation(topic="EXPERT-GRADIENTS", rule="MLM-ETP-REPLICAS", versions=_CORE),
    Computation(topic="EXPERT-GRADIENTS", rule="SW-ETP-REPLICAS", versions={_SWIFT: ("4.6.0", None)}),
    Computation(
        topic="EXPERT-GRADIENTS",
        way="usual",
        versions=_CORE,
        source="Megatron-LM core_v0.12.1 megatron/core/tensor_parallel/layers.py:809",
    ),
    Computation(
        topic="LOGITS-GRADIENT",
        way="bf16",
        versions={_PLAIN: ("0.12.1", None), _MINDSPEED: ("26.1.0", None)},
        when="cross-entropy-loss-fusion & cross-entropy-fusion-impl=native",
        source=_ROUNDED,
    ),
    Computation(
        topic="LOGITS-GRADIENT",
        way="bf16",
        versions={_SWIFT: ("4.6.0", None)},
        when="cross_entropy_loss_fusion & cross_entropy_fusion_impl=native",
        source=_ROUNDED,
    ),
    Computation(topic="BALANCE-WEIGHT", rule="MLM-BALANCE-SHARE", versions=_CORE),
    Computation(topic="BALANCE-WEIGHT", rule="SW-BALANCE-SHARE", versions={_SWIFT: ("4.6.0", None)}),
    Computation(
        topic="BALANCE-WEIGHT",
        way="whole",
        versions=_CORE,
        source=f"Megatron-LM core_v0.16.1 {_SCHEDULES}:292; core_v0.19.0 {_ROUTER}:633",
    ),
    Computation(
        topic="BALANCE-SEQUENCE",
        way="whole",
        versions=_CORE,
        source=f"Megatron-LM core_v0.12.1 {_ROUTER}:292; core_v0.16.1 {_ROUTER}:290",
    ),
    Computation(
        topic="BALANCE-CHOICE",
        way="chosen",
        versions={**_CORE_12, _PLAIN: ("0.12.1", "0.13.99")},
        source=f"Megatron-LM core_v0.12.1 {_ROUTER}:205, 227; megatron/core/transformer/moe/moe_utils.py:562",
    ),
    Computation(
        topic="BALANCE-CHOICE",
        way="scores",
        versions={**_CORE_16, _PLAIN: ("0.14", None)},
        source=f"Megatron-LM core_v0.16.1 {_ROUTER}:600; megatron/core/transformer/moe/moe_utils.py:788",
    ),
    Computation(topic="BALANCE-JOINED", rule="SW-SEQUENCE-BALANCE", versions={_SWIFT: ("4.6.0", None)}),
    Computation(
        topic="BALANCE-JOINED",
        way="usual",
        versions=_CORE,
        source=f"Megatron-LM core_v0.12.1 {_ROUTER}:265; core_v0.16.1 {_ROUTER}:335",
    ),
    *(
        Computation(topic=topic, way=way, versions={_SWIFT: ("4.6.0", None)}, source=f"ms-swift 4.6.0 {source}")
        for topic, way, source in (
            ("CHAT-END", "line", "swift/template/templates/utils.py:17"),
            ("CHAT-FORMAT", "tokens", "swift/template/templates/deepseek.py:637"),
            ("CHAT-THINKING", "given", "swift/loss_scale/config/ignore_empty_think.json"),
        )
    ),
    Computation(
        topic="BALANCE-PADDING",
        way="usual",
        versions={_SWIFT: ("4.6.0", None)},
        when="padding_free",
        source="ms-swift 4.6.0 swift/megatron/arguments/megatron_args.py:545",
    ),
    Computation(
        topic="MTP-NORM",
        way="usual",
        versions=_CORE_16,
        source="Megatron-LM core_v0.16.1 megatron/core/models/gpt/gpt_model.py:593",
    ),
    Computation(
        topic="ATTENTION-MASK",
        way="usual",
        versions=_CORE,
        source="Megatron-LM core_v0.12.1 megatron/core/transformer/utils.py:37; core_v0.16.1 "
        "megatron/core/transformer/utils.py:50",
    ),
)


def computations() -> tuple[Computation, ...]:
    """Return the rows of all backends built on Megatron-core."""
    return COMPUTATIONS

"""Qwen3-Next."""

from dataclasses import replace
from typing import Final

from launcher.families.attention import LINEAR_LAYERS
from launcher.families.keys import NO_BIAS, PINNED, common, qwen_experts
from launcher.families.parts import SPARSE_LAYERS, heads, rope
from launcher.families.record import Family, Key, Pinned
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED, QWEN_SPARSE, fused
from launcher.families.weights import HfTensor, Row, Weights, hf
from launcher.job.model import LINEAR_HEADS

_QUERY: Final = "self_attn.q_proj.weight"


def _gated(tensor: HfTensor) -> HfTensor:
    """Return a tensor of softmax attention: that of queries has each head's gate after it."""
    return hf(_QUERY, "gated_query", "hidden") if tensor.name == _QUERY else tensor


# As mcore-bridge 1.6.5 builds it (model/modules/gated_self_attention.py, gated_delta_net.py): the rows of a key head
# stand together. megatron-core 0.16.1's own modules keep all queries, all keys … apart.
_LINEAR: Final = (
    Row(core="self_attention.in_proj.layer_norm_weight", hf=(hf("input_layernorm.weight", "hidden"),)),
    Row(
        core="self_attention.in_proj.weight",
        hf=(
            hf("linear_attn.in_proj_qkvz.weight", "linear_qkvz", "hidden"),
            hf("linear_attn.in_proj_ba.weight", "linear_ba", "hidden"),
        ),
        kind="key_heads",
    ),
    Row(
        core="self_attention.conv1d.weight",
        hf=(hf("linear_attn.conv1d.weight", "linear_conv", 1, "linear_kernel"),),
        kind="key_heads",
    ),
    Row(core="self_attention.dt_bias", hf=(hf("linear_attn.dt_bias", "linear_values"),), kind="column"),
    Row(core="self_attention.A_log", hf=(hf("linear_attn.A_log", "linear_values"),), kind="column"),
    Row(core="self_attention.out_norm.weight", hf=(hf("linear_attn.norm.weight", "linear_value_head"),)),
    Row(
        core="self_attention.out_proj.weight",
        hf=(hf("linear_attn.out_proj.weight", "hidden", "linear_value"),),
        kind="row",
    ),
)

# mcore-bridge 1.6.5 model/gpts/qwen3_next.py:525; its transformer layer has softmax attention and experts.
MTP: Final = (
    Row(core="enorm.weight", hf=(hf("pre_fc_norm_embedding.weight", "hidden"),)),
    Row(core="hnorm.weight", hf=(hf("pre_fc_norm_hidden.weight", "hidden"),)),
    Row(core="eh_proj.weight", hf=(hf("fc.weight", "hidden", "2*hidden"),), kind="column"),
    Row(core="final_layernorm.weight", hf=(hf("norm.weight", "hidden"),)),
)
MTP_NAMES: Final = ("mtp.", "mtp.layers.{layer}.")
ATTENTION: Final = (
    *(replace(row, hf=tuple(map(_gated, row.hf)), mixer="full") for row in GROUPED_ATTENTION),
    *(replace(row, mixer="linear") for row in _LINEAR),
)

FAMILY = Family(
    model_type="qwen3_next",
    stem="Qwen3Next",
    keys=(
        *common(),
        *qwen_experts(norm_topk_prob=True),
        Key(field="shared_expert_intermediate_size"),
        *(Key(field=name, default=usual) for name, usual in LINEAR_HEADS.items()),
    ),
    parts=(heads(explicit=True, default=256), rope(partial=0.25), SPARSE_LAYERS, LINEAR_LAYERS),
    fixed={
        "experimental_attention_variant": "gated_delta_net",
        "attention_output_gate": True,
        "norm_zero_centered": True,
        "qk_layernorm": True,
        "shared_expert_gate": True,
    },
    pinned=(
        *PINNED,
        NO_BIAS,
        Pinned(name="use_sliding_window", value=False, why="its class knows no window"),
    ),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=ATTENTION,
        dense=DENSE,
        sparse=QWEN_SPARSE,
        spellings=fused(),
        mtp=MTP,
        mtp_names=MTP_NAMES,
        ignored=IGNORED,
    ),
)

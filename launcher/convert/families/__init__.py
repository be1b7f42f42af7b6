"""Model families with convertible checkpoints: one table each, for both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.convert.families.parts import (
    DENSE,
    EMBEDDING,
    EXPERTS,
    FINAL,
    GROUPED_ATTENTION,
    IGNORED,
    LATENT_ATTENTION,
    ROUTER,
    SPARSE_NORM,
    fused,
    gated,
)
from launcher.convert.families.rows import Family, Row, Spelling, hf

_MIXTRAL_EXPERT: Final = ("w1", "w3", "w2")


def _dense(model_type: str) -> Family:
    return Family(
        model_type=model_type,
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        ignored=IGNORED,
    )


def _deepseek(model_type: str) -> Family:
    return Family(
        model_type=model_type,
        embedding=EMBEDDING,
        final=FINAL,
        attention=LATENT_ATTENTION,
        dense=DENSE,
        sparse=(
            SPARSE_NORM,
            ROUTER,
            Row(
                core="mlp.router.expert_bias",
                hf=(hf("mlp.gate.e_score_correction_bias", "experts"),),
                needs="router_expert_bias",
                exact=True,
            ),
            *EXPERTS,
            *(
                Row(core=row.core, hf=row.hf, kind=row.kind, needs="shared_expert_intermediate_size")
                for row in gated("mlp.shared_experts", "mlp.shared_experts", "shared_ffn")
            ),
        ),
        mtp=(
            Row(core="enorm.weight", hf=(hf("enorm.weight", "hidden"),)),
            Row(core="hnorm.weight", hf=(hf("hnorm.weight", "hidden"),)),
            Row(core="eh_proj.weight", hf=(hf("eh_proj.weight", "hidden", "2*hidden"),), kind="column"),
            Row(core="final_layernorm.weight", hf=(hf("shared_head.norm.weight", "hidden"),)),
        ),
        mtp_copies={
            "embed_tokens.weight": "model.embed_tokens.weight",
            "shared_head.head.weight": "lm_head.weight",
        },
        spellings=fused(),
        ignored=IGNORED,
    )


_TABLE: Final = (
    _dense("llama"),
    _dense("qwen2"),
    _dense("qwen3"),
    Family(
        model_type="qwen2_moe",
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=(
            SPARSE_NORM,
            ROUTER,
            *EXPERTS,
            *gated("mlp.shared_experts", "mlp.shared_expert", "shared_ffn"),
            Row(core="mlp.shared_experts.gate_weight", hf=(hf("mlp.shared_expert_gate.weight", 1, "hidden"),)),
        ),
        spellings=fused(),
        ignored=IGNORED,
    ),
    Family(
        model_type="qwen3_moe",
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=(SPARSE_NORM, ROUTER, *EXPERTS),
        spellings=fused(),
        ignored=IGNORED,
    ),
    Family(
        model_type="mixtral",
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=(
            SPARSE_NORM,
            Row(core="mlp.router.weight", hf=(hf("block_sparse_moe.gate.weight", "experts", "hidden"),)),
            *gated("mlp.experts.{expert}", "block_sparse_moe.experts.{expert}", "expert_ffn", _MIXTRAL_EXPERT),
        ),
        spellings=(
            Spelling(stored="mlp.gate.weight", parts=("block_sparse_moe.gate.weight",)),
            *fused("block_sparse_moe.experts", _MIXTRAL_EXPERT),
        ),
        ignored=IGNORED,
    ),
    _deepseek("deepseek_v2"),
    _deepseek("deepseek_v3"),
)

FAMILIES: Final[Mapping[str, Family]] = {family.model_type: family for family in _TABLE}

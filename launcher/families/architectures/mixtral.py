"""Mixtral."""

from typing import Final

from launcher.families.keys import PINNED, common
from launcher.families.parts import ONE_WIDTH, heads, rope
from launcher.families.record import Family, Key
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED, SPARSE_NORM, fused, gated
from launcher.families.weights import Row, Spelling, Weights, hf

_EXPERT: Final = ("w1", "w3", "w2")

FAMILY = Family(
    model_type="mixtral",
    stem="Mixtral",
    keys=(
        *common(1e-5),
        Key(field="num_experts", names=("num_local_experts", "num_experts")),
        Key(field="num_experts_per_tok"),
        Key(field="sliding_window", default=None),
    ),
    parts=(heads(), rope(), ONE_WIDTH),
    # Softmax over the chosen logits equals softmax over all, renormalised over the chosen.
    fixed={"norm_topk_prob": True},
    pinned=PINNED,
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=DENSE,
        sparse=(
            SPARSE_NORM,
            Row(core="mlp.router.weight", hf=(hf("block_sparse_moe.gate.weight", "experts", "hidden"),)),
            *gated("mlp.experts.{expert}", "block_sparse_moe.experts.{expert}", "expert_ffn", _EXPERT),
        ),
        spellings=(
            Spelling(stored="mlp.gate.weight", parts=("block_sparse_moe.gate.weight",)),
            *fused("block_sparse_moe.experts", _EXPERT),
        ),
        ignored=IGNORED,
    ),
)

"""GPT-OSS."""

from typing import Final

from launcher.families.attention import ALTERNATING_WINDOW
from launcher.families.keys import PINNED, common
from launcher.families.parts import ONE_WIDTH, heads, rope
from launcher.families.record import Family, Key, Pinned
from launcher.families.weight_rows import EMBEDDING, EXPERTS, FINAL, GROUPED_ATTENTION, IGNORED, SPARSE_NORM
from launcher.families.weights import Row, Spelling, Weights, hf

_EXPERT: Final = "mlp.experts.{expert}"
_GATE, _UP, _DOWN = (f"{_EXPERT}.{name}" for name in ("gate_proj", "up_proj", "down_proj"))
# One tensor for all experts, whose gates and inputs alternate, transposed (modeling_gpt_oss.py, GptOssExperts). The
# names of single experts are ours: no file has them.
_FUSED: Final = (
    Spelling(
        stored="mlp.experts.gate_up_proj",
        parts=(f"{_GATE}.weight", f"{_UP}.weight"),
        interleaved=True,
        transposed=True,
        declared_transposed=True,
        written=True,
        mxfp4=True,
    ),
    Spelling(
        stored="mlp.experts.gate_up_proj_bias",
        parts=(f"{_GATE}.bias", f"{_UP}.bias"),
        interleaved=True,
        written=True,
    ),
    Spelling(
        stored="mlp.experts.down_proj",
        parts=(f"{_DOWN}.weight",),
        transposed=True,
        declared_transposed=True,
        written=True,
        mxfp4=True,
    ),
    Spelling(stored="mlp.experts.down_proj_bias", parts=(f"{_DOWN}.bias",), written=True),
)

FAMILY = Family(
    model_type="gpt_oss",
    stem="GptOss",
    keys=(
        *common(1e-5),
        Key(field="num_experts", names=("num_local_experts", "num_experts")),
        Key(field="num_experts_per_tok", names=("num_experts_per_tok", "experts_per_token")),
        Key(field="swiglu_limit", default=7.0),
    ),
    parts=(
        heads(explicit=True, default=64),
        rope(150000.0, truncate=False, scaled=True),
        ALTERNATING_WINDOW,
        ONE_WIDTH,
    ),
    fixed={
        "attention_bias": True,
        "linear_bias": True,
        "hidden_act": "quick_geglu",
        "glu_linear_offset": 1.0,
        "softmax_type": "learnable",
        # Softmax over the chosen logits equals softmax over all, renormalised over the chosen.
        "norm_topk_prob": True,
    },
    pinned=(
        *PINNED,
        Pinned(name="attention_bias", value=True, why="biases are known in all of its linear layers"),
        Pinned(name="swiglu_alpha", value=1.702, why="it is that of quick_geglu"),
    ),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=(
            *GROUPED_ATTENTION,
            Row(
                core="self_attention.core_attention.softmax_offset",
                hf=(hf("self_attn.sinks", "heads"),),
                kind="column",
            ),
        ),
        dense=(),
        sparse=(
            SPARSE_NORM,
            Row(core="mlp.router.weight", hf=(hf("mlp.router.weight", "experts", "hidden"),)),
            Row(core="mlp.router.bias", hf=(hf("mlp.router.bias", "experts"),)),
            *EXPERTS,
            Row(
                core=f"{_EXPERT}.linear_fc1.bias",
                hf=(hf(f"{_GATE}.bias", "expert_ffn"), hf(f"{_UP}.bias", "expert_ffn")),
                kind="gate_up",
            ),
            Row(core=f"{_EXPERT}.linear_fc2.bias", hf=(hf(f"{_DOWN}.bias", "hidden"),)),
        ),
        spellings=_FUSED,
        ignored=IGNORED,
    ),
)

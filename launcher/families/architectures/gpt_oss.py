"""GPT-OSS."""

from launcher.families.attention import ALTERNATING_WINDOW
from launcher.families.keys import PINNED, common
from launcher.families.parts import ONE_WIDTH, heads, rope
from launcher.families.record import Family, Key, Pinned

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
)

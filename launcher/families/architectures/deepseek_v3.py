"""DeepSeek-V3, R1 and Kimi-K2."""

from launcher.families.keys import LATENT_FIXED, NO_BIAS, PINNED, ROTATED, deepseek_keys
from launcher.families.parts import LATENT_HEADS, SHARED_EXPERTS, rope, routing
from launcher.families.record import Family
from launcher.families.weight_rows import DEEPSEEK_WEIGHTS

FAMILY = Family(
    model_type="deepseek_v3",
    stem="DeepseekV3",
    keys=deepseek_keys(norm_topk_prob=True, scaling=2.5),
    parts=(LATENT_HEADS, rope(10000.0), routing(scoring="sigmoid", method="noaux_tc"), SHARED_EXPERTS),
    fixed=LATENT_FIXED,
    pinned=(*PINNED, NO_BIAS, ROTATED),
    aliases=("kimi_k2",),
    weights=DEEPSEEK_WEIGHTS,
)

"""DeepSeek-V2 and V2-Lite."""

from launcher.families.keys import LATENT_FIXED, NO_BIAS, NO_MLP_BIAS, PINNED, deepseek_keys
from launcher.families.parts import LATENT_HEADS, SHARED_EXPERTS, rope, routing
from launcher.families.record import Family
from launcher.families.weight_rows import DEEPSEEK_WEIGHTS

FAMILY = Family(
    model_type="deepseek_v2",
    stem="DeepseekV2",
    keys=deepseek_keys(norm_topk_prob=False, scaling=1.0),
    parts=(LATENT_HEADS, rope(10000.0), routing(scoring="softmax", method="greedy"), SHARED_EXPERTS),
    fixed=LATENT_FIXED,
    pinned=(*PINNED, NO_BIAS, NO_MLP_BIAS),
    weights=DEEPSEEK_WEIGHTS,
)

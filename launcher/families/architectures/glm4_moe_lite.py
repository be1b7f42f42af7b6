"""GLM-4.7-Flash."""

from launcher.families.attention import dense_first
from launcher.families.keys import LATENT, LATENT_FIXED, NO_BIAS, PINNED, ROTATED, common, routed
from launcher.families.parts import LATENT_HEADS, SHARED_EXPERTS, rope, routing
from launcher.families.record import Family
from launcher.families.weight_rows import DEEPSEEK_WEIGHTS

FAMILY = Family(
    model_type="glm4_moe_lite",
    stem="Glm4MoeLite",
    keys=(*common(1e-5), *LATENT, *routed(norm_topk_prob=True, scaling=1.8)),
    parts=(
        LATENT_HEADS,
        rope(),
        routing(scoring="sigmoid", method="noaux_tc"),
        SHARED_EXPERTS,
        dense_first(1),
    ),
    fixed=LATENT_FIXED,
    pinned=(*PINNED, NO_BIAS, ROTATED),
    weights=DEEPSEEK_WEIGHTS,
)

"""GLM-4.5."""

from launcher.families.keys import PINNED, common, routed
from launcher.families.parts import SHARED_EXPERTS, heads, rope, routing
from launcher.families.record import Family, Key
from launcher.families.weight_rows import GROUPED_ATTENTION, routed_weights

FAMILY = Family(
    model_type="glm4_moe",
    stem="Glm4Moe",
    keys=(
        *common(1e-5),
        *routed(norm_topk_prob=True, scaling=1.0),
        Key(field="first_k_dense_replace"),
        Key(field="attention_bias", default=False),
        Key(field="qk_layernorm", names=("use_qk_norm",), default=False),
    ),
    parts=(
        heads(),
        rope(partial=0.5),
        routing(scoring="sigmoid", method="noaux_tc"),
        SHARED_EXPERTS,
    ),
    pinned=PINNED,
    weights=routed_weights(GROUPED_ATTENTION),
)

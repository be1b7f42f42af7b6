"""GLM-5."""

from launcher.families.keys import INDEXED, INDEXED_PARTS, INDEXED_PINNED, LATENT_FIXED, indexed_keys
from launcher.families.parts import LATENT_HEADS, rope
from launcher.families.record import Family, Pinned
from launcher.families.weight_rows import INDEXED_WEIGHTS

FAMILY = Family(
    model_type="glm_moe_dsa",
    stem="GlmMoeDsa",
    keys=indexed_keys(1e-5),
    parts=(LATENT_HEADS, rope(), *INDEXED_PARTS),
    fixed=LATENT_FIXED | INDEXED,
    pinned=(
        *INDEXED_PINNED,
        Pinned(name="indexer_rope_interleave", value=True, why="its indexer rotates neighbouring dimensions"),
    ),
    weights=INDEXED_WEIGHTS,
)

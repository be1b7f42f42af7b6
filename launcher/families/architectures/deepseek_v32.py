"""DeepSeek-V3.2."""

from launcher.families.keys import INDEXED, INDEXED_PARTS, INDEXED_PINNED, LATENT_FIXED, indexed_keys
from launcher.families.parts import LATENT_HEADS, rope
from launcher.families.record import Family, Pinned
from launcher.families.weight_rows import INDEXED_WEIGHTS

FAMILY = Family(
    model_type="deepseek_v32",
    stem="DeepseekV32",
    keys=indexed_keys(1e-6),
    parts=(LATENT_HEADS, rope(10000.0), *INDEXED_PARTS),
    fixed=LATENT_FIXED | INDEXED,
    pinned=(
        *INDEXED_PINNED,
        Pinned(name="indexer_rope_interleave", value=False, why="its indexer rotates the halves of a head"),
    ),
    weights=INDEXED_WEIGHTS,
)

"""InternLM 3: Llama's layers; its class is in the models' own repositories."""

from launcher.families.keys import PINNED, common
from launcher.families.parts import heads, rope
from launcher.families.record import Family, Key
from launcher.families.weight_rows import DENSE_WEIGHTS

FAMILY = Family(
    model_type="internlm3",
    own_code=True,
    stem="InternLM3",
    # configuration_internlm3.py: qkv_bias is that of the three projections, bias that of all other linear layers.
    keys=(
        *common(),
        Key(field="attention_bias", names=("qkv_bias",), default=False),
        Key(field="linear_bias", names=("bias",), default=False),
    ),
    parts=(heads(), rope(10000.0)),
    pinned=PINNED,
    weights=DENSE_WEIGHTS,
)

"""InternLM 2 and 2.5; their class is in the models' own repositories."""

from typing import Final

from launcher.families.keys import PINNED, common
from launcher.families.parts import heads, rope
from launcher.families.record import Family, Pinned
from launcher.families.weight_rows import gated
from launcher.families.weights import Row, Weights, hf

# modeling_internlm2.py: `rearrange(qkv, "b q (h gs d) -> b q h gs d")` with the queries of a group, its key, its value:
# the order of Megatron-core's linear_qkv.
_ATTENTION: Final = (
    Row(
        core="self_attention.linear_qkv.layer_norm_weight",
        local="input_layernorm.weight",
        hf=(hf("attention_norm.weight", "hidden"),),
    ),
    Row(
        core="self_attention.linear_qkv.weight",
        hf=(hf("attention.wqkv.weight", "query+2*key", "hidden"),),
        kind="column",
    ),
    Row(core="self_attention.linear_proj.weight", hf=(hf("attention.wo.weight", "hidden", "query"),), kind="row"),
)
_DENSE: Final = (
    Row(
        core="mlp.linear_fc1.layer_norm_weight",
        local="pre_mlp_layernorm.weight",
        hf=(hf("ffn_norm.weight", "hidden"),),
    ),
    *gated("mlp", "feed_forward", "ffn", ("w1", "w3", "w2")),
)

FAMILY = Family(
    model_type="internlm2",
    own_code=True,
    stem="InternLM2",
    keys=tuple(key for key in common() if key.field != "tie_word_embeddings"),
    parts=(heads(), rope(10000.0)),
    pinned=(
        *PINNED,
        Pinned(name="bias", value=False, why="biases of attention alone, as its class makes them, are not known here"),
        Pinned(name="tie_word_embeddings", value=False, why="its embeddings are two matrices (tok_embeddings, output)"),
    ),
    weights=Weights(
        embedding=(
            Row(
                core="embedding.word_embeddings.weight",
                hf=(hf("model.tok_embeddings.weight", "vocab", "hidden"),),
                kind="vocabulary",
            ),
        ),
        final=(
            Row(core="decoder.final_layernorm.weight", hf=(hf("model.norm.weight", "hidden"),)),
            Row(core="output_layer.weight", hf=(hf("output.weight", "vocab", "hidden"),), kind="vocabulary"),
        ),
        attention=_ATTENTION,
        dense=_DENSE,
        ignored={r"model\.layers\.\d+\.attention\.rotary_emb\.inv_freq": "computed from config.json, not a weight"},
    ),
)

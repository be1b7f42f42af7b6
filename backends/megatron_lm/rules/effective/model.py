"""What validation sets of the model: sizes, positions, biases, experts."""

from dataclasses import replace

from backends.megatron_lm.rules.effective.tables import SINCE_FOURTEEN, SINCE_THIRTEEN, SIXTEEN, sets
from backends.megatron_lm.rules.versions import BACKENDS, EVERY, SINCE_12, UNTIL_12, arguments, config
from launcher.job import Value
from launcher.job.width import megatron_width
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare

_SIZES = ("num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings")
_EVERY_FEW = "no-rope-freq"


def _width(context: RuleContext) -> Value:
    return megatron_width(context.number("hidden-size"), gated=bool(context.flag("swiglu")))


def _default_width(context: RuleContext) -> str:
    """Return the message for an FFN size that is not set; empty if the script does not describe the model."""
    if not all(context.flag(name) for name in _SIZES):
        return ""
    return f"intermediate_size not set → {_width(context)}"


def _places(context: RuleContext) -> Value:
    every, layers = context.number(_EVERY_FEW), context.number("num-layers")
    return tuple([0] * (every - 1) + [1]) * (layers // every)


# --encoder-num-layers, --encoder-seq-length and --use-rotary-position-embeddings are read under their newer names
# (mapping/services.py, factories.py), as validate_args copies them (arguments.py:659, :693, :812 @0.12.1).
_VALIDATED = (
    sets(
        "MLM-SET-ENCODER-LAYERS",
        "num-layers? & !encoder-num-layers?",
        {"encoder-num-layers": "{num-layers}"},
        "The argument is another name of --num-layers.",
        arguments(655, 789),
    ),
    replace(
        sets(
            "MLM-FFN-DEFAULT",
            "!ffn-hidden-size? & hidden-size?",
            {"ffn-hidden-size": _width},
            "Without ffn-hidden-size, the feed-forward width is four times hidden_size (8/3 times with SwiGLU).",
            arguments(675, 809),
            EVERY,
            f"swiglu {' '.join(_SIZES)}",
        ),
        check=_default_width,
        reports_unwritten=True,
        fields=("model.intermediate_size",),
    ),
    sets(
        "MLM-SET-HEAD-WIDTH",
        "!kv-channels? & hidden-size? & num-attention-heads>0",
        {"kv-channels": lambda context: context.number("hidden-size") // context.number("num-attention-heads")},
        "The head dimension is hidden_size / num_attention_heads by default.",
        arguments(681, 815),
    ),
    sets(
        "MLM-SET-ENCODER-LENGTH",
        "seq-length? & !encoder-seq-length?",
        {"encoder-seq-length": "{seq-length}"},
        "The argument is another name of --seq-length.",
        arguments(690, 824),
    ),
    sets(
        "MLM-SET-GELU-FUSION",
        "disable-bias-linear",
        {"no-bias-gelu-fusion": True},
        "There is no bias to fuse with GELU.",
        arguments(785, 966),
    ),
    sets(
        "MLM-SET-QKV-BIAS",
        "!disable-bias-linear",
        {"add-qkv-bias": True},
        "A bias on all linear layers includes queries, keys and values.",
        arguments(789, 970),
        {"megatron_lm": (None, None), "mindspeed": (None, "2.1.0")},  # later ones: MS-QKV-BIAS
    ),
    sets(
        "MLM-SET-ROPE-FUSION",
        "position-embedding-type!=rope",
        {"no-rope-fusion": True},
        "The fused kernel supports RoPE only.",
        arguments(818, 995),
        SINCE_12,
    ),
    sets(
        "MLM-SET-DENSE",
        "num-experts? & num-experts=0",
        {"num-experts": None},
        "A model with 0 experts is dense.",
        arguments(838, 1015),
    ),
    sets(
        "MLM-SET-EXPERT-WIDTH",
        "!moe-ffn-hidden-size? & ffn-hidden-size?",
        {"moe-ffn-hidden-size": "{ffn-hidden-size}"},
        "The FFN width of experts is that of dense layers by default.",
        arguments(843),
        UNTIL_12,
    ),
    sets(
        "MLM-SET-EXPERT-WIDTH-16",
        "num-experts? & !moe-ffn-hidden-size? & ffn-hidden-size?",
        {"moe-ffn-hidden-size": "{ffn-hidden-size}"},
        "The FFN width of experts is that of dense layers by default.",
        arguments("", 1017),
        SINCE_THIRTEEN,
    ),
    sets(
        "MLM-SET-SOFTMAX",
        "apply-query-key-layer-scaling",
        {"attention-softmax-in-fp32": True},
        "Scaling attention scores by the layer needs a softmax in fp32.",
        arguments(888, 1085),
    ),
)
_CONFIGURED = (
    sets(
        "MLM-SET-QUERY-GROUPS",
        "!group-query-attention & num-attention-heads?",
        {"num-query-groups": "{num-attention-heads}"},
        "Without --group-query-attention every head has its own keys and values.",
        f"{config(572, 937)}; {arguments(1037, 1351)}",
    ),
    sets(
        "MLM-SET-CAPACITY",
        "moe-expert-capacity-factor? & moe-expert-capacity-factor<0",
        {"moe-expert-capacity-factor": None},
        "A negative capacity factor means no capacity: no tokens are dropped.",
        config(655, 1107),
    ),
    sets(
        "MLM-SET-ROPE-TYPE",
        "multi-latent-attention & !rope-type?",
        {"rope-type": "yarn"},
        "The default RoPE type of multi-latent attention is YaRN.",
        config("", 2034),
        SINCE_FOURTEEN,
    ),
    sets(
        "MLM-SET-EMBEDDING-STD",
        "!embedding-init-method-std?",
        {"embedding-init-method-std": "{init-method-std}"},
        "Embeddings are initialised like the other weights by default.",
        config("", 1564),
        SINCE_FOURTEEN,
    ),
    sets(
        "MLM-SET-PADDING",
        "moe-router-padding-for-fp8",
        {"moe-router-padding-for-quantization": True},
        "The older switch means padding for every quantized format.",
        config("", 1619),
        SIXTEEN,
    ),
    replace(
        sets(
            "MLM-SET-NO-ROPE",
            f"{_EVERY_FEW}?",
            {_EVERY_FEW: _places},
            "A number is expanded to the list of layers without RoPE.",
            config("", 1973),
            SINCE_THIRTEEN,
            f"num-layers {_EVERY_FEW}",
        ),
        check=lambda context: (
            context.number(_EVERY_FEW) > 0 and context.number("num-layers") % context.number(_EVERY_FEW) == 0
        ),
    ),
)
declare(_VALIDATED, backends=BACKENDS)
declare(_CONFIGURED, backends=BACKENDS, phase="config")

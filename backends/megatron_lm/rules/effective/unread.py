"""What training does not read of the arguments after validation, and other arguments with which it is the same."""

from dataclasses import replace

from backends.megatron_lm.mapping.checkpoint import OLD_FORMAT, PARALLEL_SAVE, SAVE_PRE_014
from backends.megatron_lm.mapping.chunks import CHUNKS, LAYERS_OF_CHUNK, chunks_of
from backends.megatron_lm.mapping.evaluation import EVAL_INTERVAL
from backends.megatron_lm.mapping.kernels import FLASH_SWITCH
from backends.megatron_lm.mapping.positions import NO_POSITIONS
from backends.megatron_lm.rules.effective.tables import ALONE, SIXTEEN, unread, unread_args
from backends.megatron_lm.rules.versions import BACKENDS, EVERY, PLAIN, SINCE_12, arguments
from launcher.job import Value
from launcher.list_expression import expand
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare

_FREQUENCY = "moe-layer-freq"


def _layers(context: RuleContext) -> Value:
    """Return a pattern of layers as its list; None where it is a number, or none that Megatron-LM reads."""
    places = context.flag(_FREQUENCY)
    kinds = expand(places) if isinstance(places, str) else None
    return None if kinds is None else str(kinds)


def _chunks(context: RuleContext) -> Value:
    """Return the number of chunks; None for one, which is the plain schedule."""
    found = chunks_of(context.values) or 1
    return found if found > 1 else None


declare(
    (
        unread(
            "MLM-UNREAD-MCORE",
            "use-mcore-models",
            "use-mcore-models",
            "Models are Megatron-core's unless --use-legacy-models is given.",
            "Megatron-LM core_v0.12.1 arguments.py:1746",
            SINCE_12,
        ),
        unread_args("MLM-UNREAD-PARALLEL-SAVE", PARALLEL_SAVE, EVERY),
        unread_args("MLM-UNREAD-DIST-CKPT", OLD_FORMAT, SINCE_12),
        unread(
            "MLM-UNREAD-ROTARY",
            "use-rotary-position-embeddings",
            "use-rotary-position-embeddings",
            "The older switch means --position-embedding-type rope.",
            arguments(812, 990),
        ),
        unread_args("MLM-UNREAD-FLASH", FLASH_SWITCH, ALONE),
        unread(
            "MLM-UNREAD-EVAL-INTERVAL",
            "eval-interval=None",
            "",
            "Without an interval 0.16 divides by None: the launcher always writes the default of 0.12.",
            "Megatron-LM core_v0.16.1 training.py:3307",
            SIXTEEN,
            {"eval-interval": EVAL_INTERVAL},
        ),
        replace(
            unread(
                "MLM-UNREAD-CHUNK-LAYERS",
                f"{LAYERS_OF_CHUNK}?",
                LAYERS_OF_CHUNK,
                "The layers per chunk are converted to a number of chunks.",
                arguments("443-464", "515-556"),
                ALONE,
                {CHUNKS: _chunks},
            ),
            check=lambda context: chunks_of(context.values) is not None,
            reads="num-layers pipeline-model-parallel-size",
        ),
        unread(
            "MLM-UNREAD-P2P",
            "@chunks<=1",
            "no-overlap-p2p-communication no-align-param-gather",
            "Pipeline communication overlaps, and weight gathering is aligned, only in the interleaved schedule.",
            arguments("470, 471", "585, 586"),
            ALONE,
        ),
        unread(
            "MLM-UNREAD-DEEPEP",
            "moe-enable-deepep",
            "moe-enable-deepep",
            "The older switch means --moe-flex-dispatcher-backend deepep, the default.",
            "megatron-core 0.16.1 transformer_config.py:1063",
            SIXTEEN,
        ),
        unread(
            "MLM-UNREAD-SINKHORN",
            "moe-router-load-balancing-type=sinkhorn",
            "moe-router-pre-softmax",
            "Sinkhorn routing computes its own scores.",
            "megatron-core 0.12.1 moe/router.py:142; megatron-core 0.16.1 moe/router.py:220",
        ),
        unread(
            "MLM-UNREAD-PRE-SOFTMAX",
            "moe-router-score-function=sigmoid",
            "moe-router-pre-softmax",
            "Sigmoid scores are always computed before top-k.",
            "megatron-core 0.12.1 moe/moe_utils.py:544; megatron-core 0.16.1 moe/moe_utils.py:717",
        ),
        unread(
            "MLM-UNREAD-GQA",
            "group-query-attention",
            "group-query-attention",
            "Training reads --num-query-groups only.",
            arguments(1034, 1348),
            EVERY,
        ),
        unread_args("MLM-UNREAD-POSITIONS", NO_POSITIONS),
        replace(
            unread(
                "MLM-UNREAD-PATTERN",
                "num-experts?",
                "",
                "A pattern of layers means the list that it expands to.",
                "Megatron-LM core_v0.12.1 arguments.py:249; Megatron-LM core_v0.16.1 arguments.py:231",
                EVERY,
                {_FREQUENCY: _layers},
            ),
            check=lambda context: _layers(context) is not None,
        ),
        unread(
            "MLM-UNREAD-EXPERT-TP",
            "!num-experts",
            "expert-tensor-parallel-size",
            "A dense model has no experts to divide.",
            arguments(359, 410),
        ),
    ),
    backends=BACKENDS,
)
declare((unread_args("MLM-UNREAD-PRE-014", SAVE_PRE_014, SIXTEEN),), backends=PLAIN)

"""What validation sets in Megatron-LM 0.14 and 0.15 only: the RNG tracker of CUDA graphs."""

from backends.megatron_lm.rules.effective.tables import sets
from backends.megatron_lm.rules.versions import PLAIN, SINCE_14, SINCE_15, UNTIL_14, UNTIL_15, validated
from launcher.rules.table import declare

_TRACKER = "te-rng-tracker"
_FOURTEEN = {"megatron_lm": (SINCE_14, UNTIL_14)}
_FIFTEEN = {"megatron_lm": (SINCE_15, UNTIL_15)}
_DOC = "CUDA graphs need Transformer Engine's RNG tracker."

declare(
    (
        *(
            sets(
                f"MLM-SET-GRAPH-RNG-{name}-14",
                f"{flag} & transformer-impl=transformer_engine & !{_TRACKER}",
                {_TRACKER: True},
                _DOC,
                validated("0.14.0", 1106),
                _FOURTEEN,
            )
            for name, flag in (("LOCAL", "enable-cuda-graph"), ("TE", "external-cuda-graph"))
        ),
        sets(
            "MLM-SET-GRAPH-RNG-15",
            f"cuda-graph-impl!=none & transformer-impl=transformer_engine & !{_TRACKER}",
            {_TRACKER: True},
            _DOC,
            validated("0.15.3", 1196),
            _FIFTEEN,
        ),
    ),
    backends=PLAIN,
)

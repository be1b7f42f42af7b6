"""Values that Megatron-SWIFT fills in where none is written, without a finding."""

from backends.megatron.rules.terms import BACKENDS
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare


def _rate(facts: RuleContext) -> float:
    trained = facts.flag("tuner_type") if facts.knows("tuner_type") else facts.flag("train_type")
    return 1e-5 if (trained or "full") == "full" else 1e-4


declare(
    (
        Rule(
            id="SW-SET-LR",
            severity="change",
            phase="parse",
            when="!lr?",
            sets={"lr": _rate},
            reads="tuner_type train_type",
            doc="The learning rate depends on what is trained: all weights or adapters.",
            source="ms-swift 3.12.6 megatron_args.py:615; ms-swift 4.0.0 arguments/megatron_args.py:570",
            since="3.7",
        ),
    ),
    backends=BACKENDS,
)

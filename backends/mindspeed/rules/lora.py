"""MindSpeed-LLM's LoRA is on where there are target modules, and only there."""

from collections.abc import Iterator

from backends.mindspeed.mapping.lora import ALL_LAYERS
from backends.mindspeed.rules.tables import MINDSPEED
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.terminal import with_verb

_TARGETS, _FILTER = "lora-target-modules", "lora-ckpt-filter"
_OPTIONS = (
    *("lora-r", "lora-alpha", "lora-load", "lora-fusion", "lora-modules-to-save", "lora-register-forward-hook"),
    *("qlora", "lu-lora-final-layer-index"),
)


@rule(
    "MS-LORA-OFF",
    source="MindSpeed-LLM 26.1.0 tasks/posttrain/lora/utils.py:25; training/training.py:151",
    reads=" ".join((*_OPTIONS, _TARGETS)),
    severity="warning",
    phase="model",
    backends=MINDSPEED,
)
def options_need_target_modules(context: RuleContext) -> Iterator[Violation]:
    """LoRA is on if and only if there are target modules; without them its rank, scale and adapters are not read."""
    given = tuple(name for name in _OPTIONS if context.values.get(name) not in (None, False))
    if given and not context.items(_TARGETS):
        names = with_verb([f"--{name}" for name in given], "has", "have")
        yield Violation(
            message=f"{names} no effect without --{_TARGETS}: there are no adapters, all parameters are trained",
            flags=(*given, _TARGETS),
            works=(f"backend.args.{_TARGETS}=[{','.join(ALL_LAYERS)}]", *_without(context, given)),
        )


def _without(context: RuleContext, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the change that leaves arguments out."""
    return (tuple(f"backend.args.{context.key(name)}=null" for name in names),)


@rule(
    "MS-LORA-FILTER-EMPTY",
    source="MindSpeed-LLM 26.1.0 tasks/posttrain/lora/utils.py:65; training/checkpointing.py:387",
    reads=f"{_FILTER} {_TARGETS}",
    severity="warning",
    phase="launch",
    backends=MINDSPEED,
)
def filter_needs_target_modules(context: RuleContext) -> Iterator[Violation]:
    """Only the weights of adapters are saved, and without target modules there are none."""
    if context.flag(_FILTER) and not context.items(_TARGETS):
        yield Violation(
            message=f"--{_FILTER} saves the weights of adapters only, and without --{_TARGETS} there are none: "
            "checkpoints hold no weights",
            flags=(_FILTER, _TARGETS),
            works=_without(context, (_FILTER,)),
        )

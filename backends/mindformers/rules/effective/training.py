"""What the trainer makes of the schedule of the learning rate and of the data."""

from collections.abc import Mapping
from typing import Any

from backends.mindformers.mapping.batch_arithmetic import steps_of
from backends.mindformers.mapping.loader import FULL_MASK, HUB, LOADER, MEGATRON, TYPE, columns_of_file, strategy
from backends.mindformers.mapping.support import frozen
from backends.mindformers.rules.effective.tables import sets, unless, unless_zero
from backends.mindformers.rules.terms import BACKENDS, DP, FULL_BATCH, STRATEGY
from launcher.job import Value
from launcher.mapping.rows import NativeView
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare, unread

_LR = "lr_schedule."
_SCHEDULES = "mindformers 2.1.0 core/lr/lr_schedule.py"
_COLUMNS, _ARGUMENTS = "train_dataset.input_columns", "train_dataset.construct_args_key"
_SHUFFLE = f"{LOADER}shuffle"
# Default of lr_end by schedule; None: the schedule ignores the key.
_ENDS: Mapping[str, float | None] = {
    "ConstantWarmUpLR": None,
    "LinearWithWarmUpLR": None,
    "CosineWithWarmUpLR": 0.0,
    "PolynomialWithWarmUpLR": 1e-7,
    "WarmUpStableDecayLR": 1e-7,
}
_OF_A_KIND = f"{_LR}type={'|'.join(_ENDS)}"


def _steps(context: RuleContext) -> Value:
    steps = steps_of(NativeView(context.values))
    return context.values.get(f"{_LR}total_steps") if steps is None else steps


def _data(context: RuleContext) -> Mapping[str, Value]:
    """Return the columns, their split and full_batch, which follow from each other and from the mask."""
    values, view = context.values, NativeView(context.values)
    kind, found = values.get(TYPE), dict[str, Value]()
    if kind == HUB and f"{LOADER}{FULL_MASK}" not in values:
        found[f"{LOADER}{FULL_MASK}"] = "attention_mask" in columns_of_file(view)
    written = frozen(values.get(_COLUMNS))
    columns: Any = written if written and isinstance(written, tuple) else columns_of_file(view)
    found[_COLUMNS] = values.get(_COLUMNS, columns)
    found[_ARGUMENTS] = values.get(_ARGUMENTS, found[_COLUMNS])
    split = values.get(STRATEGY)
    if split is None and len(columns) > 3:
        split = strategy(columns, context.number(DP, 1))
    if split is not None:
        found |= {STRATEGY: split, FULL_BATCH: False}
    return found


declare(
    (
        sets(
            "MF-SET-STEPS",
            f"{_OF_A_KIND} & {_LR}total_steps=None|-1",
            {f"{_LR}total_steps": _steps},
            "The default length of a learning rate schedule is that of training.",
            "mindformers 1.8.0 trainer/base_trainer.py:698",
            reads="*",
        ),
    ),
    backends=BACKENDS,
    phase="config",
)
declare(
    (
        unread(
            "MF-UNREAD-WARMUP-STEPS",
            f"{_OF_A_KIND} & {_LR}warmup_ratio?",
            f"{_LR}warmup_steps",
            "warmup_ratio takes precedence over warmup_steps.",
            f"{_SCHEDULES} _get_lr_steps",
            equivalent={f"{_LR}warmup_ratio": unless_zero(f"{_LR}warmup_ratio")},
        ),
        unread(
            "MF-UNREAD-NO-WARMUP",
            _OF_A_KIND,
            (),
            "The default is no warm-up.",
            f"{_SCHEDULES} _get_lr_steps",
            equivalent={f"{_LR}{name}": unless_zero(f"{_LR}{name}") for name in ("warmup_steps", "warmup_lr_init")},
        ),
        *(
            unread(
                f"MF-UNREAD-LR-END-{kind.upper()}",
                f"{_LR}type={kind}",
                f"{_LR}lr_end" if end is None else (),
                "This schedule ignores lr_end." if end is None else "This is the default of lr_end.",
                f"{_SCHEDULES} {kind}",
                equivalent={} if end is None else {f"{_LR}lr_end": unless(f"{_LR}lr_end", end)},
            )
            for kind, end in _ENDS.items()
        ),
        unread(
            "MF-UNREAD-POWER",
            f"{_OF_A_KIND} & {_LR}power?",
            f"{_LR}power",
            "A linear schedule has no power; 1 is the default of the others.",
            _SCHEDULES,
            check=lambda context: context[f"{_LR}type"] == "LinearWithWarmUpLR" or context[f"{_LR}power"] == 1.0,
        ),
        unread(
            "MF-UNREAD-SHUFFLE",
            f"!{_SHUFFLE}",
            _SHUFFLE,
            "The loader of token files does not shuffle by default.",
            "mindformers 2.1.0 dataset/dataloader/blended_megatron_dataloader.py",
            check=lambda context: context.values.get(TYPE) in (None, MEGATRON),
            reads=TYPE,
        ),
        unread(
            "MF-UNREAD-COLUMNS",
            f"{TYPE}={MEGATRON}|{HUB}",
            (),
            "The default columns and their split depend on the attention mask.",
            "mindformers 1.8.0 trainer/base_trainer.py:892",
            equivalent=_data,
            reads="*",
        ),
        unread(
            "MF-UNREAD-STRATEGY",
            f"{FULL_BATCH}=True|None",
            STRATEGY,
            "full_batch replaces another dataset_strategy.",
            "mindformers 1.8.0 trainer/base_trainer.py:205",
        ),
    ),
    backends=BACKENDS,
    phase="launch",
)

"""What validation sets of training: data, precision, optimizer, checkpoints."""

from backends.megatron_lm.mapping.tokenizer import TOKENIZER
from backends.megatron_lm.rules.effective.tables import ALONE, SIXTEEN, UNTIL_SEVENTEEN, sets
from backends.megatron_lm.rules.versions import BACKENDS, UNTIL_16, arguments
from launcher.job import Value
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare
from launcher.syntax import is_count

_PHASES, _FP32 = "phase-transition-iterations", "accumulate-allreduce-grads-in-fp32"
_NAN = "no-check-for-nan-in-loss-and-grad"


def _in_order(context: RuleContext) -> Value:
    text = str(context[_PHASES])
    return ",".join(str(step) for step in sorted(int(part) for part in text.split(",") if is_count(part.strip())))


declare(
    (
        sets(
            "MLM-SET-TOKENIZER",
            "!tokenizer-type?",
            {"tokenizer-type": TOKENIZER},
            "The entry point pretrain_gpt.py has a default tokenizer.",
            "Megatron-LM core_v0.12.1 pretrain_gpt.py:326; Megatron-LM core_v0.16.1 pretrain_gpt.py:347",
            ALONE,
        ),
        sets(
            "MLM-SET-SPLIT",
            "data-path? & !split?",
            {"split": "969, 30, 1"},
            "This is the default split into training, validation and test data.",
            arguments(402, 472),
        ),
        sets(
            "MLM-SET-PHASES",
            f"{_PHASES}?",
            {_PHASES: _in_order},
            "Phase transitions are sorted.",
            arguments("", 489),
            SIXTEEN,
            _PHASES,
        ),
        sets(
            "MLM-SET-NAN-CHECK",
            "fp16 & !loss-scale",
            {_NAN: True},
            "Dynamic loss scaling expects infinite gradients, and switches their check off.",
            arguments(578, 708),
        ),
        sets(
            "MLM-SET-GRADS-BF16",
            f"bf16 & grad-reduce-in-bf16 & {_FP32}",
            {_FP32: False},
            "Gradients that are reduced in bf16 are not accumulated in fp32.",
            arguments(592, 721),
        ),
        sets(
            "MLM-SET-GRADS-FP32",
            "bf16 & !grad-reduce-in-bf16 & main-grads-dtype=fp32|None",
            {_FP32: True},
            "Training in bf16 reduces and accumulates gradients in fp32.",
            arguments(594, 723),
        ),
        sets(
            "MLM-SET-LOADER",
            "!dataloader-type?",
            {"dataloader-type": "single"},
            "The default dataloader is single: it reads the data once, in order.",
            arguments(604, 736),
        ),
        sets(
            "MLM-SET-DECAY-OF-NORMS",
            "no-weight-decay-cond-type=apply_wd_to_qk_layernorm",
            {"apply-wd-to-qk-layernorm": True, "no-weight-decay-cond-type": None},
            "The older argument means the switch.",
            arguments("", "862, 865"),
            SIXTEEN,
        ),
        sets(
            "MLM-SET-DECAY",
            "weight-decay-incr-style=constant & !start-weight-decay? & !end-weight-decay?",
            {"start-weight-decay": "{weight-decay}", "end-weight-decay": "{weight-decay}"},
            "Constant weight decay starts and ends with the same value.",
            arguments("720, 721", "870, 871"),
        ),
        sets(
            "MLM-SET-FAKE-GROUPS",
            "fake-process-group",
            {_NAN: True, "disable-gloo-process-groups": True},
            "Process groups without communication have no values to check.",
            arguments("", "1109, 1112"),
            SIXTEEN,
        ),
        sets(
            "MLM-SET-ASYNC-SAVE",
            "async-save & !use-persistent-ckpt-worker & ckpt-format!=torch",
            {"async-save": False},
            "Asynchronous saving needs --use-persistent-ckpt-worker.",
            arguments("", 1144),
            SIXTEEN,
        ),
        sets(
            "MLM-SET-UPCYCLING",
            "moe-use-upcycling",
            {"no-load-optim": True, "no-load-rng": True},
            "Optimizer and RNG states of a dense model do not fit an MoE model.",
            arguments("938, 941", "1166, 1169"),
        ),
        sets(
            "MLM-SET-SKIP-TRAIN",
            "skip-train",
            {"no-load-optim": True},
            "Without training no optimizer state is read.",
            arguments("", 1174),
            {"megatron_lm": ("0.16", UNTIL_16)},
        ),
        sets(
            "MLM-SET-REPLICATION",
            "!replication & replication-jump",
            {"replication-jump": None},
            "Without --replication the distance between replicas has no effect.",
            arguments(959, 1207),
        ),
        sets(
            "MLM-SET-TOKENS",
            "tiktoken-special-tokens & !tokenizer-special-tokens?",
            {"tokenizer-special-tokens": "{tiktoken-special-tokens}"},
            "The older argument sets the special tokens of every tokenizer.",
            arguments("", 1280),
            UNTIL_SEVENTEEN,
        ),
    ),
    backends=BACKENDS,
)

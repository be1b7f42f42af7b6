"""Where a checkout of Megatron-LM, or of a fork of it, has its parser."""

from typing import Any

from backends.megatron_lm.other_programs import OTHER_MODELS
from launcher.catalogue.checkout.read import ParserSource

# deepspeed/__init__.py:252 _add_core_arguments @v0.16.2
_OF_DEEPSPEED: tuple[dict[str, Any], ...] = tuple(
    {
        "name": name,
        "dest": name,
        "group": "DeepSpeed",
        "owner": "_add_core_arguments",
        "source": "deepspeed/__init__.py",
        **row,
    }
    for name, row in (
        ("deepspeed", {"type": "bool", "action": "store_true", "default": False, "help": "Train with DeepSpeed."}),
        ("deepspeed_config", {"default": None, "help": "DeepSpeed's JSON configuration."}),
        ("deepscale", {"type": "bool", "action": "store_true", "default": False, "help": "Old name of --deepspeed."}),
        ("deepscale_config", {"default": None, "help": "Old name of --deepspeed_config."}),
    )
)

_PARSER = ParserSource(
    files=("megatron/training/arguments.py", "megatron/arguments.py", "arguments.py"),
    functions=("parse_args", "get_args", "add_megatron_arguments"),
    provider_argument="extra_args_provider",
    training_call="pretrain",
    positional_call="initialize_megatron",
    skipped=(
        "tests",
        "test",
        "tools",
        "toolkits",
        "tasks",
        "docs",
        "benchmarks",
        "detxoify_lm",
        "unit_tests",
        "functional_tests",
    ),
    not_entries=OTHER_MODELS,
    group_class="ArgumentGroupFactory",
    types={
        "moe_freq_type": "expr",
        "la_freq_type": "expr",
        "no_rope_freq_type": "expr",
        "tuple_type": "ints",
    },
    outside={"deepspeed.add_config_arguments": _OF_DEEPSPEED},
)


def parser_source() -> ParserSource:
    """Return it."""
    return _PARSER

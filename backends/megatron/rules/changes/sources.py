"""Row factory and sources of what ms-swift's argument classes set, in their order."""

from functools import partial

from backends.megatron.rules.terms import FOUR
from launcher.rules import table

ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
BASE = "ms-swift 4.6.0 megatron/arguments/megatron_base_args.py"
UTILS = "ms-swift 4.6.0 megatron/model/utils.py"
BRIDGE = "mcore-bridge 1.6.5 config/model_config.py"
CORE = "megatron-core 0.16.1 transformer/transformer_config.py"

sets = partial(table.sets, since=FOUR)
"""Return a row of arguments that are set by classes that 4.0 has as well."""

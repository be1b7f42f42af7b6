"""Names that MindSpeed-LLM looks up after its parser took them as any text; others are Megatron-LM's."""

from functools import partial

from backends.mindspeed.rules.tables import MINDSPEED
from launcher.rules.known_names import without_layers
from launcher.rules.table import checked, declare

_FLAG = "lora-target-modules"

# fmt: off
declare((
    checked("MS-LORA-NAMES", partial(without_layers, _FLAG),
            "PEFT refuses adapters none of whose names matches a layer.",
            "MindSpeed-LLM 26.1.0 training/training.py:185; peft 0.20.0, BaseTuner.inject_adapter", reads=_FLAG,
            flags=(_FLAG,)),
), backends=MINDSPEED)
# fmt: on

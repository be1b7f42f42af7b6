"""LoRA adapter format of Megatron-SWIFT: loaded by `--mcore_adapter`, saved by training with `--tuner_type lora`.

Source: mcore-bridge 1.6.5 tuners/lora.py; ms-swift 4.6.0 megatron/utils/megatron_lm_utils.py (saved weights:
_filter_adapter_state_dict), megatron/arguments/megatron_args.py (values read from args.json beside the checkpoint).
"""

from __future__ import annotations

import json
from typing import Any

from launcher.convert.formats.format import Target
from launcher.convert.lora.logical import target_modules
from launcher.convert.lora.stack import AdapterStack, adapter_of
from launcher.convert.lora.torch_dist import torch_dist_adapters


def _arguments(target: Target) -> dict[str, Any]:
    adapter = adapter_of(target)
    return {
        "tuner_type": "lora",
        "lora_rank": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "lora_bias": "none",
        "use_rslora": adapter.rslora,
        "target_modules": target_modules(adapter.base, adapter.modules),
        "modules_to_save": [],
    }


def _files(target: Target) -> dict[str, str]:
    return {"args.json": json.dumps(_arguments(target), indent=2) + "\n"}


def _refused(target: Target) -> list[str]:
    sparse = any(instance.expert is not None for instance in target.logical.instances)
    if sparse and (target.layout.etp or 1) > 1:
        return ["parallel.etp: LoRA of experts under expert tensor parallelism is refused there; works: parallel.etp=1"]
    return []


FORMAT = torch_dist_adapters(
    "megatron_adapter",
    "Megatron-SWIFT LoRA (torch_dist)",
    AdapterStack(arguments=_arguments, files=_files, refused=_refused),
)
"""Checkpoint format that `--mcore_adapter` loads."""
READS_PEFT = True
"""`--adapters` loads PEFT's format (ms-swift 4.6.0 megatron/trainers/base.py:209)."""

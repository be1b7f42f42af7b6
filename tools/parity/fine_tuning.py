"""The jobs of supervised fine-tuning, which have a table of their own."""

from collections.abc import Mapping

from tools.parity.case import Case, unfused

_SFT = ("+recipe=tiny_qwen3", "task=sft")
_TWO = "cluster.devices_per_node=2"
_PER_TOKEN = "precision.calculate_per_token_loss=true"

CASES: Mapping[str, Case] = {
    "SFT, Qwen3": unfused(*_SFT),
    "SFT, Qwen3, loss per token": unfused(*_SFT, _PER_TOKEN),
    "SFT, Qwen3, packed": unfused(*_SFT, "batch.packing=true"),
    "SFT, Qwen3, dp 2": unfused(*_SFT, _TWO),
    "SFT, Qwen3, tp 2": unfused(*_SFT, _TWO, "parallel.tp=2", "parallel.sequence_parallel=true"),
    "SFT, Qwen3, pp 2": unfused(*_SFT, _TWO, "parallel.pp=2"),
    "SFT, Qwen3, cp 2, loss per token": unfused(*_SFT, _TWO, "parallel.cp=2", _PER_TOKEN, mindspeed="MS-SFT-CP-SHIFT"),
    "SFT, Qwen3, cp 2, packed": unfused(*_SFT, _TWO, "parallel.cp=2", "batch.packing=true", megatron="SW-CP-MEAN"),
    "SFT, Qwen3, cp 2, packed, loss per token": unfused(*_SFT, _TWO, "parallel.cp=2", "batch.packing=true", _PER_TOKEN),
    "SFT, Qwen3-MoE": unfused("+recipe=tiny_qwen3_moe", "task=sft", mindspeed="MS-MOE-PADDING"),
    "SFT, Qwen3-MoE, no load balancing": unfused("+recipe=tiny_qwen3_moe", "task=sft", "moe.aux_loss_coeff=0"),
}
"""Name to the overrides of `launch parity`."""

"""The jobs of direct preference optimisation, which have a table of their own."""

from collections.abc import Mapping

from tools.parity.case import Case, unfused

_DPO = ("+recipe=tiny_qwen3", "task=dpo")
_TWO = "cluster.devices_per_node=2"

CASES: Mapping[str, Case] = {
    "DPO, Qwen3": unfused(*_DPO),
    "DPO, Qwen3, label smoothing 0.1, beta 0.5": unfused(*_DPO, "task.label_smoothing=0.1", "task.beta=0.5"),
    "DPO, Qwen3, loss of preferred answers": unfused(*_DPO, "task.rpo_alpha=1.0", mindspeed="MS-DPO-FTX-MEAN"),
    "DPO, Qwen3, dp 2": unfused(*_DPO, _TWO),
    "DPO, Qwen3, tp 2": unfused(*_DPO, _TWO, "parallel.tp=2", "parallel.sequence_parallel=true"),
    "DPO, Qwen3, pp 2": unfused(*_DPO, _TWO, "parallel.pp=2"),
    "DPO, Qwen3, cp 2": unfused(*_DPO, _TWO, "parallel.cp=2"),
}

"""Table of MindFormers YAML settings that differ on CPU: applied to the file and reported to the user."""

from collections.abc import Mapping
from dataclasses import dataclass

from launcher.job import Value
from launcher.job.finding import Finding, Fix


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuChange:
    """One argument whose value differs on MindSpore's CPU target.

    Attributes:
        flag: dotted path in the YAML; with a trailing ``.`` every argument below it.
        value: new value; None removes it.
        why: the reason, for the user.
        of: the values that need the change; empty for all.
        always: set it also if the YAML omits it.
        where: another flag that must be set to something; "": none.
    """

    flag: str
    value: Value
    why: str
    of: tuple[Value, ...] = ()
    always: bool = False
    where: str = ""

    def concerns(self, flag: str, value: Value) -> bool:
        """Return whether an argument of the YAML must be changed."""
        same = flag.startswith(self.flag) if self.flag.endswith(".") else flag == self.flag
        return same and value != self.value and (not self.of or value in self.of)


_NO_HALF = "the CPU target has no bfloat16 or float16 kernels"
_NO_PARTITION = (
    "MindSpore partitions graphs for Ascend only (on CPU: Invalid backend); data parallelism is what remains"
)
_HALF = ("bfloat16", "float16", "bf16", "fp16")

CHANGES: tuple[CpuChange, ...] = (
    CpuChange(flag="context.device_target", value="CPU", why="there is no Ascend device here", always=True),
    CpuChange(flag="parallel.parallel_mode", value=0, why=_NO_PARTITION),
    CpuChange(
        flag="parallel.gradients_mean",
        value=True,
        why="data parallel mode sums gradients otherwise; the semi-automatic mode means them in the loss",
        always=True,
    ),
    CpuChange(flag="parallel.full_batch", value=False, why="data parallel ranks read their own share", of=(True,)),
    CpuChange(flag="parallel.enable_parallel_optimizer", value=False, why=_NO_PARTITION),
    CpuChange(flag="parallel.parallel_optimizer_config.", value=None, why=_NO_PARTITION),
    CpuChange(
        flag="auto_trans_ckpt",
        value=False,
        why="data parallel ranks save whole models: there is no layout to convert",
        where="load_checkpoint",
    ),
    CpuChange(
        flag="model.model_config.use_rope_slice",
        value=True,
        why="the CPU target's BatchMatMul does not broadcast the matrix that rotates positions otherwise",
        always=True,
        where="use_legacy",
    ),
    *(
        CpuChange(flag=f"model.model_config.{name}", value="float32", why=_NO_HALF, of=_HALF)
        for name in (
            "params_dtype",
            "compute_dtype",
            "layernorm_compute_dtype",
            "softmax_compute_dtype",
            "rotary_dtype",
            "embedding_init_dtype",
            "moe_router_dtype",
            "layernorm_compute_type",
            "softmax_compute_type",
            "param_init_type",
        )
    ),
)
"""Tested with MindFormers 1.6.0 (mindspore 2.7.0) and 1.8.0 (2.7.2). Nothing else in the file is changed."""

_REFUSED: Mapping[str, tuple[str, str]] = {
    "parallel_config.model_parallel": ("parallel.tp", "parallel.tp=1"),
    "parallel_config.pipeline_stage": ("parallel.pp", "parallel.pp=1"),
    "parallel_config.context_parallel": ("parallel.cp", "parallel.cp=1"),
    "parallel_config.expert_parallel": ("parallel.ep", "parallel.ep=1"),
}
"""Sizes that must be 1 without graph partitioning: flag to the canonical field and a valid setting."""


def for_cpu(flat: Mapping[str, Value]) -> tuple[dict[str, Value], list[str]]:
    """Return the arguments for CPU, in the same order, and one line for the user per changed argument."""
    changed, lines = dict(flat), []
    for change in CHANGES:
        if change.where and not flat.get(change.where):
            continue
        hits = [flag for flag, value in flat.items() if change.concerns(flag, value)]
        if change.always and change.flag not in flat:
            hits.append(change.flag)
        for flag in hits:
            before = f"{flag}: {flat[flag]}" if flag in flat else f"{flag} (not set)"
            if change.value is None:
                del changed[flag]
            else:
                changed[flag] = change.value
            after = "left out" if change.value is None else f"{change.value}"
            lines.append(f"changed for CPU: {before} -> {after} ({change.why})")
    return changed, lines


def refusals(flat: Mapping[str, Value]) -> list[Finding]:
    """Return the reasons why a file cannot be trained on CPU; empty if it can."""
    return [
        _refusal(
            f"{flag}={flat[flag]} needs MindSpore's graph partition, which is for Ascend only", (field,), (flag,), fix
        )
        for flag, (field, fix) in _REFUSED.items()
        if flat.get(flag, 1) not in (None, 1)
    ]


def _refusal(message: str, fields: tuple[str, ...], flags: tuple[str, ...], works: str) -> Finding:
    return Finding(
        rule="REHEARSE-MINDFORMERS-CPU",
        severity="error",
        message=f"rehearse.entry=native cannot train this on CPU: {message}",
        fields=fields,
        flags=flags,
        fixes=(Fix(overrides=(works,)),),
        source="mindspore 2.7.0",
    )

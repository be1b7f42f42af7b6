"""What ms-swift sets of the layout over devices."""

from backends.megatron.rules.changes.sources import ARGS, sets
from backends.megatron.rules.terms import FOUR
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.sanity_checks import layout_chunks

_LAYOUT, _STAGES = "pipeline_model_parallel_layout", "pipeline_model_parallel_size"
_VPP = "virtual_pipeline_model_parallel_size"


def _chunks(context: RuleContext) -> Value:
    count = len(layout_chunks(str(context[_LAYOUT]))) // max(1, context[_STAGES])
    return count if count > 1 else None


STAGES = (
    Rule(
        id="SW-SET-LAYOUT-VPP",
        severity="change",
        flags=(_VPP, _LAYOUT),
        when=f"{_LAYOUT}!=None",
        sets={_VPP: _chunks},
        reads=_STAGES,
        message="vpp {virtual_pipeline_model_parallel_size} → the chunks per stage of pipeline_model_parallel_layout",
        doc="The number of chunks follows from the layout.",
        source=f"{ARGS}:1107",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-VPP",
        severity="change",
        when=f"{_VPP}=1",
        sets={_VPP: None},
        message="vpp 1 → unset: one chunk per stage is the non-interleaved schedule",
        doc="One chunk per stage is the non-interleaved schedule.",
        source=f"{ARGS}:1110",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-P2P",
        severity="change",
        flags=("overlap_p2p_comm", _VPP),
        when=f"overlap_p2p_comm & {_VPP}=None",
        sets={"overlap_p2p_comm": False},
        message="overlap_p2p_comm true → false: only the interleaved schedule (vpp) overlaps pipeline communication",
        doc="Pipeline communication overlaps only in the interleaved schedule.",
        source=f"{ARGS}:1112",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-ALIGN",
        severity="change",
        flags=("align_param_gather", _VPP),
        when=f"align_param_gather & {_VPP}=None",
        sets={"align_param_gather": False},
        message="align_param_gather true → false: it has an effect only in the interleaved schedule (vpp)",
        doc="Weight gathering is aligned over chunks only.",
        source=f"{ARGS}:1113",
        since=FOUR,
        fields=("parallel.vpp",),
    ),
    sets(
        "SW-SET-BATCH-P2P",
        "batch_p2p_comm=None",
        {"batch_p2p_comm": lambda context: not context["overlap_p2p_comm"]},
        "Pipeline communication without overlap uses batched send/receive.",
        f"{ARGS}:1115",
        reads="overlap_p2p_comm",
        since="4.3",
    ),
)
DEVICES = (
    sets(
        "SW-SET-FLASH",
        "attention_backend=flash_2|flash_3|flash_4",
        {"attention_backend": "flash"},
        "The number is the version of flash attention that is used.",
        f"{ARGS}:998",
        since="4.3",
        reports_written=False,
    ),
    sets(
        "SW-SET-SP",
        "sequence_parallel & tensor_model_parallel_size<=1",
        {"sequence_parallel": False},
        "Sequence parallelism splits over tensor-parallel ranks, and there is only one.",
        f"{ARGS}:942",
    ),
    Rule(
        id="SW-SET-FSDP",
        severity="change",
        when="use_megatron_fsdp & !use_distributed_optimizer",
        sets={"use_distributed_optimizer": True},
        message="use_distributed_optimizer false → true: Megatron-FSDP needs it",
        doc="Megatron-FSDP includes the distributed optimizer.",
        source=f"{ARGS}:960",
        since="4.5",
    ),
    Rule(
        id="SW-SET-MUON",
        severity="change",
        flags=("optimizer", "use_distributed_optimizer"),
        when="optimizer=muon|dist_muon & use_distributed_optimizer",
        sets={"use_distributed_optimizer": False},
        reports_unwritten=True,
        message="use_distributed_optimizer true → false: {optimizer} does not support sharded optimizer states",
        doc="Muon works on whole matrices: optimizer states are not sharded.",
        source=f"{ARGS}:1031",
        since="4.1",
    ),
)

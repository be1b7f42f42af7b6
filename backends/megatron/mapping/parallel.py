"""Rows for parallelism, recomputation and overlap that differ from Megatron-LM's."""

from collections.abc import Mapping

from backends.megatron.mapping.factories import FOUR, THREE, above_one, only
from backends.megatron.mapping.options import option
from backends.megatron.mapping.sharding import sharding
from launcher.mapping.rows import Row, UnreadArgs, choice

OTHER_LIBRARY = UnreadArgs(
    flags=("distributed_backend",),
    why="swift has started the collectives with ddp_backend before.",
    source="ms-swift 3.12.6 megatron/argument/train_args.py:20",
    until=THREE,
)


def rows(version: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "parallel.tp": (above_one("parallel.tp", "tensor_model_parallel_size"),),
        "parallel.pp": (above_one("parallel.pp", "pipeline_model_parallel_size"),),
        "parallel.vpp": option("parallel.vpp", "num_virtual_stages_per_pipeline_rank", version),
        "parallel.cp": (above_one("parallel.cp", "context_parallel_size"),),
        "parallel.cp_algorithm": _context_parallel(),
        "parallel.ep": (above_one("parallel.ep", "expert_model_parallel_size"),),
        "parallel.layout": option("parallel.layout", "pipeline_model_parallel_layout", version)
        or (only("parallel.layout", (), "Megatron-LM 0.12 has no explicit layout"),),
        "parallel.distributed_optimizer": option(
            "parallel.distributed_optimizer", "use_distributed_optimizer", version
        ),
        "parallel.zero_stage": (
            sharding(),
            only(
                "parallel.zero_stage",
                (),
                "this version shards optimizer states only (parallel.distributed_optimizer)",
                ("parallel.zero_stage=null",),
                until="4.4.99",
            ),
        ),
        "parallel.communication.backend": (
            *option("parallel.communication.backend", "ddp_backend", version),
            OTHER_LIBRARY.row(),
        ),
        "overlap.p2p": option("overlap.p2p", "overlap_p2p_comm", version)
        or (
            only(
                "overlap.p2p",
                (True,),
                "3.x has no option: it overlaps wherever stages have several chunks",
                ("overlap.p2p=null",),
            ),
        ),
    }


def _context_parallel() -> tuple[Row, ...]:
    return (
        choice(
            "parallel.cp_algorithm",
            "cp_comm_type",
            {"megatron": "p2p", "ulysses": "a2a", "allgather": "all_gather"},
            why="swift does not build the groups of a two-level algorithm (megatron_lm_utils.py:72 @4.6.0)",
            since="4.4",
        ),
        only(
            "parallel.cp_algorithm",
            ("megatron",),
            "this version has no option for it and runs the ring (p2p)",
            ("parallel.cp_algorithm=megatron",),
            since=FOUR,
            until="4.3.99",
        ),
    )

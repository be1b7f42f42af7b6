"""Options of `launch estimate` and `launch search`."""

from launcher.job.option import option
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateOptions:
    """Options of `launch estimate`, and inputs that the rest of the job does not have."""

    enforce: bool = option(True, "`run` refuses a job that exceeds memory by more than the estimate's own error.")
    mem_factor: float = option(
        0.94, "Share of the reserved memory that tensors fill; reserved = allocated / mem_factor.", minimum=0.1
    )
    expert_imbalance: float = option(
        1.0,
        "Tokens that the experts of the busiest device get, relative to the mean of its expert-parallel group.",
        minimum=1.0,
    )
    attention_sparsity: float = option(
        0.0, "Share of attention that a sparse mask skips beyond the causal half; affects time only.", minimum=0
    )
    dispatch_probs: bool = option(
        True,
        "Router probabilities are dispatched with the tokens (Megatron-core from 0.14): the combine keeps no input.",
    )
    discard_last_output: bool = option(
        False, "A recomputed module's last GEMM is not run again (recompute_variance): affects time only."
    )


# What `launch search` varies. The first nine are one field each; recompute is granularity, method, layers and modules;
# stages are uneven splits, where layers do not divide; the rest stands in launcher/search/switches.py.
SEARCH_AXES = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "micro_batch_size",
    "sequence_parallel",
    "distributed_optimizer",
    "recompute",
    "stages",
    "dispatcher",
    "expert_overlap",
    "group_order",
    "dp_overlap",
    "tp_overlap",
    "cuda_graphs",
    "offload",
    "offload_modules",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What `launch search` varies, and how far."""

    axes: tuple[str, ...] = option((), "Axes that are searched; none: all.", choices=SEARCH_AXES)
    fix: tuple[str, ...] = option((), "Axes that keep the job's value.", choices=SEARCH_AXES)
    max_tp: int | None = option(None, "Largest tensor parallel size; none: devices per node.", minimum=1)
    max_pp: int = option(64, "Largest pipeline parallel size.", minimum=1)
    max_vpp: int | None = option(
        None,
        "Largest number of chunks per stage; none: 8, and every number that shares the layers equally.",
        minimum=1,
    )
    max_cp: int = option(16, "Largest context parallel size.", minimum=1)
    max_ep: int | None = option(None, "Largest expert parallel size; none: the number of experts.", minimum=1)
    max_etp: int | None = option(None, "Largest expert tensor parallel size; none: devices per node.", minimum=1)
    max_micro_batch_size: int = option(8, "Largest micro batch.", unit="samples", minimum=1)
    fit_probability: float | None = option(
        0.95,
        "Least probability that a candidate fits, by the errors of measured runs that are like it; none: the estimate "
        "alone decides.",
        minimum=0.5,
    )

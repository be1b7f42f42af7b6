"""What a stack keeps of a parameter, and what it hides of communication: a job's fields read by its profile."""

from launcher.estimate.profile import Profile
from launcher.job import Job

# Bytes of an element.
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
_WITH_TP_OVERLAP = 0.3  # share exposed with overlap.tp_comm: assumed


def exposed_tp(job: Job, profile: Profile) -> float:
    """Return the share of tensor-parallel communication that computation does not hide."""
    if job.overlap.tp_comm:
        return _WITH_TP_OVERLAP
    return profile.parts_exposed if (job.overlap.sequence_parts or 1) > 1 else 1.0


def stored_bytes(job: Job, dtype: int, profile: Profile) -> int:
    """Return bytes of a weight as it is kept."""
    if not profile.weights_are_main:
        return dtype
    return profile.weight_bytes or BYTES[job.optimizer.main_params_dtype or "fp32"]


def copy_bytes(job: Job, dtype: int, stored: int, *, zero_weights: bool, profile: Profile) -> int:
    """Return bytes per parameter of weights cast or gathered for arithmetic that live from forward to backward."""
    if not profile.weights_are_main:
        return 0
    other = stored != dtype or job.optimizer.main_params_dtype not in (None, "fp32", job.precision.dtype)
    kept = zero_weights and not job.recompute.optimizer_communication
    return dtype if kept or (other and not zero_weights) else 0


def gradient_groups(job: Job, micro_batches: int, profile: Profile) -> int:
    """Return the groups in which gradients are reduced; 0: they are kept in a buffer."""
    if profile.gradient_buffer or micro_batches > 1:
        return 0
    return job.graph.gradient_groups or profile.gradient_groups

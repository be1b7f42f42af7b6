"""Merges the user's keys of `megatron_extra_kwargs` with the launcher's."""

import dataclasses

from backends.megatron.mapping.extra_args import argument_row, key_row
from backends.megatron.mapping.factories import FOUR, mapping_of
from launcher.catalogue.versions import in_range
from launcher.job import Job
from launcher.mapping.rows import Unsupported

# First version with expert_tensor_parallel_size, whose default is 1; before, experts were split like other layers.
_EXPERT_TENSOR_PARALLEL = "3.7"
# First version that refuses learnable sinks with flash attention, its default (megatron/model/utils.py:17 @4.6.0).
_NO_FLASH_SINKS = "4.1"


def prepare(job: Job, version: str) -> Job:
    """Return the job with this backend's implicit defaults set and the user's extra arguments merged."""
    wanted = job.model.is_moe and job.parallel.tp > 1 and job.parallel.etp is None
    if wanted and in_range(version, _EXPERT_TENSOR_PARALLEL, None):
        etp = job.parallel.tp if _must_split_experts(job) else 1
        job = dataclasses.replace(job, parallel=dataclasses.replace(job.parallel, etp=etp))
    sinks = job.model.softmax_type == "learnable" and job.kernels.attention_backend is None
    if sinks and job.imported.backend != "megatron" and in_range(version, _NO_FLASH_SINKS, None):
        job = dataclasses.replace(job, kernels=dataclasses.replace(job.kernels, attention_backend="auto"))
    return _with_specific_keys(job, version)


def _must_split_experts(job: Job) -> bool:
    """Return whether gradients of experts are right only where tensor parallelism splits them (`SW-ETP-REPLICAS`).

    Adapters refuse split experts (mcore-bridge 1.6.5 tuners/lora.py:150), and so do biases (`SW-BIAS-ETP`).
    """
    possible = job.lora.rank is None and not job.model.linear_bias
    return possible and job.parallel.ep == 1 and job.imported.backend != "megatron"


def _with_specific_keys(job: Job, version: str) -> Job:
    """Return the job with `backend.args.megatron_extra_kwargs` completed by the launcher's keys.

    If a key has two different values, nothing is merged: the translation reports the conflict.
    """
    row = key_row(version) if in_range(version, FOUR, None) else argument_row(version)
    flag = row.flags[0]
    passed = mapping_of(job.backend.passthrough.get(flag))
    if passed is None or not in_range(version, row.since, row.until):
        return job
    try:
        written = next((dict(value) for _, value in row.emit(job)), {})
    except Unsupported:
        return job  # reported by the translation
    if any(key in written and written[key] != value for key, value in passed.items()):
        return job
    args = {**job.backend.args, flag: {**written, **passed}}
    return dataclasses.replace(job, backend=dataclasses.replace(job.backend, args=args))

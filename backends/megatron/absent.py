"""What the absence of arguments means in training with ms-swift's data sets."""

from collections.abc import Mapping

from launcher.job import Job, Value


def absent(job: Job) -> Mapping[str, Value]:
    """Return the canonical fields that absent arguments decide: each sample is a sequence of its own.

    Without --packing, batches are padded, also in pre-training (megatron/arguments/megatron_base_args.py:36 @4.6.0).
    """
    return {"batch.packing": False}

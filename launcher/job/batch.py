"""Batch sizes and sequence length."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, TRANSFORMER_CONFIG
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Batch sizes and sequence length."""

    micro_batch_size: int = option(
        1,
        "Sequences per device and forward pass.",
        unit="sequences",
        source=f"{ARGUMENTS} --micro-batch-size",
        minimum=1,
    )
    global_batch_size: int | None = option(
        None,
        "Sequences per optimizer step over all devices.",
        unit="sequences",
        source=f"{ARGUMENTS} --global-batch-size",
        minimum=1,
        affects_training=True,
    )
    rampup_batch_size: tuple[int, ...] = option(
        (),
        "Batch size ramp-up: first size, increment, and the sequences over which it reaches full size.",
        unit="sequences",
        source=f"{ARGUMENTS} --rampup-batch-size",
        affects_training=True,
    )
    decrease_batch_size_if_needed: bool | None = option(
        None,
        "Reduce a global batch that is not divisible by the processes to the next smaller one that is.",
        source=f"{ARGUMENTS} --decrease-batch-size-if-needed",
        affects_training=True,
    )
    seq_length: int | None = option(
        None,
        "Tokens per sequence.",
        unit="tokens",
        source=f"{ARGUMENTS} --seq-length",
        minimum=1,
        affects_training=True,
    )
    packing: bool | None = option(None, "Pack several samples into one sequence.", affects_training=True)
    padding_free: bool | None = option(None, "Samples of a batch are concatenated instead of padded.")
    variable_seq_lengths: bool | None = option(
        None, "Micro-batches may differ in length.", source=f"{TRANSFORMER_CONFIG}.variable_seq_lengths"
    )
    interleave: int | None = option(
        None,
        "Micro-batches computed alternately, so that communication of one overlaps with computation of another.",
        source="MindFormers micro_batch_interleave_num",
        minimum=1,
    )

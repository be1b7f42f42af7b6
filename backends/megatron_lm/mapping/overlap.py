"""Rows for communication that overlaps computation."""

from collections.abc import Mapping

from backends.megatron_lm.mapping.factories import BEFORE_0_16, BEFORE_0_17, added_in_0_9, when_set
from launcher.mapping.rows import Gap, Row, switch, switch_off, warning

_SINCE = "0.12"


def overlap() -> tuple[Row, ...]:
    """Return the rows of communication that overlaps computation."""
    return (
        switch("overlap.grad_reduce", "overlap-grad-reduce"),
        switch("overlap.param_gather", "overlap-param-gather"),
        switch("overlap.tp_comm", "tp-comm-overlap"),
        switch_off("overlap.p2p", "no-overlap-p2p-communication"),
    )


def gradient_buckets() -> tuple[Row, ...]:
    """Return the rows of gradient buckets, of the optimizer step, the embedding and the pipeline."""
    return (
        switch("overlap.param_gather_with_optimizer_step", "overlap-param-gather-with-optimizer-step", since=_SINCE),
        when_set("overlap.grad_bucket_size", "ddp-bucket-size"),
        when_set("overlap.grad_buckets", "ddp-num-buckets", since=_SINCE),
        switch("overlap.average_in_collective", "ddp-average-in-collective"),
        switch("overlap.embedding_wgrad", "defer-embedding-wgrad-compute"),
        when_set("overlap.embedding_wgrad_limit", "wgrad-deferral-limit"),
        switch("overlap.p2p_warmup_flush", "overlap-p2p-communication-warmup-flush", since=_SINCE),
    )


def collectives() -> tuple[Row, ...]:
    """Return the rows of gradient reduction and tensor-parallel communication overlap."""
    return (
        switch_off("overlap.gradient_reduce_div_fusion", "no-gradient-reduce-div-fusion", since=_SINCE),
        switch("overlap.pad_buckets", "ddp-pad-buckets-for-high-nccl-busbw", since=_SINCE),
        switch_off("overlap.align_grad_reduce", "no-align-grad-reduce", since=_SINCE),
        switch_off("overlap.align_param_gather", "no-align-param-gather", since=_SINCE),
        switch_off(
            "overlap.tp_allreduce",
            "no-async-tensor-model-parallel-allreduce",
            until=BEFORE_0_17,
            note="Megatron-core's own layers overlap it always, those of MindSpeed's experts as set here.",
        ),
        *(row for name in _PRODUCTS for row in _product(name)),
        switch("overlap.tp.overlap_rs_dgrad", "tp-comm-overlap-rs-dgrad"),
        when_set("overlap.tp.config", "tp-comm-overlap-cfg"),
        when_set("overlap.tp.bootstrap_backend", "tp-comm-bootstrap-backend", since=_SINCE),
    )


_PRODUCTS = ("overlap_ag", "overlap_rs", "split_ag", "split_rs", "bulk_dgrad", "bulk_wgrad")


def _product(name: str) -> tuple[Row, Row]:
    path, flag = f"overlap.tp.{name}", f"tp-comm-{name.replace('_', '-')}"
    return (
        switch_off(path, f"disable-{flag}", until=BEFORE_0_16),
        switch_off(path, f"no-{flag}", since="0.16"),
    )


GONE: Mapping[str, Gap] = {
    "overlap.tp_allreduce": warning("core 0.17 removed the switch, which its layers did not read", True),
}
BEFORE_0_12: Mapping[str, Gap] = {
    "overlap.gradient_reduce_div_fusion": added_in_0_9(True, severity="warning"),
    "overlap.pad_buckets": added_in_0_9(False, severity="warning"),
    "overlap.align_grad_reduce": added_in_0_9(True, severity="warning"),
    "overlap.align_param_gather": added_in_0_9(True, severity="warning"),
    "overlap.tp.bootstrap_backend": added_in_0_9(severity="warning"),
}

"""Planner data for rehearsing MindFormers' entry point on CPU; without heavy imports."""

from typing import TYPE_CHECKING

from launcher.rehearse.native import NativeOnCpu, Requirement

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.plan.plan import LaunchPlan

NATIVE_CPU = NativeOnCpu(
    address="backends.mindformers.rehearse:NATIVE_CPU",
    install="backends.mindformers.rehearse.cpu:install",
    script="*/run_mindformer.py",
    title="MindFormers {mindformers} (mindspore {mindspore})",
    stand_ins=(
        "operators with an Ascend kernel only (flash attention, RMS norm, SwiGLU, rotary ...)",
        "overflow detection",
        "data sinking",
        "the compiled data set index",
    ),
    requires=(
        Requirement(distribution="mindspore", version="2.7.2"),
        Requirement(distribution="mindformers", version="1.8.0"),
    ),
    # 1.9 has no catalogue of its own.
    catalogues=(
        ("1.6", "1.6.99", "1.6.0"),
        ("1.7", "1.7.99", "1.7.0"),
        ("1.8", "1.8.99", "1.8.0"),
        ("1.9", "2.0.99", "2.0.0"),
        ("2.1", None, "2.1.0"),
    ),
    # Two pairs were tested, see TESTED: the rank warns about any other.
    tested_with=(),
    # msrun sets it for every worker; for its scheduler it is also 0.
    loss_mean="micro_batches",  # core/callback/callback.py: the mean of what each micro-batch returned
    strided_samples=True,  # GeneratorDataset with shards, without shuffling: dataset/dataloader/hf_dataloader.py
    rank_variable="RANK_ID",
    env=(("GLOG_v", "3"),),
    note="Data parallelism only, in float32: MindSpore partitions graphs (tensor, pipeline, context and expert "
    "parallelism) for Ascend alone, and has no bfloat16 kernels for CPU.",
)

TESTED = (("1.6.0", "2.7.0"), ("1.8.0", "2.7.2"))
"""Pairs of mindformers and mindspore versions that the stand-ins were tested with."""


def adapt_plan(plan: "LaunchPlan", job: "Job") -> "LaunchPlan":
    """Return the plan for rehearsing a job on CPU; see :func:`backends.mindformers.rehearse.plan.adapt_plan`."""
    from backends.mindformers.rehearse.plan import adapt_plan as adapt

    return adapt(plan, job)

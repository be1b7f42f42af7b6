"""Configuration for rehearsing ms-swift's ``megatron sft|pt|rlhf`` on CPU, without heavy imports."""

from typing import TYPE_CHECKING

from launcher.rehearse.native import NativeOnCpu, Requirement

if TYPE_CHECKING:
    from launcher.job import Job
    from launcher.plan import LaunchPlan

NATIVE_CPU = NativeOnCpu(
    address="backends.megatron.rehearse:NATIVE_CPU",
    install="backends.megatron.rehearse.cpu:install",
    # `megatron sft` starts torch.distributed.run on swift/cli/_megatron/sft.py (ms-swift 4.6 swift/cli/main.py).
    script="*/swift/cli/_megatron/*.py",
    title="ms-swift {ms-swift}",
    stand_ins=("CUDA and NCCL (gloo)", "TransformerEngine", "triton"),
    task_stand_ins=(("grpo", "vLLM"), ("gkd", "vLLM")),
    requires=(
        Requirement(distribution="ms-swift", version="4.6.0"),
        Requirement(distribution="mcore-bridge", version="1.6.5"),
        Requirement(distribution="megatron-core", version="0.16.1"),
        Requirement(distribution="torch"),
        Requirement(distribution="psutil"),
    ),
    tested_with=(
        Requirement(distribution="ms-swift", version="4.6.0"),
        Requirement(distribution="mcore-bridge", version="1.6.5"),
        Requirement(distribution="megatron-core", version="0.16.1"),
        Requirement(distribution="torch", version="2.13.0"),
        Requirement(distribution="transformers", version="5.19.0"),
    ),
    env=(("OMP_NUM_THREADS", "1"),),
    extra="swift",
    strided_samples=True,  # swift/megatron/trainers/batch_sampler.py:148 @4.6.0
    note=(
        "With tensor_model_parallel_size > 1 ms-swift's default perform_initialization=false leaves the vocabulary "
        "layers unmarked as tensor parallel: the gradient norm counts one rank's share of them, here as on a GPU. "
        "perform_initialization=true gives the norm of one rank."
    ),
)


def adapt_job(job: "Job", version: str) -> "tuple[Job, tuple[str, ...]]":
    """Return the job as it is rehearsed on CPU; see :func:`backends.megatron.rehearse.generation.adapt_job`."""
    from backends.megatron.rehearse.generation import adapt_job as adapt
    from backends.megatron.rehearse.refusal import refuse_compressed

    refuse_compressed(job)
    return adapt(job, version)


def adapt_plan(plan: "LaunchPlan", job: "Job") -> "LaunchPlan":
    """Return the plan of a rehearsed job; see :func:`backends.megatron.rehearse.generation.adapt_plan`."""
    from backends.megatron.rehearse.generation import adapt_plan as adapt

    return adapt(plan, job)

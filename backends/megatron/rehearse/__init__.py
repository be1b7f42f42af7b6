"""Configuration for rehearsing ms-swift's ``megatron sft|pt|rlhf`` on CPU, without heavy imports."""

from launcher.rehearse.native import NativeOnCpu, Requirement

NATIVE_CPU = NativeOnCpu(
    address="backends.megatron.rehearse:NATIVE_CPU",
    install="backends.megatron.rehearse.cpu:install",
    # `megatron sft` starts torch.distributed.run on swift/cli/_megatron/sft.py (ms-swift 4.6 swift/cli/main.py).
    script="*/swift/cli/_megatron/*.py",
    title="ms-swift {ms-swift}",
    stand_ins=("CUDA and NCCL (gloo)", "TransformerEngine", "triton"),
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
    refused_tasks=tuple((task, "vLLM generates its answers, and has no stand-in here") for task in ("grpo", "gkd")),
    strided_samples=True,  # swift/megatron/trainers/batch_sampler.py:148 @4.6.0
    note=(
        "With tensor_model_parallel_size > 1 ms-swift's default perform_initialization=false leaves the vocabulary "
        "layers unmarked as tensor parallel: the gradient norm counts one rank's share of them, here as on a GPU. "
        "perform_initialization=true gives the norm of one rank."
    ),
)

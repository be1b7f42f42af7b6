"""Configuration for rehearsing ``pretrain_gpt.py`` of a Megatron-LM checkout on CPU, without heavy imports."""

from launcher.rehearse.native import Checkout, NativeOnCpu, Requirement

NATIVE_CPU = NativeOnCpu(
    address="backends.megatron_lm.rehearse:NATIVE_CPU",
    install="backends.megatron_lm.rehearse.cpu:install",
    script="*/pretrain_gpt.py",
    title="Megatron-LM's pretrain_gpt.py",
    stand_ins=("CUDA and NCCL (gloo)", "TransformerEngine", "triton", "compiled helpers"),
    requires=tuple(
        Requirement(distribution=name)
        # megatron.training imports these at start; psutil: the torch_dist writer hangs without it.
        for name in ("torch", "numpy", "packaging", "psutil", "einops", "six", "regex", "pyyaml", "pydantic")
    ),
    tested_with=(Requirement(distribution="torch", version="2.13.0"),),
    checkouts=(
        Checkout(
            variable="MEGATRON_LM_PATH",
            holds="pretrain_gpt.py",
            what="https://github.com/NVIDIA/Megatron-LM at the tag core_v0.16.1 or core_v0.12.3",
        ),
    ),
    env=(("CUDA_DEVICE_MAX_CONNECTIONS", "1"), ("OMP_NUM_THREADS", "1")),
    note="Start it with torchrun and the arguments of the cluster: none has to change.",
)

TESTED_CORES = ("0.16.1", "0.12.3")
"""``megatron.core.__version__`` of the checkouts that the stand-ins were tested with."""

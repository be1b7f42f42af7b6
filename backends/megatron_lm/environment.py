"""Environment variables set for Megatron-LM jobs, with conditions and sources."""

from launcher.mapping.environment import Variable

_OFFLOADING, _DETERMINISTIC = "fine-grained-activation-offloading", "deterministic-mode"
CONNECTIONS = tuple(
    Variable(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        value="8",
        argument=argument,
        source="validate_args refuses 1 with FSDP, which overlaps communication (arguments.py:527, :567 @0.12.1)",
    )
    for argument in ("use-torch-fsdp2", "use-custom-fsdp", "use-megatron-fsdp")
)
ENVIRONMENT = (
    Variable(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        value="1",
        source="validate_args refuses tp or cp > 1 without it before Blackwell; every example sets it",
    ),
    *CONNECTIONS,
    Variable(
        name="NCCL_ALGO",
        value="Ring",
        argument=_DETERMINISTIC,
        source="validate_args: --deterministic-mode needs a fixed algorithm",
    ),
    Variable(
        name="NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        value="0",
        argument=_DETERMINISTIC,
        source="docs of Transformer Engine",
    ),
    Variable(
        name="CUBLAS_WORKSPACE_CONFIG",
        value=":4096:8",
        argument=_DETERMINISTIC,
        source="torch.use_deterministic_algorithms",
    ),
    Variable(
        name="NVTE_CPU_OFFLOAD_V1",
        value="1",
        argument=_OFFLOADING,
        source="validate_args: fine-grained offloading with TE >= 2.10",
    ),
)

"""Environment variables set for Megatron-SWIFT jobs, with conditions and sources."""

from launcher.mapping.environment import Variable

_CUDA_SCRIPTS = "76 of the 112 Megatron scripts of ms-swift's examples (main, 2026-08); swift itself does not set it"
ENVIRONMENT = (
    Variable(name="PYTORCH_CUDA_ALLOC_CONF", value="expandable_segments:True", devices=("cuda",), source=_CUDA_SCRIPTS),
    Variable(
        name="PYTORCH_NPU_ALLOC_CONF",
        value="expandable_segments:True",
        devices=("npu",),
        source="7 of the 15 Ascend scripts of ms-swift's examples",
    ),
    Variable(
        name="TASK_QUEUE_ENABLE",
        value="2",
        devices=("npu",),
        source="8 of the 15 Ascend scripts of ms-swift's examples",
    ),
    Variable(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        value="32",
        argument="use_megatron_fsdp",
        source="Megatron-FSDP refuses 1, which swift sets (swift/megatron/arguments/megatron_args.py:967 @4.6.0)",
    ),
)

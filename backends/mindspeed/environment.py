"""Environment variables of MindSpeed-LLM jobs, with conditions and sources."""

from backends.megatron_lm.environment import CONNECTIONS
from launcher.mapping.environment import Variable

PYTHON_PATH = "${MINDSPEED_LLM_PATH}:${MINDSPEED_PATH}:${MEGATRON_LM_PATH}:${PYTHONPATH}"

ENVIRONMENT = (
    Variable(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        value="1",
        source="validate_args refuses tp or cp > 1 without it; 361 of 366 upstream scripts set it",
    ),
    *CONNECTIONS,
    Variable(
        name="PYTORCH_NPU_ALLOC_CONF",
        value="expandable_segments:True",
        source="docs/zh/pytorch/features/mcore/environment_variable.md; 281 upstream scripts",
    ),
    Variable(name="HCCL_CONNECT_TIMEOUT", value="3600", source="examples/mcore/qwen3/tune_qwen3_8b_4K_full_ptd.sh"),
    Variable(name="HCCL_EXEC_TIMEOUT", value="3600", source="examples/mcore/qwen3/tune_qwen3_8b_4K_full_ptd.sh"),
    Variable(
        name="PYTHONPATH",
        value=PYTHON_PATH,
        source="MindSpeed and Megatron-LM are imported from their checkouts; CANN's own entries stay behind them",
    ),
)

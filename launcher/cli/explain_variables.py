"""Environment variables that plans set or refer to, and that libraries below the backends read: meaning, as data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a variable does, and who reads it."""

    meaning: str
    source: str


_LAUNCH, _TORCH, _HUB = "launch", "torch.distributed elastic", "huggingface_hub"
_NCCL = "NCCL, environment variables"

VARIABLES = {
    name: Known(meaning=meaning, source=source)
    for name, meaning, source in (
        ("MODEL_PATH", "Directory of the model; a plan refers to it where model.path is not set.", _LAUNCH),
        ("DATA_PATH", "Training data; a plan refers to it where data.paths is not set.", _LAUNCH),
        ("LAUNCH_DIR", "Folder in which the launch command or the exported script was started.", _LAUNCH),
        ("LAUNCH_HOME", "Where the launcher keeps the records of its jobs; none: the user's state folder.", _LAUNCH),
        ("LAUNCH_RESUME", "Checkpoint folder from which a job goes on after it was stopped.", _LAUNCH),
        ("MASTER_ADDR", "Address of the first node, where all processes meet; cluster.master_addr.", _TORCH),
        ("MASTER_PORT", "Port of the first node, where all processes meet; cluster.master_port.", _TORCH),
        ("NODE_RANK", "Number of this node, from 0; the same command runs on every node with its own.", _TORCH),
        ("NNODES", "Number of nodes; cluster.nodes.", _TORCH),
        ("NPROC_PER_NODE", "Processes, that is devices, on each node; cluster.devices_per_node.", _TORCH),
        ("WORLD_SIZE", "Number of all processes; torchrun and msrun set it.", _TORCH),
        ("RANK", "Number of this process among all, from 0; torchrun and msrun set it.", _TORCH),
        ("LOCAL_RANK", "Number of this process on its node, from 0; torchrun sets it.", _TORCH),
        ("PET_LOG_DIR", "Folder of torchrun's log files, one for each rank.", _TORCH),
        ("PET_TEE", "Which streams torchrun shows besides writing them to files; 3: both.", _TORCH),
        ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "How torchrun begins the lines of each rank.", _TORCH),
        ("MEGATRON_LM_PATH", "Your checkout of Megatron-LM.", _LAUNCH),
        ("MINDSPEED_LLM_PATH", "Your checkout of MindSpeed-LLM.", _LAUNCH),
        ("MINDSPEED_PATH", "Your checkout of MindSpeed.", _LAUNCH),
        ("MINDFORMERS_PATH", "Your checkout of MindFormers, which has run_mindformer.py.", _LAUNCH),
        ("PYTHONPATH", "Folders from which Python imports before its own; checkouts of backends go here.", "Python"),
        ("LD_LIBRARY_PATH", "Folders with shared libraries; carried along to other nodes.", "ld.so"),
        ("OMP_NUM_THREADS", "Threads of each process on CPU; torchrun sets 1 if it is not set.", "OpenMP"),
        (
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "Queues for kernels on a device; 1 lets tensor- and context-parallel communication overlap in order.",
            "Megatron-LM core_v0.12.1 arguments.py, validate_args",
        ),
        ("PYTORCH_CUDA_ALLOC_CONF", "Memory allocator on GPUs; expandable_segments:True avoids fragments.", "PyTorch"),
        ("PYTORCH_NPU_ALLOC_CONF", "Memory allocator on NPUs; expandable_segments:True avoids fragments.", "torch_npu"),
        ("CUBLAS_WORKSPACE_CONFIG", "Workspace of cuBLAS; :4096:8 makes results deterministic.", "cuBLAS"),
        (
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
            "0: only deterministic kernels of Transformer Engine.",
            "Transformer Engine",
        ),
        ("NCCL_ALGO", "Algorithm of NCCL's collectives; a fixed one is deterministic.", _NCCL),
        ("NCCL_DEBUG", "How much NCCL says: WARN, INFO, TRACE.", _NCCL),
        ("NCCL_IB_HCA", "InfiniBand adapters that NCCL may use.", _NCCL),
        ("NCCL_IB_DISABLE", "1: NCCL does not use InfiniBand or RoCE.", _NCCL),
        ("NCCL_IB_GID_INDEX", "Index of the address that NCCL uses over RoCE.", _NCCL),
        ("NCCL_IB_TIMEOUT", "How long NCCL waits on InfiniBand, as a power of two.", _NCCL),
        ("NCCL_P2P_DISABLE", "1: no direct copies between GPUs.", _NCCL),
        ("NCCL_SOCKET_IFNAME", "Network interface over which NCCL's processes meet.", _NCCL),
        ("HCCL_IF_IP", "Address of this node for HCCL.", "CANN, HCCL environment variables"),
        ("HF_HOME", "Where Hugging Face libraries keep downloads.", _HUB),
        ("HF_HUB_OFFLINE", "1: nothing is downloaded from the Hugging Face hub.", _HUB),
        ("HF_TOKEN", "Secret for the Hugging Face hub; taken from the environment, never written.", _HUB),
        ("WANDB_API_KEY", "Secret for Weights & Biases; taken from the environment, never written.", "wandb"),
        ("WANDB_BASE_URL", "Server of Weights & Biases.", "wandb"),
        ("WANDB_MODE", "online, offline or disabled.", "wandb"),
        ("HTTP_PROXY", "Proxy for downloads; carried along to other nodes.", "HTTP libraries"),
        ("HTTPS_PROXY", "Proxy for downloads; carried along to other nodes.", "HTTP libraries"),
        ("NO_PROXY", "Hosts that are reached without the proxy; carried along to other nodes.", "HTTP libraries"),
    )
}

"""Meaning of environment variables that plans set or refer to, or that libraries used by the backends read."""

from collections.abc import Mapping
from functools import cache

from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.environment import Variable

_LAUNCH, _TORCH, _HUB = "launch", "torch.distributed elastic", "huggingface_hub"
_NCCL = "NCCL, environment variables"
_HCCL = "CANN, HCCL environment variables"
_TORCH_NPU = "Ascend Extension for PyTorch, environment variables"
_NVTE = "Transformer Engine, environment variables"
_MINDSPORE = "MindSpore, environment variables"

VARIABLES = {
    name: Variable(name=name, meaning=meaning, source=source)
    for name, meaning, source in (
        ("MODEL_PATH", "Directory of the model; a plan refers to it where model.path is not set.", _LAUNCH),
        ("DATA_PATH", "Training data; a plan refers to it where data.paths is not set.", _LAUNCH),
        ("LAUNCH_DIR", "Folder in which the launch command or the exported script was started.", _LAUNCH),
        ("LAUNCH_HOME", "Where the launcher keeps the records of its jobs; none: the user's state folder.", _LAUNCH),
        ("LAUNCH_RESUME", "Checkpoint folder from which a stopped job resumes.", _LAUNCH),
        ("MASTER_ADDR", "Address of the first node, for the rendezvous; cluster.master_addr.", _TORCH),
        ("MASTER_PORT", "Port of the first node, for the rendezvous; cluster.master_port.", _TORCH),
        ("NODE_RANK", "Number of this node, from 0; the same command runs on every node with its own.", _TORCH),
        ("NNODES", "Number of nodes; cluster.nodes.", _TORCH),
        ("NPROC_PER_NODE", "Processes, that is devices, on each node; cluster.devices_per_node.", _TORCH),
        ("WORLD_SIZE", "Number of all processes; torchrun and msrun set it.", _TORCH),
        ("RANK", "Number of this process among all, from 0; torchrun and msrun set it.", _TORCH),
        ("LOCAL_RANK", "Number of this process on its node, from 0; torchrun sets it.", _TORCH),
        ("PET_LOG_DIR", "Folder of torchrun's log files, one for each rank.", _TORCH),
        ("TORCHELASTIC_ERROR_FILE", "File in which torchrun, or a rank with `@record`, writes its exception.", _TORCH),
        ("PET_TEE", "Streams that torchrun also prints, besides writing them to files; 3: both.", _TORCH),
        ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "Prefix of each rank's lines in torchrun's output.", _TORCH),
        ("PYTHONPATH", "Folders from which Python imports before its own; checkouts of backends go here.", "Python"),
        ("LD_LIBRARY_PATH", "Folders with shared libraries; forwarded to other nodes.", "ld.so"),
        ("OMP_NUM_THREADS", "Threads of each process on CPU; torchrun sets 1 if it is not set.", "OpenMP"),
        (
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "Queues for kernels on a device; 1 lets tensor- and context-parallel communication overlap in order.",
            "CUDA C++ Programming Guide, environment variables",
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
        ("NCCL_DEBUG", "Log level of NCCL: WARN, INFO, TRACE.", _NCCL),
        ("NCCL_IB_HCA", "InfiniBand adapters that NCCL may use.", _NCCL),
        ("NCCL_IB_DISABLE", "1: NCCL does not use InfiniBand or RoCE.", _NCCL),
        ("NCCL_IB_GID_INDEX", "Index of the address that NCCL uses over RoCE.", _NCCL),
        ("NCCL_IB_TIMEOUT", "How long NCCL waits on InfiniBand, as a power of two.", _NCCL),
        ("NCCL_P2P_DISABLE", "1: no direct copies between GPUs.", _NCCL),
        ("NCCL_SOCKET_IFNAME", "Network interface of NCCL's sockets.", _NCCL),
        ("NCCL_IB_QPS_PER_CONNECTION", "Queue pairs of one InfiniBand connection; more spread load over paths.", _NCCL),
        ("NCCL_CUMEM_ENABLE", "1: NCCL allocates by CUDA's virtual memory functions; 0 saves memory on some.", _NCCL),
        ("NCCL_NVLS_ENABLE", "1: collectives inside NVSwitch; takes memory of its own.", _NCCL),
        ("NCCL_TIMEOUT", "Seconds that a collective may take; torch reads TORCH_NCCL_* instead.", _NCCL),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1: a rank whose collective fails or hangs is ended.", "torch.distributed"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "Seconds without a heartbeat after which a rank ends.", _TORCH),
        ("GLOO_SOCKET_IFNAME", "Network interface of gloo's sockets.", "torch.distributed gloo"),
        ("NVTE_FLASH_ATTN", "0: Transformer Engine does not use FlashAttention.", _NVTE),
        ("NVTE_FUSED_ATTN", "0: Transformer Engine does not use cuDNN's fused attention.", _NVTE),
        ("NVTE_UNFUSED_ATTN", "0: Transformer Engine does not use its own unfused attention.", _NVTE),
        ("NVTE_CPU_OFFLOAD_V1", "1: Transformer Engine offloads activations by its first implementation.", _NVTE),
        ("NVTE_FWD_LAYERNORM_SM_MARGIN", "Multiprocessors that forward norms leave free for communication.", _NVTE),
        ("NVTE_BWD_LAYERNORM_SM_MARGIN", "Multiprocessors that backward norms leave free for communication.", _NVTE),
        ("HCCL_IF_IP", "Address of this node for HCCL.", _HCCL),
        ("HCCL_CONNECT_TIMEOUT", "Seconds that ranks wait for each other to connect; 120 if not set.", _HCCL),
        ("HCCL_EXEC_TIMEOUT", "Seconds that a collective may take before it counts as hanging.", _HCCL),
        ("HCCL_SOCKET_IFNAME", "Network interface over which HCCL's processes connect.", _HCCL),
        ("HCCL_IF_BASE_PORT", "First of the ports that HCCL uses on this node.", _HCCL),
        ("HCCL_BUFFSIZE", "Megabytes that two devices share for communication; more costs memory.", _HCCL),
        ("HCCL_ALGO", "Algorithm of HCCL's collectives, by level.", _HCCL),
        ("HCCL_DETERMINISTIC", "true: HCCL adds in a fixed order, so that results repeat.", _HCCL),
        ("HCCL_WHITELIST_DISABLE", "1: HCCL does not check connections against its whitelist.", _HCCL),
        ("HCCL_ASYNC_ERROR_HANDLING", "1: a rank whose collective fails is ended.", _TORCH_NPU),
        (
            "RANK_TABLE_FILE",
            "Rank table: lists all devices for HCCL; cluster.rank_table has a cluster write it.",
            _HCCL,
        ),
        ("ASCEND_RT_VISIBLE_DEVICES", "Devices that a process may use, by number.", "CANN"),
        ("ASCEND_LAUNCH_BLOCKING", "1: kernels run one by one, for finding errors; slow.", _TORCH_NPU),
        ("ASCEND_SLOG_PRINT_TO_STDOUT", "1: CANN's log goes to the screen instead of files.", "CANN"),
        ("TASK_QUEUE_ENABLE", "Asynchronous kernel launches: 0 off, 1, 2 most.", _TORCH_NPU),
        ("CPU_AFFINITY_CONF", "1 or 2: bind processes to processors near their device.", _TORCH_NPU),
        ("COMBINED_ENABLE", "1: operators that are not adjacent may be combined.", _TORCH_NPU),
        ("STREAMS_PER_DEVICE", "Streams that one device may have.", _TORCH_NPU),
        ("MULTI_STREAM_MEMORY_REUSE", "Reuse of memory between streams: 0 off, 1, 2.", _TORCH_NPU),
        ("NPU_ASD_ENABLE", "Detection of silent errors in gradients: 0 off, up to 3.", _TORCH_NPU),
        ("MS_DEV_RUNTIME_CONF", "Switches of MindSpore's runtime, NAME:VALUE.", _MINDSPORE),
        ("MS_ALLOC_CONF", "Memory pool of MindSpore, NAME:VALUE.", _MINDSPORE),
        ("MS_ENABLE_LCCL", "on: small collectives inside a node by shared memory.", _MINDSPORE),
        ("MS_COMPILER_CACHE_ENABLE", "1: compiled graphs are kept for the next start.", _MINDSPORE),
        ("MS_COMPILER_CACHE_PATH", "Folder of compiled graphs.", _MINDSPORE),
        ("MS_DEV_JIT_SYNTAX_LEVEL", "Level of Python syntax that graphs support.", _MINDSPORE),
        ("HF_HOME", "Cache folder of Hugging Face libraries.", _HUB),
        ("HF_HUB_OFFLINE", "1: nothing is downloaded from the Hugging Face hub.", _HUB),
        ("HF_TOKEN", "Secret for the Hugging Face hub.", _HUB),
        ("WANDB_API_KEY", "Secret for Weights & Biases.", "wandb"),
        ("WANDB_BASE_URL", "Server of Weights & Biases.", "wandb"),
        ("WANDB_MODE", "online, offline or disabled.", "wandb"),
        ("HTTP_PROXY", "Proxy for downloads; forwarded to other nodes.", "HTTP libraries"),
        ("HTTPS_PROXY", "Proxy for downloads; forwarded to other nodes.", "HTTP libraries"),
        ("NO_PROXY", "Hosts that are reached without the proxy; forwarded to other nodes.", "HTTP libraries"),
    )
}


@cache
def known_variables() -> Mapping[str, Variable]:
    """Return the variables above and those that name checkouts of the backends."""
    needed = (each for name in backend_names() for each in get_backend(name).support if each.kind == "checkout")
    checkouts = {each.name: Variable(name=each.name, meaning=each.meaning, source=_LAUNCH) for each in needed}
    return {**VARIABLES, **checkouts}

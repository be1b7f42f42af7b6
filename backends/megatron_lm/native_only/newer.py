"""Effects of arguments without a canonical field that came with Megatron-LM 0.17 or later.

Source: megatron/training/{arguments.py,config/training_config.py,config/common_config.py} and
megatron/core/transformer/transformer_config.py @core_v0.17.1.
"""

from backends.megatron_lm.native_only.layers import passed
from launcher.mapping.native_only import (
    MEMORY,
    MODEL,
    NOTHING,
    OUTPUT,
    SPEED,
    TRAINING,
    NativeOnlyArg,
    row,
    single_rows,
)

_LOOP = "it belongs to Megatron-LM's own training loop"
_CKPT = "it belongs to Megatron-LM's own checkpoints"
_FSDP = "it tunes Megatron FSDP"
_CORE = "it is a switch of megatron-core's layers"
_MAMBA = "Mamba layers are Megatron-core's and MindSpeed-LLM's"
_NVIDIA = "it is made for NVIDIA's hardware and libraries"
_GENERATION = "it is for another program of Megatron-LM than pre-training of language models"

_PHRASES = {
    "megatron-fsdp-main-params-dtype": "sets the type of Megatron FSDP's main weights",
    "megatron-fsdp-main-grads-dtype": "sets the type in which Megatron FSDP accumulates gradients",
    "megatron-fsdp-grad-comm-dtype": "sets the type in which Megatron FSDP reduces gradients",
    "lion-beta1": "sets the first coefficient of the optimizer Lion",
    "lion-beta2": "sets the second coefficient of the optimizer Lion",
    "verify-integrity": "hashes the files of checkpoints and compares the hashes when they are read",
    "use-mup": "scales initial weights, learning rates and logits with the width (maximal update parameterization)",
    "mup-width-mult": "is computed from the width of the model and of its base",
    "mup-base-hidden-size": "sets the width of the base model",
    "mup-base-head-dim": "sets the width of the base model's heads",
    "mup-embedding-mult": "scales the output of the embedding",
    "mup-output-mult": "scales the logits",
    "mup-attn-scale-power": "sets the power of the head's width by which attention scores are divided",
    "tokenizer-hf-no-use-fast": "takes the slow form of a Hugging Face tokenizer",
    "tokenizer-hf-no-include-special-tokens": "keeps a Hugging Face tokenizer from adding its special tokens",
    "exit-signal-handler-for-training": "ends the run after a checkpoint when a signal arrives, in training only",
}
NEWER: tuple[NativeOnlyArg, ...] = (
    *single_rows(_PHRASES),
    row(
        "mtp-hybrid-override-pattern",
        "sets the kinds of the layers of multi-token prediction",
        MODEL,
        _MAMBA,
        without="the other stack trains transformers only",
    ),
    row(
        "mtp-use-repeated-layer",
        "predicts all further tokens with one layer",
        MODEL,
        _CORE,
        without="every further token has a layer of its own",
    ),
    row(
        "use-mup mup-*",
        "scales the model with its width",
        MODEL,
        _CORE,
        without="initial weights, learning rates and logits do not depend on the width",
        read=passed("use-mup"),
    ),
    row(
        "moe-router-force-biased",
        "routes tokens with a random bias, for measurements",
        MODEL,
        _CORE,
        "moe.force_load_balancing=true",
    ),
    row(
        "ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-load-process-group "
        "ckpt-fully-parallel-save-process-group verify-integrity",
        "chooses how ranks write and read checkpoints",
        OUTPUT,
        _CKPT,
    ),
    row("exit-signal-handler-for-training", "ends the run after a checkpoint", OUTPUT, _LOOP),
    row(
        "lion-beta*",
        "sets a coefficient of the optimizer Lion",
        TRAINING,
        "it tunes an optimizer of Megatron-core",
        without="choose the optimizer with optimizer.type",
    ),
    row(
        "ddp-param-name-patterns-for-fp32-local-accumulation",
        "accumulates the gradients of these weights in FP32",
        TRAINING,
        "it tunes Megatron-core's distributed data parallelism",
        "precision.grad_reduce_in_fp32=true",
        without="gradients of all weights are accumulated in one type",
    ),
    row(
        "megatron-fsdp-main-params-dtype megatron-fsdp-main-grads-dtype megatron-fsdp-grad-comm-dtype",
        "sets a type of Megatron FSDP",
        TRAINING,
        _FSDP,
        without="weights and gradients have the types of precision.*",
        read=passed("use-megatron-fsdp"),
    ),
    row(
        "fused-residual-rmsnorm mla-down-proj-fusion",
        "computes two operations of a layer in one kernel",
        SPEED,
        _CORE,
    ),
    row(
        "moe-hybridep-num-blocks-permute moe-hybridep-num-blocks-unpermute moe-permute-fusion-into-hybridep",
        "tunes the dispatch of tokens by HybridEP",
        SPEED,
        _NVIDIA,
    ),
    row(
        "optimizer-cuda-graph",
        "runs the optimizer's step as one CUDA graph",
        SPEED,
        _NVIDIA,
        no_field="It captures the optimizer's step; kernels.cuda_graph.* capture layers.",
        source="megatron/training/arguments.py:2496 @core_v0.17.1",
    ),
    row("cpu-offloading-retain-pinned-cpu-buffers", "keeps the host's buffers of offloaded activations", MEMORY, _CORE),
    row(
        "inference-disable-triton-nvls-kernels inference-grouped-gemm-backend "
        "inference-moe-disable-fused-quant-kernels",
        "chooses kernels for generation",
        NOTHING,
        _GENERATION,
    ),
    row(
        "flight-recorder-dump-path flight-recorder-include-stack-trace flight-recorder-trace-buffer-size "
        "no-flight-recorder-dump-on-timeout no-flight-recorder-extra-dump-on-exec "
        "no-flight-recorder-include-only-active",
        "records the last collectives",
        OUTPUT,
        "it sets environment variables of PyTorch (TORCH_NCCL_TRACE_BUFFER_SIZE and others)",
        without="set these variables in backend.env",
    ),
)

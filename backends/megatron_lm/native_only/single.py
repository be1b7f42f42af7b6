"""Effects of single Megatron-LM arguments that other tables group in one row, and why some have no field.

From megatron/training/arguments.py and training_config.py at core_v0.16.1.
"""

from collections.abc import Mapping

from launcher.mapping.native_only import NativeOnlyArg, row, single_rows

_MIDDLE = {
    "fim-data": "trains on documents whose middle is moved to their end",
    "fim-rate": "sets the share of documents whose middle is moved",
    "fim-spm-rate": "sets the share of these that begin with the suffix",
    "fim-split-sample": "sets the text at which documents are split before their middle is moved",
    "fim-fragment-rate": "sets the share of fragments whose middle is moved",
    "fim-no-prefix": "leaves fragments alone that begin with a text",
    "fim-prefix-token": "sets the token before the prefix of a document whose middle is moved",
    "fim-middle-token": "sets the token before a middle that was moved",
    "fim-suffix-token": "sets the token before the suffix of a document whose middle is moved",
    "fim-pad-token": "sets the token that fills up documents whose middle is moved",
    "fim-eod-token": "sets the token that ends documents whose middle is moved",
}
_RESTART = {
    "inprocess-restart": "starts training again inside its processes after a failure",
    "inprocess-max-iterations": "bounds how often training starts again inside its processes",
    "inprocess-monitor-thread-interval": "sets how often the watching thread looks, in seconds",
    "inprocess-monitor-process-interval": "sets how often the watching process looks, in seconds",
    "inprocess-progress-watchdog-interval": "sets how often progress is noted, in seconds",
    "inprocess-heartbeat-interval": "sets how often ranks show that they live, in seconds",
    "inprocess-heartbeat-timeout": "sets after how long a silent rank is missing, in seconds",
    "inprocess-soft-timeout": "sets after how long without progress an exception is raised, in seconds",
    "inprocess-hard-timeout": "sets after how long without progress a rank is ended, in seconds",
    "inprocess-barrier-timeout": "sets how long ranks wait for each other before a restart, in seconds",
    "inprocess-completion-timeout": "sets how long ranks wait for each other at the end, in seconds",
    "inprocess-last-call-wait": "sets how long other ranks may report their failures, in seconds",
    "inprocess-termination-grace-time": "sets the time between SIGTERM and SIGKILL, in seconds",
    "inprocess-granularity": "restarts by node or by rank",
    "inprocess-active-world-size": "sets how many ranks train; the others are a reserve",
    "inprocess-empty-cuda-cache": "frees unused GPU memory at a restart",
    "ft-num-warmup-iters": "sets how many iterations pass before time-outs are learnt",
}
_OTHERS = {
    "log-device-memory-used": "logs the memory that the device reports as used",
    "log-energy": "logs the energy that devices use",
    "log-memory-interval": "sets how often memory is logged, in iterations",
    "wandb-entity": "names the owner of the run in Weights & Biases",
    "fsdp-double-buffer": "gathers weights of FSDP into two persistent buffers",
    "fsdp-manual-registration": "registers FSDP's buffers with NCCL by hand",
    "torch-fsdp2-no-reshard-after-forward": "keeps weights gathered between forward and backward pass",
    "tokenizer-hf-use-fast": "takes the fast form of a Hugging Face tokenizer",
    "tokenizer-hf-include-special-tokens": "lets a Hugging Face tokenizer add its special tokens",
    "fp8-quantizer-factory": "names the code that makes fp8 quantisers",
    "cache-mla-latents": "caches the latents of MLA, for generation",
    "inference-fuse-tp-communication": "joins tensor-parallel collectives with their neighbours, for generation",
    "nccl-all-reduce-for-prefill": "takes NCCL's all-reduce for prompts, for generation",
}
PHRASES: Mapping[str, str] = {**_MIDDLE, **_RESTART, **_OTHERS}
SINGLE: tuple[NativeOnlyArg, ...] = (
    *single_rows(PHRASES),
    row(
        "lazy-mpu-init",
        no_field="It leaves the start of collectives to a caller that no training program has (pretrain ignores what "
        "it is handed).",
        source="megatron/training/initialize.py:151 @core_v0.16.1",
    ),
    row(
        "local_rank",
        no_field="It is another number for each process, which torchrun sets; a job has one value for all of them.",
        source="megatron/training/arguments.py:2275 @core_v0.16.1",
    ),
    row(
        "encoder-tensor-model-parallel-size encoder-pipeline-model-parallel-size pipeline-model-parallel-split-rank",
        no_field="It makes stages for an encoder of its own (T5, multimodal models), which no language model has; core "
        "0.14 removed them.",
        source="megatron/training/arguments.py:300 @core_v0.12.1",
    ),
    row(
        "onnx-safe openai-gelu",
        no_field="Only the classes from before Megatron-core read it, which use-legacy-models "
        "(model.use_legacy_models) builds.",
        source="megatron/legacy/model/transformer.py:132 @core_v0.16.1",
    ),
    row(
        "relative-attention-max-distance relative-attention-num-buckets",
        no_field="Only T5 reads it (pretrain_t5.py), for relative positions.",
        source="megatron/core/models/T5/t5_model.py:221 @core_v0.16.1",
    ),
    row(
        "fp8-interval",
        "sets how often fp8's scales are taken, in iterations",
        no_field="It is deprecated: Transformer Engine has ignored it since 1.8.0.",
        source="megatron/core/extensions/transformer_engine.py:2215 @core_v0.16.1",
    ),
    row(
        "moe-extended-tp",
        no_field="It is deprecated and ignored since core 0.10: expert-tensor-parallel-size (parallel.etp) replaces "
        "it.",
        source="megatron/core/model_parallel_config.py:80 @core_v0.16.1",
    ),
)

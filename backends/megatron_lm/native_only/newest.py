"""Effects of arguments without a canonical field that came with Megatron-LM 0.18 or later.

Source: megatron/training/{arguments.py,config/training_config.py} and megatron/core/fault_injector.py @core_v0.18.2.
"""

from launcher.mapping.native_only import MEMORY, NOTHING, OUTPUT, SPEED, TRAINING, NativeOnlyArg, row, single_rows

_LOOP = "it belongs to Megatron-LM's own training loop"
_CKPT = "it belongs to Megatron-LM's own checkpoints"
_DDP = "it tunes Megatron-core's distributed data parallelism"

_PHRASES = {
    "chat-template": "sets the template of conversations of a Hugging Face tokenizer",
    "fine-grained-offloading-max-inflight-offloads": "bounds how many activations are on their way to the host",
    "gpu-sniff-test-interval": "sets how often GPUs are tested with a known computation, in iterations",
    "high-priority-a2a-comm-stream": "runs the overlapped exchange of tokens on a stream of high priority",
    "inference-cuda-graph-scope": "captures generation by layers or by blocks",
    "inference-moe-token-dispatcher-type": "chooses how experts exchange tokens in generation",
    "mlp-chunks-for-training": "computes the MLP of a sequence in this many parts",
    "moe-expert-rank-capacity-factor": "drops tokens beyond the capacity of a rank's experts",
    "moe-hybridep-num-sms-preprocessing": "sets how many multiprocessors HybridEP prepares the exchange with",
    "moe-mlp-glu-interleave-size": "stores gates and linear units of experts in alternating blocks",
    "moe-paged-stash": "keeps activations of experts in pages of one buffer",
    "moe-paged-stash-buffer-size-factor-cpu": "sets the size of that buffer on the host",
    "moe-paged-stash-buffer-size-factor-cuda": "sets the size of that buffer on the GPU",
    "moe-paged-stash-page-size": "sets the tokens of a page of that buffer",
    "moe-single-grouped-bias": "stores the biases of experts as one parameter",
    "moe-single-grouped-weight": "stores the weights of experts as one parameter",
    "no-pad-vocab-size": "leaves the vocabulary of the tokenizer without padding",
    "no-tokenizer-sentencepiece-ignore-extra-whitespaces": "keeps repeated spaces for a SentencePiece tokenizer",
    "null-tokenizer-eod-id": "sets the token that ends documents for NullTokenizer",
    "null-tokenizer-pad-id": "sets the token that fills sequences for NullTokenizer",
    "overlap-dispatch-backward-with-experts-wgrad": "computes weight gradients of experts while tokens are exchanged",
    "use-grouped-gemm-for-dense-mlp": "computes the dense MLP with the grouped GEMM of one expert",
    "use-transformer-engine-op-fuser": "joins operations of a layer by Transformer Engine's operation fuser",
    "eval-global-batch-size": "sets the global batch size of evaluation",
    "eval-micro-batch-size": "sets the micro-batch size of evaluation",
    "start-eval-at-iter": "evaluates from this iteration on only",
    "validation-set-names": "names several validation sets in the logs",
    "fault-injector-ranks": "names the ranks that get an artificial fault",
    "fault-injector-num-ranks": "sets how many random ranks get an artificial fault",
    "fault-injector-fault-types": "names the kinds of artificial faults",
    "fault-injector-fault-probabilities": "sets how likely each kind of artificial fault is",
    "fault-injector-fault-delay": "sets the time before an artificial fault, in seconds",
    "fault-injector-delay-start-iteration": "counts the time before an artificial fault from this iteration on",
    "fault-injector-mtti-seconds": "sets the mean time before an artificial fault, in seconds",
    "fault-injector-offset-seconds": "adds to the time before an artificial fault, in seconds",
    "fault-injector-seed": "seeds the artificial faults",
    "save-activations-interval": "sets how often activations are written to files, in iterations",
    "save-params-interval": "sets how often weights are written to files beside checkpoints, in iterations",
    "save-tokens-per-expert-interval": "sets how often the tokens of each expert are written to files, in iterations",
}
NEWEST: tuple[NativeOnlyArg, ...] = (
    *single_rows(_PHRASES),
    row(
        "eval-global-batch-size eval-micro-batch-size start-eval-at-iter validation-set-names",
        "chooses how evaluation runs",
        OUTPUT,
        _LOOP,
        without="evaluation has the batch sizes of training",
    ),
    row(
        "rampup-batch-size",
        "is ignored since 0.18",
        NOTHING,
        "step-batch-size-schedule took its place",
        no_field="batch.rampup_batch_size is this argument before 0.18, which reads --step-batch-size-schedule.",
        source="megatron/core/num_microbatches_calculator.py:140 @core_v0.18.2",
    ),
    row(
        "fine-grained-offloading-max-inflight-offloads high-priority-a2a-comm-stream "
        "moe-hybridep-num-sms-preprocessing overlap-dispatch-backward-with-experts-wgrad mlp-chunks-for-training use-grouped-gemm-for-dense-mlp "
        "use-transformer-engine-op-fuser moe-single-grouped-bias moe-single-grouped-weight",
        "tunes how and when layers compute, copy and exchange",
        SPEED,
        "it is a switch of megatron-core's layers",
    ),
    row(
        "moe-paged-stash*",
        "keeps activations of experts in pages",
        MEMORY,
        "it is a switch of megatron-core's layers",
    ),
    row(
        "inference-cuda-graph-scope inference-moe-token-dispatcher-type",
        "is for text generation",
        NOTHING,
        "it is for another program of Megatron-LM than pre-training of language models",
    ),
    row("gpu-sniff-test-interval", "tests the GPUs", OUTPUT, _LOOP),
    row("fault-injector-*", "tests how the run survives faults", NOTHING, _LOOP),
    row(
        "save-activations-interval save-params-interval save-tokens-per-expert-interval",
        "writes internal values to files",
        OUTPUT,
        _LOOP,
    ),
    row(
        "enable-msc",
        "reads and writes files through NVIDIA's Multi-Storage Client",
        OUTPUT,
        "it is a library of NVIDIA's",
        without="data and checkpoints are read from file systems",
    ),
    row(
        "no-ckpt-load-validate-sharding-integrity",
        "skips the check that a checkpoint has every part of each tensor once",
        OUTPUT,
        _CKPT,
    ),
    row(
        "megatron-fsdp-enable-fine-grained-param-gather",
        "gathers weights of Megatron FSDP module by module",
        SPEED,
        "it tunes Megatron FSDP",
    ),
    row(
        "no-use-layer-wise-param-layout",
        "keeps the weights of Muon and of AdamW in one buffer",
        MEMORY,
        _DDP,
        without="sums in bf16 may be rounded otherwise",
    ),
    row(
        "step-batch-size-schedule",
        "changes the global batch size at given points of training",
        TRAINING,
        _LOOP,
        "batch.rampup_batch_size=[64,64,100000]",
        without="the global batch size is constant",
    ),
)

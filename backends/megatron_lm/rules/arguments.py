"""Checks and changes by Megatron-LM's validate_args: arguments that require or exclude others."""

from collections.abc import Iterator

from backends.megatron_lm.rules.versions import (
    BACKENDS,
    BEFORE_14,
    BEFORE_16,
    BEFORE_18,
    BEFORE_19,
    EVERY,
    UNTIL_12,
    arguments,
)
from launcher.job import output_dir
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.table import declare, needs, never

# fmt: off
declare((
    needs("MLM-PARAM-GATHER-GRAD", "overlap-param-gather", "overlap-grad-reduce",
          "Overlapping weight gathering needs overlapped gradient reduction.", arguments(505, 600)),
    never("MLM-PARAM-GATHER-LEGACY", "overlap-param-gather & use-legacy-models",
          "Legacy models do not support overlapped weight gathering.", arguments(507, 602)),
    never("MLM-FP16-BF16", "fp16 & bf16",
          "Weights have one precision: fp16 and bf16 exclude each other.", arguments(573, 703)),
    never("MLM-ITERS-DECAY-SAMPLES", "train-iters & lr-decay-samples?",
          "Training by iterations needs the decay in iterations.", arguments(627, 761)),
    never("MLM-ITERS-WARMUP-SAMPLES", "train-iters & lr-warmup-samples>0",
          "Training by iterations needs the warm-up in iterations.", arguments(629, 763)),
    never("MLM-ITERS-RAMPUP", "train-iters & rampup-batch-size",
          "Batch size ramp-up needs training by samples.", arguments(631, 765), versions=BEFORE_18),
    never("MLM-SAMPLES-DECAY-ITERS", "train-samples & lr-decay-iters",
          "Training by samples needs the decay in samples.", arguments(643, 777)),
    never("MLM-SAMPLES-WARMUP-ITERS", "train-samples & lr-warmup-iters!=0",
          "Training by samples needs the warm-up in samples.", arguments(645, 779)),
    never("MLM-SAMPLES-WARMUP-TWICE", "train-samples & lr-warmup-fraction? & lr-warmup-samples!=0",
          "Warm-up is given in samples or as a fraction, not both.", arguments(648, 782)),
    never("MLM-LAYERS-TWICE", "num-layers? & encoder-num-layers?",
          "The number of layers is given once.", arguments(653, 787)),
    never("MLM-SEQ-TWICE", "seq-length? & encoder-seq-length?",
          "The sequence length is given once.", arguments(689, 823)),
    needs("MLM-FP16-CROSS-ENTROPY", "fp16-lm-cross-entropy", "fp16",
          "The loss is computed in fp16 only where weights are fp16.", arguments(707, 847)),
    needs("MLM-FP32-RESIDUAL", "fp32-residual-connection", "fp16 or bf16",
          "An fp32 residual stream needs weights in bf16 or fp16.", arguments(709, 849)),
    never("MLM-WD-CONSTANT", "weight-decay-incr-style=constant & start-weight-decay?",
          "A constant weight decay has no start value.", arguments(718, 868)),
    never("MLM-WD-CONSTANT-END", "weight-decay-incr-style=constant & end-weight-decay?",
          "A constant weight decay has no end value.", arguments(719, 869)),
    needs("MLM-WD-GROWS", "weight-decay-incr-style!=constant", "start-weight-decay? & end-weight-decay?",
          "An increasing weight decay needs its start and end.", arguments(723, 873)),
    needs("MLM-DISTRIBUTE-TP", "distribute-saved-activations", "tensor-model-parallel-size>1",
          "Saved activations are distributed over tensor-parallel ranks.", arguments(736, 885)),
    needs("MLM-DISTRIBUTE-FULL", "distribute-saved-activations", "recompute-granularity=full",
          "Saved activations are distributed under full recomputation only.", arguments(739, 888)),
    needs("MLM-DISTRIBUTE-METHOD", "distribute-saved-activations & !recompute-method",
          "recompute-method=uniform or recompute-method=block",
          "Distributing saved activations needs a recompute method.", arguments(742, 891)),
    never("MLM-ACTIVATIONS-METHOD", "recompute-activations & recompute-method",
          "The switch means selective recomputation, which has no method.", arguments(751, 900)),
    needs("MLM-TP-OVERLAP-SP", "tp-comm-overlap", "sequence-parallel & tensor-model-parallel-size>1",
          "Tensor-parallel communication is overlapped only under sequence parallelism, which needs tp above 1.",
          arguments(764, 916)),
    never("MLM-DECOUPLED-LEGACY", "decoupled-lr? & use-legacy-models",
          "Legacy models have one learning rate.", arguments(807, 986)),
    never("MLM-INTERLEAVED-LEGACY", "rotary-interleaved & use-legacy-models",
          "Legacy models do not support interleaved RoPE.", arguments(816, 993)),
    never("MLM-NO-POSITION", "no-position-embedding & position-embedding-type!=rope & !use-rotary-position-embeddings",
          "The argument is deprecated: use --position-embedding-type none.", arguments(823, 1000)),
    never("MLM-CP-LEGACY", "context-parallel-size>1 & use-legacy-models",
          "Legacy models do not support context parallelism.", arguments(847, 1022)),
    never("MLM-DATA-ONE-SOURCE", "mock-data & data-path?", "Data comes from one source: mock data, one path to "
        "split, or one path per split.", arguments(870, 1053)),
    never("MLM-DATA-ONE-SOURCE-SPLIT", "data-path? & train-data-path?",
          "Data is one path to be split, or one path per split.", arguments(870, 1053)),
    never("MLM-DATA-ONE-SOURCE-MOCK", "mock-data & train-data-path?",
          "Data comes from one source: mock data, one path to split, or one path per split.", arguments(870, 1053)),
    *(never(f"MLM-DATA-ONE-SOURCE-{name}-{split.upper()}", f"{one} & {split}-data-path",
            "Training has one source of data: mock data, one path to be split, or one path per split.",
            arguments(870, 1053))
      for name, one in (("MOCK", "mock-data"), ("SPLIT", "data-path")) for split in ("valid", "test")),
    never("MLM-DETERMINISTIC-FLASH", "deterministic-mode & use-flash-attn",
          "Flash attention is not deterministic.", arguments(877, 1074), versions=BEFORE_19),
    never("MLM-GONE-BATCH-SIZE", "batch-size?",
          "The argument was removed: use --micro-batch-size.", arguments(362, 414)),
    never("MLM-GONE-WARMUP", "warmup?", "The argument was removed: use --lr-warmup-fraction.", arguments(365, 417)),
    never("MLM-GONE-MODEL-PARALLEL", "model-parallel-size?",
          "The argument was removed: use --tensor-model-parallel-size.", arguments(368, 420)),
    never("MLM-GONE-CHECKPOINT", "checkpoint-activations",
          "The argument was removed and ends the program: use --recompute-granularity and --recompute-method.",
          arguments(376, 427)),
    never("MLM-VPP-UNEVEN", "num-layers-per-virtual-pipeline-stage & decoder-first-pipeline-num-layers?",
          "With uneven stages chunks are given by --num-virtual-stages-per-pipeline-rank.", arguments(444, 530)),
    never("MLM-VPP-UNEVEN-LAST", "num-layers-per-virtual-pipeline-stage & decoder-last-pipeline-num-layers?",
          "With uneven stages chunks are given by --num-virtual-stages-per-pipeline-rank.", arguments(444, 530)),
), backends=BACKENDS, versions=EVERY)

declare((
    needs("MLM-PARAM-GATHER-DISTRIBUTED", "overlap-param-gather", "use-distributed-optimizer",
          "Only the distributed optimizer gathers weights.", arguments(503), versions=BEFORE_14),
    never("MLM-EP-FP16", "expert-model-parallel-size>1 & fp16",
          "Expert parallelism does not train in fp16.", arguments(854), versions=BEFORE_16),
    needs("MLM-GROUPED-GEMM-BF16", "moe-grouped-gemm", "bf16",
          "The grouped GEMM of experts multiplies bf16 only.", arguments(713), versions=BEFORE_16),
    needs("MLM-INTERLEAVED-FUSION", "rotary-interleaved", "no-rope-fusion",
          "Interleaved RoPE has no fused kernel.", arguments(814), versions=BEFORE_14),
), backends=BACKENDS, versions=UNTIL_12)
# fmt: on


@rule(
    "MLM-WANDB-NAME",
    source="Megatron-LM core_v0.12.1 megatron/training/global_vars.py:178; Megatron-LM core_v0.16.1 "
    "megatron/training/global_vars.py:196",
    reads="wandb-project wandb-exp-name job.name",
    backends=BACKENDS,
    versions=EVERY,
)
def runs_in_wandb_have_a_name(context: RuleContext) -> Iterator[Violation]:
    """Weights & Biases needs the name of the run: the training ends without one when its writer is made."""
    if context.flag("wandb-project") and not context.flag("wandb-exp-name"):
        yield Violation(
            message="wandb_project without wandb_exp_name ends the training when W&B starts: the run needs a name",
            flags=("wandb-project", "wandb-exp-name"),
            works=(f"logging.wandb_name={context.job.name or 'first'}",),
        )


@rule(
    "MLM-WANDB-WRITER",
    source="Megatron-LM core_v0.12.1 megatron/training/training.py:1409; Megatron-LM core_v0.16.1 "
    "megatron/training/training.py:1879; seen in a run: no figure is in its file",
    reads="wandb-project wandb-exp-name tensorboard-dir job.name job.output_dir",
    backends=BACKENDS,
    versions=EVERY,
    severity="warning",
)
def wandb_gets_figures_beside_tensorboard(context: RuleContext) -> Iterator[Violation]:
    """Weights & Biases gets the figures of an iteration only where TensorBoard's writer exists, too."""
    if context.flag("wandb-project") and context.flag("wandb-exp-name") and not context.flag("tensorboard-dir"):
        folder = output_dir(context.job)
        yield Violation(
            message="wandb_project without tensorboard_dir: W&B gets no loss and no other figure, as they are "
            "written beside TensorBoard's only",
            flags=("wandb-project", "tensorboard-dir"),
            works=(f"logging.tensorboard_dir={folder}/tensorboard",),
        )

"""Where MindSpeed-LLM's direct preference optimisation trains differently from its formula (docs/parity.md)."""

from backends.mindspeed.rules.tables import MINDSPEED, SINCE
from launcher.rules.table import declare, never

_TRAINER = "MindSpeed-LLM 26.1.0 tasks/posttrain/dpo/dpo_trainer.py"
_PROBABILITIES = "MindSpeed-LLM 26.1.0 tasks/posttrain/utils.py"

# fmt: off
declare((
    never("MS-DPO-TP", "stage=dpo & tensor-model-parallel-size>1",
          "Each tensor-parallel rank has gradients of the tokens in its own part of the vocabulary only, and the first "
          "token of each part is left out of the loss.",
          f"{_PROBABILITIES}:218; {_PROBABILITIES}:221; measured: docs/parity.md",
          message="tp {tensor-model-parallel-size}: DPO's gradients lack the other ranks' parts of the softmax, so "
          "training is another than without tensor parallelism",
          severity="warning"),
    never("MS-DPO-FTX-MEAN", "stage=dpo & pref-ftx>0 & micro-batch-size>1",
          "The loss of preferred answers is the mean of the means of answers; TRL and ms-swift take the mean of all "
          "their tokens in a micro-batch.",
          f"{_TRAINER}:348; {_TRAINER}:416; ms-swift 4.6.0 megatron/trainers/dpo_trainer.py:60; measured: "
          "docs/parity.md",
          message="--pref-ftx with --micro-batch-size {micro-batch-size}: tokens of short answers count more than "
          "those of long ones",
          severity="warning"),
), backends=MINDSPEED, since=SINCE)
# fmt: on

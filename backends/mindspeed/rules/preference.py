"""Where MindSpeed-LLM's direct preference optimisation trains differently from its formula (docs/parity.md)."""

from backends.mindspeed.rules.tables import MINDSPEED, SINCE
from launcher.rules.registry import Rule
from launcher.rules.table import declare, never

_TRAINER = "MindSpeed-LLM 26.1.0 tasks/posttrain/dpo/dpo_trainer.py"
_PROBABILITIES = "MindSpeed-LLM 26.1.0 tasks/posttrain/utils.py"
_MEASURED = "measured: docs/parity.md"

# fmt: off
declare((
    Rule(
        id="MS-DPO-TP",
        when="stage=dpo & tensor-model-parallel-size>1",
        doc="Each tensor-parallel rank has gradients of the tokens in its own part of the vocabulary only, and the "
        "first token of each part is left out of the loss.",
        source=f"{_PROBABILITIES}:218; {_PROBABILITIES}:221; MindSpeed-LLM 2.1.0 tasks/posttrain/utils.py:216; "
        f"{_MEASURED}",
        message="tp {tensor-model-parallel-size}: DPO's gradients lack the parts of the softmax on other ranks, so "
        "training is wrong without an error",
        stricter=True,
        reason="it trains, with wrong gradients",
    ),
), backends=MINDSPEED)
declare((
    Rule(
        id="MS-DPO-CP",
        when="stage=dpo & context-parallel-size>1",
        doc="Each context-parallel rank has gradients of its own tokens, whose sum is divided by the number of ranks: "
        "they are 1/cp of the loss's. The first token of a rank's second part is predicted from the end of its first.",
        source=f"{_PROBABILITIES}:261; {_TRAINER}:171; {_TRAINER}:402; {_MEASURED}",
        message="cp {context-parallel-size}: DPO's gradients are 1/{context-parallel-size} of those of its loss, so "
        "training is wrong without an error",
        stricter=True,
        reason="it trains, with wrong gradients",
    ),
    Rule(
        id="MS-DPO-PP",
        when="stage=dpo & pipeline-model-parallel-size>1 & !num-layers-per-virtual-pipeline-stage & "
        "!num-virtual-stages-per-pipeline-rank & !no-pad-to-seq-lengths & !variable-seq-lengths",
        doc="Pipeline stages send policy and reference model, two answers each, and receive one sample: the function "
        "that would enlarge the buffer (get_tensor_shapes_decorator) is not registered. Interleaved stages do, and so "
        "do sequences of variable length, whose sizes are sent first.",
        source=f"{_PROBABILITIES}:96; MindSpeed-LLM 26.1.0 mindspeed_llm/core/pipeline_parallel/schedules.py:72; "
        f"MindSpeed-LLM 26.1.0 features_manager/finetune/finetune.py:43; {_MEASURED}",
        message="pp {pipeline-model-parallel-size}: stages of DPO receive a quarter of what is sent, and the first "
        "iteration fails",
        fields=("parallel.pp", "batch.variable_seq_lengths"),
        stricter=True,
        reason="it fails in the first iteration",
    ),
    never("MS-DPO-FTX-MEAN", "stage=dpo & pref-ftx>0 & micro-batch-size>1",
          "The loss of preferred answers is the mean of the means of answers; TRL and ms-swift take the mean of all "
          "their tokens in a micro-batch.",
          f"{_TRAINER}:348; {_TRAINER}:416; ms-swift 4.6.0 megatron/trainers/dpo_trainer.py:60; {_MEASURED}",
          message="--pref-ftx with --micro-batch-size {micro-batch-size}: tokens of short answers count more than "
          "those of long ones",
          severity="warning"),
    never("MS-DPO-REFERENCE", "stage=dpo & ref-model? & !exit-on-missing-checkpoint",
          "Without a checkpoint at --ref-model the reference model keeps random weights, with a line in the log. A "
          "folder of Hugging Face weights is no checkpoint: only --load is converted at start.",
          f"{_TRAINER}:372; Megatron-LM 0.12.1 checkpointing.py:927",
          message="--ref-model {ref-model}: where it has no Megatron checkpoint, the reference model is random and "
          "training goes on",
          severity="warning"),
), backends=MINDSPEED, since=SINCE)
# fmt: on

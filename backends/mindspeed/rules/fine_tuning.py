"""Where MindSpeed-LLM's supervised fine-tuning fails or trains differently from its loss (docs/parity.md)."""

from backends.mindspeed.rules.context_parallel_sizes import ALGORITHM, SIZE
from backends.mindspeed.rules.tables import MINDSPEED, SINCE
from launcher.rules.registry import Rule
from launcher.rules.table import declare, never

_TRAINER = "MindSpeed-LLM 26.1.0 tasks/posttrain/sft/sft_trainer.py"

# fmt: off
declare((
    never("MS-SFT-CP-SHIFT", f"is-instruction-dataset & {SIZE}>1",
          "Each context-parallel rank shifts the labels of its own tokens: the first token of its part of the sequence "
          "is not learned, and under ring attention the first token of its second part is predicted from the end of "
          "its first.",
          "MindSpeed-LLM 26.1.0 mindspeed_llm/core/models/gpt/gpt_model.py:324; "
          f"{_TRAINER}:190; MindSpeed-LLM 2.1.0 mindspeed_llm/core/models/gpt/gpt_model.py:284; "
          "measured: docs/parity.md",
          message=f"cp {{{SIZE}}}: tokens with which a context-parallel rank's part of a sequence begins are not "
          "learned, or from the wrong position",
          severity="warning"),
), backends=MINDSPEED)
declare((
    Rule(
        id="MS-SFT-CP-PACKED",
        when=f"stage=sft & {SIZE}>1 & {ALGORITHM}=megatron_cp_algo & reset-attention-mask & attention-mask-type=causal",
        doc="Packed samples are padded for ring attention by their ends, from which the values -1 that fill the list "
        "are not removed: torch.arange raises an error.",
        source=f"{_TRAINER}:150; MindSpeed-LLM 26.1.0 tasks/preprocess/decoder_packed_mtf_dataset.py:235; "
        "MindSpeed 26.1.0 mindspeed/core/context_parallel/utils.py:745; measured: docs/parity.md",
        message=f"cp {{{SIZE}}} with ring attention: the first iteration over packed samples fails (upper bound and "
        "lower bound inconsistent with step sign)",
        fields=("parallel.cp", "parallel.cp_algorithm", "batch.packing"),
        stricter=True,
        reason="it fails in the first iteration", since="26.1",
    ),
), backends=MINDSPEED, since=SINCE)
# fmt: on

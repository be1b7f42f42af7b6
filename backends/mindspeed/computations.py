"""What MindSpeed-LLM computes differently: Megatron-core's rows, and its tokenizer's padding."""

from backends.megatron_lm.computations import COMPUTATIONS
from launcher.mapping.computation import Computation

_OWN = (
    Computation(topic="BALANCE-PADDING", rule="MS-MOE-PADDING", versions={"mindspeed": ("26.1.0", None)}),
    Computation(topic="MTP-NORM", rule="MS-MTP-NORM", versions={"mindspeed": ("26.1.0", None)}),
    *(
        Computation(
            topic=topic, way=way, versions={"mindspeed": ("26.1.0", None)}, source=f"MindSpeed-LLM 26.1.0 {source}"
        )
        for topic, way, source in (
            ("CHAT-END", "token", "configs/finetune/templates.json:232, 389"),
            ("CHAT-FORMAT", "words", "configs/finetune/templates.json:616"),
            ("CHAT-THINKING", "learned", "mindspeed_llm/tasks/preprocess/templates.py:498"),
        )
    ),
    Computation(topic="LOSS-MASK", rule="MS-PAD-EOS", versions={"mindspeed": ("2.1.0", None)}),
    Computation(
        topic="LOSS-MASK",
        way="usual",
        versions={"mindspeed": ("2.1.0", None)},
        source="MindSpeed-LLM 26.1.0 mindspeed_llm/training/tokenizer/tokenizer.py:143",
    ),
)


def computations() -> tuple[Computation, ...]:
    """Return the rows of MindSpeed-LLM."""
    return (*COMPUTATIONS, *_OWN)

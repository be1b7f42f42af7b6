"""Hugging Face weights that MindSpeed-LLM does not convert at the start of training."""

from backends.mindspeed.families import FAMILIES
from backends.mindspeed.rules.tables import MINDSPEED
from launcher.rules.registry import Rule
from launcher.rules.table import declare

_FIRST = "convert first, with launch convert hf-to-mcore, and load the result with checkpoint.load=DIR"


def _not_converted(id: str, version: str, source: str, since: str | None = None) -> Rule:
    """Return the rule of the families that the converter knows and that the start of training does not convert.

    Args:
        version: the last version with these families.
        since: the first one, if there are several.
    """
    names = [row.converter for row in FAMILIES.values() if row.converter and not row.converts_at_start(version)]
    return Rule(
        id=id,
        doc="At the start of training, only some of the families that the converter knows are converted.",
        source=source,
        when=f"enable-hf2mg-convert & model-type-hf={'|'.join(names)}",
        message=f"{{model-type-hf}} is not converted at the start: {_FIRST}",
        flags=("model-type-hf", "enable-hf2mg-convert"),
        fields=("model.path", "checkpoint.load"),
        asks=("checkpoint.load=DIR",),
        since=since or version,
        until=version,
        stricter=True,
        reason="the start of training refuses it, after the arguments were validated",
    )


declare(
    (
        _not_converted(
            "MS-CONVERT-FAMILY",
            "26.1.0",
            "MindSpeed-LLM 26.1.0 mindspeed_llm/training/initialize.py:245; MindSpeed-LLM 26.0.0 "
            "mindspeed_llm/training/initialize.py:231; MindSpeed-LLM 2.3.0 mindspeed_llm/training/initialize.py:231",
            since="2.3",
        ),
        _not_converted(
            "MS-CONVERT-FAMILY-MASTER",
            "master",
            "MindSpeed-LLM master mindspeed_llm/training/initialize.py:251",
        ),
        Rule(
            id="MS-CONVERT-NAMES",
            doc="The converter takes the number of experts from num_experts in config.json; transformers 5 saves it as "
            "num_local_experts.",
            source="MindSpeed-LLM 26.1.0 mindspeed_llm/tasks/checkpoint/model_builder.py:106; "
            "mindspeed_llm/tasks/checkpoint/convert_hf2mg.py:900",
            when="enable-hf2mg-convert & job.model.newer_names~num_local_experts",
            message="config.json names the number of experts num_local_experts, as transformers 5 saves it: the "
            f"converter takes the layers for dense ones and ends in a KeyError. Name it num_experts there, or {_FIRST}",
            flags=("enable-hf2mg-convert",),
            fields=("model.path", "checkpoint.load"),
            asks=("checkpoint.load=DIR",),
            since="2.3",
            stricter=True,
            reason="the start of training fails, after the arguments were validated",
        ),
    ),
    backends=MINDSPEED,
)

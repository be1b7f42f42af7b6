"""Version ranges of the Megatron-LM rules, for Megatron-LM and for MindSpeed-LLM, which extends it."""

from collections.abc import Mapping

from launcher.rules.registry import Range

BACKENDS = ("megatron_lm", "mindspeed")
PLAIN = ("megatron_lm",)

# MindSpeed-LLM 2.1.0 is based on core_r0.8.0, later ones on core_v0.12.1.
EVERY: Mapping[str, Range] = {"megatron_lm": (None, None), "mindspeed": (None, None)}
SINCE_12: Mapping[str, Range] = {"megatron_lm": (None, None), "mindspeed": ("2.2", None)}
UNTIL_12: Mapping[str, Range] = {"megatron_lm": (None, "0.12.9"), "mindspeed": (None, None)}
ONLY_12: Mapping[str, Range] = {"megatron_lm": (None, "0.12.9"), "mindspeed": ("2.2", None)}
ONLY_16: Range = ("0.16", None)
SINCE_13 = "0.13"
SINCE_14 = "0.14"
SINCE_15 = "0.15"
SINCE_17 = "0.17"
SINCE_18 = "0.18"
SINCE_19 = "0.19"
# The last with what the next one removed or relaxed.
UNTIL_13 = "0.13.99"
UNTIL_14 = "0.14.99"
UNTIL_15 = "0.15.99"
UNTIL_16 = "0.16.99"
UNTIL_17 = "0.17.99"
UNTIL_18 = "0.18.99"
BEFORE_14: Mapping[str, Range] = {**UNTIL_12, "megatron_lm": (None, UNTIL_13)}
BEFORE_16: Mapping[str, Range] = {**UNTIL_12, "megatron_lm": (None, UNTIL_15)}
BEFORE_18: Mapping[str, Range] = {"megatron_lm": (None, UNTIL_17), "mindspeed": (None, None)}
BEFORE_19: Mapping[str, Range] = {"megatron_lm": (None, UNTIL_18), "mindspeed": (None, None)}
SINCE_12_TO_13: Mapping[str, Range] = {**SINCE_12, "megatron_lm": (None, UNTIL_13)}
SINCE_12_TO_14: Mapping[str, Range] = {**SINCE_12, "megatron_lm": (None, UNTIL_14)}
SINCE_12_TO_15: Mapping[str, Range] = {**SINCE_12, "megatron_lm": (None, UNTIL_15)}
SINCE_12_TO_17: Mapping[str, Range] = {**SINCE_12, "megatron_lm": (None, UNTIL_17)}
SINCE_12_TO_18: Mapping[str, Range] = {**SINCE_12, "megatron_lm": (None, UNTIL_18)}


def arguments(line_12: int | str, line_16: int | str = "") -> str:
    """Return the source of a check in Megatron-LM's validate_args."""
    return "; ".join(
        f"Megatron-LM core_v{version} arguments.py:{line}"
        for version, line in (("0.12.1", line_12), ("0.16.1", line_16))
        if line
    )


def config(line_12: int | str, line_16: int | str = "") -> str:
    """Return the source of a check in Megatron-core's TransformerConfig."""
    return "; ".join(
        f"megatron-core {version} transformer_config.py:{line}"
        for version, line in (("0.12.1", line_12), ("0.16.1", line_16))
        if line
    )


def validated(version: str, line: int | str) -> str:
    """Return the source of a check in validate_args of one version."""
    return f"Megatron-LM core_v{version} arguments.py:{line}"


def configured(version: str, line: int | str) -> str:
    """Return the source of a check in TransformerConfig of one version."""
    return f"megatron-core {version} transformer_config.py:{line}"

"""Arguments that select layers by an interval or by a list: what Megatron-core requires as it builds the model."""

from collections.abc import Mapping
from functools import partial

from backends.megatron_lm.rules.versions import BACKENDS, EVERY, PLAIN, SINCE_13, SINCE_15, config
from launcher.job import Value
from launcher.list_expression import expand
from launcher.rules.registry import Range, RuleContext
from launcher.rules.table import checked, declare
from launcher.syntax import is_count

_SPECS = "models/gpt/gpt_layer_specs.py"
_VARIANTS = "models/gpt/experimental_attention_variant_module_specs.py"
# MindSpeed-LLM 2.2 and before do not check it.
_COUNTED: Mapping[str, Range] = {**EVERY, "mindspeed": ("2.3", None)}


def _problem(
    context: RuleContext, flag: str, *, entries: str = "01", longer: bool = False, divides: bool = False
) -> str:
    """Return what is wrong with a selection of layers; "": nothing.

    Args:
        entries: digits that a list may have; "": any numbers.
        longer: a list may have more entries than the model has layers.
        divides: an interval must divide the number of layers, and 0 is none; otherwise layers are counted modulo it.
    """
    given, layers = context.flag(flag), context.number("num-layers")
    text = str(given)
    if given is None or layers <= 0 or "$" in text:  # a variable that the script leaves open
        return ""
    if is_count(text.removeprefix("-")):
        found = _of_interval(int(text), layers, divides)
    else:
        found = _of_list(given, layers, entries, longer)
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return f"--{flag} {shown} {found}" if found else ""


def _of_interval(interval: int, layers: int, divides: bool) -> str:
    if divides:
        wrong = interval < 0 or (interval > 0 and layers % interval)
        return f"does not divide the number of layers, {layers}" if wrong else ""
    return "counts layers modulo 0, which ends in a ZeroDivisionError" if interval == 0 else ""


def _of_list(given: Value, layers: int, entries: str, longer: bool) -> str:
    if isinstance(given, str) and set(given) & set(" \t\n"):
        return "contains spaces, which Megatron's parser refuses"
    kinds = list(given) if isinstance(given, (list, tuple)) else expand(str(given))
    if kinds is None:
        return "is no list of numbers, such as ([0]*1+[1]*3), with an entry for each layer"
    if len(kinds) < layers or (len(kinds) > layers and not longer):
        return f"describes {len(kinds)} layers; the model has {layers}"
    if entries and not set(map(str, kinds)) <= set(entries):
        return f"has entries other than {' and '.join(entries)}"
    return ""


# fmt: off
declare((
    checked("MLM-MOE-PATTERN", partial(_problem, flag="moe-layer-freq"),
            "A list of MoE layers has 0 or 1 for each layer of the model; an interval is not 0.",
            f"Megatron-LM core_v0.12.1 {_SPECS}:394; megatron-core 0.16.1 {_SPECS}:589; MindSpeed-LLM 26.1.0 "
            "training/training.py:1335",
            when="num-experts>0", reads="num-layers", flags=("moe-layer-freq", "num-layers")),
), backends=BACKENDS, versions=_COUNTED)
declare((
    checked("MLM-NO-ROPE-PATTERN", partial(_problem, flag="no-rope-freq", entries="", divides=True),
            "A list of layers without RoPE has an entry for each layer; an interval divides the layers.",
            config("", "1966-1977"), reads="num-layers", flags=("no-rope-freq", "num-layers"), since=SINCE_13),
    checked("MLM-WINDOW-PATTERN", partial(_problem, flag="window-attn-skip-freq", entries="", longer=True),
            "A list of layers within the window has an entry for each layer; an interval is not 0.",
            "megatron-core 0.16.1 transformer/utils.py:451 is_layer_window_attention, in the first forward pass",
            when="window-size?", reads="num-layers", flags=("window-attn-skip-freq", "num-layers"), since=SINCE_15),
    checked("MLM-GDN-PATTERN", partial(_problem, flag="linear-attention-freq"),
            "A list of layers with linear attention has 0 or 1 for each layer; an interval is not 0.",
            f"megatron-core 0.16.1 {_VARIANTS}:330",
            when="experimental-attention-variant=gated_delta_net", reads="num-layers",
            flags=("linear-attention-freq", "num-layers")),
), backends=PLAIN)
# fmt: on

"""Recomputation of parts of every layer: the next lower ones of each."""

from launcher.compose import compose
from launcher.search.begin import begin
from launcher.search.points import in_part

_JOB = ("+recipe=qwen3_moe", "backend=mindspeed", "hardware=ascend_910b")


def test_core_attention_and_a_flag_are_two_parts_of_which_either_can_be_left_out() -> None:
    """Core attention is what `selective` means without modules: the flag beside it is a part, too."""
    attention = {"recompute.granularity": "selective", "recompute.modules": ("core_attn",)}
    activation = {"recompute.activation": True}
    lighter = list(begin(compose(_JOB)).partial.lighter(in_part(attention | activation)))
    assert lighter == [in_part(activation), in_part(attention)]

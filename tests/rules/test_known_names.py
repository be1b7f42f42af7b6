"""Names that a backend looks up in a list of its own: by version, by backend, joined, and added by a plug-in."""

import pytest

from launcher.api import check, import_argv

_CORE = (
    "--num-layers 8 --hidden-size 256 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 10 --lr 1e-4 --bf16 --mock-data "
    "--tokenizer-type NullTokenizer --vocab-size 1024 --recompute-granularity selective --recompute-modules "
)
_SWIFT = "megatron sft --model Qwen/Qwen3-8B --dataset a.jsonl --micro_batch_size 1 --global_batch_size 8 "
CASES = {
    "a name of this version": ("megatron_lm", "0.19.0", _CORE + "gdn_norm_out", ()),
    "a name of a later version": ("megatron_lm", "0.18.2", _CORE + "gdn_norm_out", ("MLM-RC-MODULES",)),
    "a name that another backend has": ("mindspeed", "26.1.0", _CORE + "shared_experts", ("MLM-RC-MODULES",)),
    "joined names": ("megatron", "4.6.0", _SWIFT + "--loss_scale last_round+hermes+ignore_think_prefix", ()),
    "one of joined names": (
        "megatron",
        "4.4.2",
        _SWIFT + "--loss_scale hermes+ignore_think_prefix",
        ("SW-LOSS-SCALE",),
    ),
    "a plug-in adds names": ("megatron", "4.6.0", _SWIFT + "--loss_scale mine --external_plugins mine.py", ()),
}


@pytest.mark.parametrize("case", CASES)
def test_names_are_those_of_the_version(case: str) -> None:
    backend, version, words, expected = CASES[case]
    rules = {each.rule for each in check(import_argv(words.split(), backend=backend, version=version))}
    found = rules & {"MLM-RC-MODULES", "SW-LOSS-SCALE"}
    assert found == set(expected)


def test_message_names_the_nearest_and_all() -> None:
    findings = check(import_argv((_CORE + "core_atn").split(), backend="megatron_lm", version="0.13.1"))
    (message,) = [each.message for each in findings if each.rule == "MLM-RC-MODULES"]
    assert message == (
        "recompute.modules core_atn (did you mean core_attn?): supported are core_attn, moe_act, layernorm, "
        "mla_up_proj, mlp, moe"
    )

"""A script without a family: the one with its network is offered, or what the nearest lacks is named."""

from dataclasses import replace

import pytest

from launcher.families.like import families_like, why_none
from launcher.importing.port import ported
from launcher.importing.read_argv import read_argv
from launcher.job.finding import Finding
from launcher.job.model import Model

_SIZES = (
    "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 20 --lr 1e-4 --bf16 --use-mcore-models --data-path d"
)
_LLAMA = (
    "--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --group-query-attention --num-query-groups 2 --ffn-hidden-size 1024"
)
_GPT2 = "--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt"
_NULL = "--tokenizer-type NullTokenizer --vocab-size 4096"
_EXPERTS = "--num-experts 4 --moe-router-topk 2 --moe-aux-loss-coeff 0.01 --moe-router-load-balancing-type aux_loss"


def errors(words: str, target: str) -> dict[tuple[str, str], Finding]:
    """Return the errors of a port by rule and first field, or first flag."""
    found = ported(read_argv(words.split(), backend="megatron_lm"), target)
    return {(each.rule, (each.fields or each.flags)[0]): each for each in found.findings if each.severity == "error"}


def offered(finding: Finding) -> list[tuple[str, ...]]:
    return [fix.overrides for fix in finding.fixes]


DENSE = Model(
    hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, intermediate_size=1024,
    vocab_size=4096, max_position_embeddings=512, tie_word_embeddings=False,
)  # fmt: skip


def test_a_family_is_one_that_expresses_every_field() -> None:
    assert families_like(DENSE)[0] == "llama"
    assert families_like(replace(DENSE, qk_layernorm=True))[0] == "qwen3"
    assert why_none(DENSE) == ""


def test_sizes_that_a_tokenizer_gives_tell_no_families_apart() -> None:
    assert families_like(replace(DENSE, vocab_size=None, max_position_embeddings=None)) == families_like(DENSE)


def test_the_nearest_family_is_named_with_what_differs() -> None:
    model = replace(DENSE, normalization="LayerNorm")
    assert families_like(model) == ()
    assert why_none(model) == (
        "no known family has this network: the nearest, llama, differs in normalization='LayerNorm'"
    )


def test_a_model_without_sizes_has_no_family() -> None:
    assert (families_like(Model()), why_none(Model())) == ((), "")


# name: (script, target, error, part of what is offered first)
OFFERED = {
    "a dense network": (
        f"{_SIZES} {_LLAMA} {_NULL}",
        "megatron",
        ("MAP-UNSUPPORTED", "model.model_type"),
        ("model.model_type=llama",),
    ),
    "one that only older classes build": (
        f"{_SIZES} {_LLAMA} {_EXPERTS} --moe-ffn-hidden-size 512 {_NULL}",
        "mindformers",
        ("MAP-UNSUPPORTED", "model.model_type"),
        ("model.model_type=mixtral", "model.legacy=true"),
    ),
    "a vocabulary without files": (
        f"{_SIZES} {_LLAMA} {_NULL}",
        "megatron",
        ("REQ-MODEL", "model.vocab_size"),
        ("model.vocab_size=4097",),
    ),
    "sizes that the script leaves to its backend": (
        f"{_SIZES} {_GPT2} --swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope",
        "megatron",
        ("REQ-MODEL", "model.vocab_size"),
        ("model.vocab_size=50257", "model.intermediate_size=1344"),
    ),
    "the width of experts": (
        f"{_SIZES} {_EXPERTS} {_GPT2} --swiglu --disable-bias-linear --normalization RMSNorm "
        "--position-embedding-type rope",
        "megatron",
        ("MOE-TOPK", "model.num_experts_per_tok"),
        ("model.moe_intermediate_size=1344",),
    ),
}


@pytest.mark.parametrize("case", OFFERED)
def test_a_port_offers_what_follows_from_the_scripts_arguments(case: str) -> None:
    words, target, error, values = OFFERED[case]
    # With what the family makes necessary, where that is another error.
    assert set(values) <= set(offered(errors(words, target)[error])[0])


def test_a_vocabulary_that_is_told_needs_no_acceptance() -> None:
    assert ("PORT-LEFT-OUT", "vocab-size") not in errors(f"{_SIZES} {_LLAMA} {_NULL}", "megatron")


def test_a_model_that_nothing_describes_is_one_error() -> None:
    """The family is asked for; that no model is named is the same question."""
    found = errors(f"{_SIZES} {_LLAMA} {_NULL}", "megatron")
    assert not [key for key in found if key[0] == "SW-SOURCE"]

"""A backend that cannot train the job's family names the backends that can; each was tried."""

import itertools

import pytest

from launcher.compose.compose import compose
from launcher.compose.search_path import search_path
from launcher.job.finding import Finding
from launcher.mapping.backend import backend_names
from launcher.mapping.family_row import FAMILY
from launcher.pipeline import judge

MODELS = [name for name in search_path().options("model") if not name.startswith("tiny")]


def errors(*words: str) -> list[Finding]:
    return [each for each in judge(compose(["+recipe=tiny_qwen3", *words])).findings if each.severity == "error"]


def offered(*words: str) -> list[str]:
    """Return what is offered for the refusal of the family."""
    refused = [each for each in errors(*words) if each.fields == (FAMILY,)]
    return [fix.shown for fix in refused[0].fixes]


CASES = {
    "one other": (("model=qwen3_vl_8b", "backend=mindspeed"), ["backend=megatron"]),
    "another version": (
        ("model=minimax_m2", "backend=mindformers"),
        ["backend=megatron", "backend=mindspeed backend.version=master"],
    ),
    "own newer version first": (
        ("model=gpt_oss_20b", "backend=megatron_lm"),
        ["backend.version=0.19.0", "backend=megatron"],
    ),
    "version that is chosen": (
        ("model=qwen2_5_vl_7b", "backend=mindformers", "backend.version=1.8.0"),
        ["backend=megatron backend.version=null"],
    ),
    "with what it needs": (
        ("model=phi_4", "backend=megatron"),
        ["backend=megatron_lm model.pretrained=false (changes training)"],
    ),
    "beside another error": (("model=qwen3_vl_8b", "backend=mindspeed", "parallel.tp=3"), ["backend=megatron"]),
    "none": (("model=gemma_3_1b", "backend=megatron"), []),
    "argument of the backend": (
        ("model=qwen3_vl_8b", "backend=mindspeed", "+backend.args.use-flash-attn=true"),
        ["backend=megatron backend.args.use-flash-attn=null (changes training)"],
    ),
}


@pytest.mark.parametrize(("words", "expected"), CASES.values(), ids=CASES)
def test_backends_of_a_refused_family(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected
    for fix in expected:
        passed = [*words, *fix.removesuffix(" (changes training)").split()]
        assert not any(FAMILY in each.fields for each in errors(*passed))


@pytest.mark.sample(keep=25)
@pytest.mark.parametrize(("model", "backend"), list(itertools.product(MODELS, backend_names())))
def test_what_is_offered_passes(model: str, backend: str) -> None:
    words = (f"model={model}", f"backend={backend}")
    before = errors(*words)
    for error in before:
        for fix in error.fixes:
            if fix.overrides[0].startswith("backend="):
                left = {(each.rule, each.fields) for each in errors(*words, *fix.overrides)}
                assert (error.rule, error.fields) not in left, fix.shown
                assert left <= {(each.rule, each.fields) for each in before}, fix.shown
            assert not any(each.startswith(f"{FAMILY}=") for each in fix.overrides), "another family is another model"


KINDS = {
    "biases of dense layers": (
        ("model=llama3_8b", "model.attention_bias=true", "model.linear_bias=true", "backend=megatron"),
        ["model.linear_bias"],
    ),
    "dense layers between": (
        ("model=qwen3_30b_a3b", "model.mlp_only_layers=[1]", "backend=mindspeed"),
        ["model.mlp_only_layers"],
    ),
}


@pytest.mark.parametrize(("words", "fields"), KINDS.values(), ids=KINDS)
def test_backends_that_build_a_kind_of_model_are_offered(words: tuple[str, ...], fields: list[str]) -> None:
    # Conversions for the refused backend offer them, too.
    words = (*words, "model.pretrained=false")
    refused = next(each for each in errors(*words) if {*fields} <= {*each.fields})
    backends = [fix for fix in refused.fixes if fix.overrides[0].startswith("backend=")]
    assert backends
    for fix in backends:
        kept = [word for word in words if not word.startswith("backend=")]
        assert not any({*fields} & {*each.fields} for each in errors(*kept, *fix.overrides))


def test_a_layout_is_settled_beside_a_model_that_the_backend_cannot_build() -> None:
    words = ("model=llama3_8b", "model.attention_bias=true", "model.linear_bias=true", "backend=megatron")
    layout = ("model.num_hidden_layers=3", "model.pretrained=false", "parallel.pp=2", "parallel.vpp=2")
    refused = next(each for each in errors(*words, *layout) if each.rule == "PAR-PP-LAYERS")
    assert refused.fixes

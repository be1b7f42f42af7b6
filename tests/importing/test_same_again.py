"""Arguments that a table reads as what they mean, and writes so that the same is meant.

Each case is a way of saying something that a table writes otherwise: by another name, not at all, or always. No repair
is needed, except for arguments that come back as they were typed.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from launcher.importing.assemble import assemble
from launcher.importing.exact import exact
from launcher.importing.imported import Imported
from launcher.importing.roundtrip import differences, translated
from launcher.mapping.backend import get_backend
from tests.sampling import examples

_BASE = {
    "num-layers": 8,
    "hidden-size": 64,
    "num-attention-heads": 4,
    "seq-length": 128,
    "max-position-embeddings": 128,
    "micro-batch-size": 1,
    "global-batch-size": 8,
    "train-iters": 10,
    "lr": 1e-4,
    "eval-iters": 5,
    "eval-interval": 50,
    "tokenizer-type": "GPT2BPETokenizer",
    "tensor-model-parallel-size": 1,
    "pipeline-model-parallel-size": 2,
}
_MOE = {**_BASE, "num-experts": 4, "moe-router-topk": 2}
_WITHOUT = dict.fromkeys(("eval-iters", "eval-interval", "tokenizer-type"))

# name: (backend, version, arguments; None: left out)
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "the entry point's own tokenizer": ("megatron_lm", "0.16.1", {**_BASE, "tokenizer-type": None}),
    "evaluation by default": ("megatron_lm", "0.12.1", {**_BASE, **_WITHOUT}),
    "biases by default": ("megatron_lm", "0.16.1", _BASE),
    "biases twice": ("megatron_lm", "0.16.1", {**_BASE, "add-qkv-bias": True}),
    "no biases": ("megatron_lm", "0.16.1", {**_BASE, "disable-bias-linear": True, "add-qkv-bias": True}),
    "chunks by their layers": ("megatron_lm", "0.16.1", {**_BASE, "num-layers-per-virtual-pipeline-stage": 2}),
    "one chunk": ("megatron_lm", "0.12.1", {**_BASE, "num-layers-per-virtual-pipeline-stage": 4}),
    "as many groups as heads": (
        "megatron_lm",
        "0.16.1",
        {**_BASE, "group-query-attention": True, "num-query-groups": 4},
    ),
    "sigmoid before top-k": (
        "megatron_lm",
        "0.16.1",
        {**_MOE, "moe-router-score-function": "sigmoid", "moe-router-pre-softmax": True},
    ),
    "sinkhorn of one expert": (
        "megatron_lm",
        "0.16.1",
        {**_MOE, "moe-router-topk": 1, "moe-router-load-balancing-type": "sinkhorn"},
    ),
    "expert ranks of a dense model": ("megatron_lm", "0.16.1", {**_BASE, "expert-tensor-parallel-size": 1}),
    "DeepEP by its old name": (
        "megatron_lm",
        "0.16.1",
        {**_MOE, "moe-token-dispatcher-type": "flex", "moe-enable-deepep": True},
    ),
    "no prediction layers": ("mindspeed", "26.1.0", {**_BASE, "mtp-num-layers": 0, "mtp-loss-scaling-factor": 0.3}),
    "normalised weights, said": ("mindspeed", "26.1.0", {**_MOE, "norm-topk-prob": True}),
    "scaled weights": (
        "mindspeed",
        "26.1.0",
        {**_MOE, "norm-topk-prob": True, "moe-router-topk-scaling-factor": 2.5},
    ),
    "weights of dropped tokens": (
        "mindspeed",
        "26.1.0",
        {**_MOE, "norm-topk-prob": True, "moe-expert-capacity-factor": 1.0},
    ),
    "checkpoints of the default format": (
        "mindspeed",
        "26.1.0",
        {**_MOE, "norm-topk-prob": True, "first-k-dense-replace": 2, "moe-layer-freq": 1, "ckpt-format": None},
    ),
    "packed without its mask": (
        "mindspeed",
        "26.1.0",
        {**_BASE, "stage": "sft", "is-instruction-dataset": True, "neat-pack": True},
    ),
    "plain layers for a family with its own": ("mindspeed", "26.1.0", {**_BASE, "qk-layernorm": True}),
    "an old version's own layers": ("mindspeed", "2.1.0", {**_BASE, "use-mcore-models": True}),
    "a stage without a task": (
        "mindspeed",
        "2.1.0",
        {
            **_BASE,
            "use-mcore-models": True,
            "stage": "trl_ppo",
            "ref-model": "m",
            "prompt-type": "llama2",
            "variable-seq-lengths": True,
        },
    ),
    "a factor that is not used": (
        "mindspeed",
        "26.1.0",
        {**_BASE, "position-embedding-type": "rope", "rope-scaling-type": "yarn", "rope-scaling-factor": 16.0},
    ),
    "an interval without a folder": ("mindspeed", "26.1.0", {**_BASE, "save-interval": 100}),
    "an interval without a folder, and more": (
        "megatron_lm",
        "0.16.1",
        {**_BASE, "eval-iters": -1, "save-interval": 9},
    ),
    "weights that are not drawn": ("megatron", "4.6.0", {"model": "a/b", "tensor_model_parallel_size": 2}),
    "weights read anyway": ("megatron", "3.12.6", {"model": "a/b", "finetune": True}),
}


def imported(backend: str, version: str, values: dict[str, Any]) -> Imported:
    given = {flag: value for flag, value in values.items() if value is not None}
    command = "sft" if backend == "megatron" else None
    return exact(lambda kept: assemble(given, get_backend(backend), version, command=command, kept=kept), set())


@pytest.mark.parametrize("name", CASES)
def test_no_repair_is_needed(name: str) -> None:
    backend, version, values = CASES[name]
    found = imported(backend, version, values)
    assert differences(found) == []
    assert dict(found.exact) == {}


# Arguments of MindSpeed-LLM's MoE layers, and what is passed through so that they come back as they were typed.
AS_TYPED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "normalised weights, unsaid": ({}, {"norm-topk-prob": None}),
    "every layer after the dense ones": (
        {"norm-topk-prob": True, "first-k-dense-replace": 2, "moe-layer-freq": "-1"},
        {"moe-layer-freq": "-1"},
    ),
    "no dense layer": (
        {"norm-topk-prob": True, "first-k-dense-replace": 0, "moe-layer-freq": "-1"},
        {"first-k-dense-replace": 0, "moe-layer-freq": "-1"},
    ),
}


@pytest.mark.parametrize("name", AS_TYPED)
def test_arguments_come_back_as_they_were_typed(name: str) -> None:
    added, passed = AS_TYPED[name]
    found = imported("mindspeed", "26.1.0", {**_MOE, **added})
    assert differences(found) == []
    assert dict(found.exact) == passed
    after = {arg.flag: arg.value for arg in translated(found)[1].native}
    flags = ("norm-topk-prob", "first-k-dense-replace", "moe-layer-freq")
    assert {flag: after.get(flag) for flag in flags} == {flag: added.get(flag) for flag in flags}
    assert found.job.model.norm_topk_prob


def test_masks_by_the_deprecated_name_come_back_by_it() -> None:
    """Its data loader creates masks only for the new name, which it reads before it copies the other."""
    found = imported("mindspeed", "26.1.0", {**_BASE, "context-parallel-size": 2, "cp-attention-mask-type": "general"})
    assert found.job.parallel.cp_mask_type == "general"
    assert differences(found) == []
    after = {arg.flag: arg.value for arg in translated(found)[1].native}
    assert (after.get("cp-attention-mask-type"), after.get("attention-mask-type")) == ("general", None)


def test_legacy_models_stay_legacy_models() -> None:
    assert dict(imported("mindspeed", "2.1.0", _BASE).exact) == {"use-mcore-models": None}


def test_deprecated_spellings_are_read() -> None:
    assert imported(*CASES["chunks by their layers"]).job.parallel.vpp == 2
    assert imported(*CASES["biases by default"]).job.model.attention_bias
    assert imported(*CASES["evaluation by default"]).job.evaluation.iters == 100
    assert not imported(*CASES["sinkhorn of one expert"]).job.model.norm_topk_prob
    assert imported(*CASES["checkpoints of the default format"]).job.checkpoint.format == "torch_dist"
    assert not imported(*CASES["packed without its mask"]).job.batch.packing


_SWITCHES = ("group-query-attention", "disable-bias-linear", "add-qkv-bias", "swiglu", "qk-layernorm", "bf16")
_CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "num-query-groups": st.sampled_from([2, 4]),
    "num-layers-per-virtual-pipeline-stage": st.sampled_from([1, 2, 4]),
    "mtp-num-layers": st.sampled_from([0, 1]),
    "num-experts": st.sampled_from([4]),
    "moe-router-topk": st.sampled_from([1, 2]),
    "moe-router-score-function": st.sampled_from(["softmax", "sigmoid"]),
    "moe-router-load-balancing-type": st.sampled_from(["aux_loss", "seq_aux_loss", "sinkhorn", "none"]),
    "moe-router-pre-softmax": st.just(True),
    "moe-router-topk-scaling-factor": st.sampled_from([1.0, 2.5]),
    "moe-expert-capacity-factor": st.sampled_from([1.0, 2.0]),
    "expert-tensor-parallel-size": st.just(1),
    "save-interval": st.just(10),
    "save": st.just("out"),
    "ckpt-format": st.sampled_from(["torch", "torch_dist"]),
    "eval-iters": st.sampled_from([0, 7]),
    "eval-interval": st.just(20),
    "tokenizer-type": st.sampled_from(["NullTokenizer", "GPT2BPETokenizer"]),
    "position-embedding-type": st.sampled_from(["rope", "learned_absolute"]),
}


@st.composite
def command_lines(draw: st.DrawFn) -> dict[str, Any]:
    """Return arguments as people write them: any of them may be left out, or say what is true anyway."""
    chosen = draw(st.lists(st.sampled_from([*_CHOICES, *_SWITCHES]), unique=True, max_size=10))
    reported = {flag: True if flag in _SWITCHES else draw(_CHOICES[flag]) for flag in chosen}
    return {**{flag: value for flag, value in _BASE.items() if flag not in _CHOICES}, **reported}


@pytest.mark.parametrize(
    "backend,version", [("megatron_lm", "0.16.1"), ("megatron_lm", "0.12.1"), ("mindspeed", "26.1.0")]
)
@given(values=command_lines())
@examples(60, suppress_health_check=[HealthCheck.too_slow])
def test_command_lines_say_the_same_again(backend: str, version: str, values: dict[str, Any]) -> None:
    assert differences(imported(backend, version, values)) == []

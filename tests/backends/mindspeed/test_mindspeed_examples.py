"""Upstream's own examples against the translation of the same training, each difference explained."""

from collections.abc import Mapping

import pytest

from backends.mindspeed import BACKEND
from backends.mindspeed.launch import launch
from launcher.mapping.engine import translate
from tests.backends.megatron_lm.argvs import parse
from tests.backends.mindspeed.examples import JOBS, upstream

VERSION = "26.1.0"
# Only in upstream's command.
_DEFAULT = "the parser's default"
_ONLY_UPSTREAM = {
    "use-mcore-models": "accepted and ignored since 2.2.0",
    "use-rotary-position-embeddings": "the old way to say --position-embedding-type rope, which is said",
    "distributed-backend": _DEFAULT,
    "context-parallel-size": _DEFAULT,
    "no-shared-storage": "every node builds its own sample index: a property of the cluster; backend.args",
    "tokenizer-not-use-fast": "slow tokenizer, the same tokens; backend.args",
    "lora-fusion": "speed of LoRA only; backend.args",
    "enable-thinking": "part of Qwen3's chat template, not a canonical field; backend.args",
    "dataloader-type": "cyclic sampling, with --no-shuffle; backend.args",
    "first-k-dense-replace": "-1: no dense layer, as without it",
    "moe-layer-freq": "-1: every layer, as without it",
    "gemm-gradient-accumulation-fusion": "beside --no-gradient-accumulation-fusion: for experts only; backend.args",
    "coc-fused-kernel": "tensor-parallel overlap on Ascend; backend.args",
    "use-ascend-coc": "tensor-parallel overlap on Ascend; backend.args",
    "mla-fa-without-pad": "memory of MLA's attention only; backend.args",
    "mtp-mem-efficient-logits": "memory of multi-token prediction only; backend.args",
    "n-shared-experts": "deprecated; --moe-shared-expert-intermediate-size says the same in one number",
    "seq-aux": "MindSpeed's own form of the balancing type seq_aux_loss",
}
# Only in ours: what changes training is always said.
_ONLY_OURS = {
    "vocab-size": "model.vocab_size; upstream gives only the padded one",
    "init-method-std": _DEFAULT,
    "lr-decay-style": _DEFAULT,
    "seed": "canonical 42; upstream leaves 1234",
    "moe-shared-expert-intermediate-size": "for --n-shared-experts 1",
}
_OTHER_VALUE = {
    "handler-name": "the canonical data.format=messages is OpenAI's form, upstream's file has Alpaca's",
    "moe-router-load-balancing-type": "seq_aux_loss in one argument instead of none and --seq-aux",
}


@pytest.mark.parametrize("name", JOBS)
def test_every_difference_is_explained(name: str) -> None:
    translation = translate(JOBS[name], BACKEND, VERSION)
    assert not translation.findings
    catalogue = BACKEND.catalogue(VERSION)
    theirs = parse(upstream()[name]["argv"], catalogue)
    ours = parse(BACKEND.argv(translation.native), catalogue)
    only_theirs = {flag: theirs[flag] for flag in theirs.keys() - ours.keys() - _ONLY_UPSTREAM.keys()}
    only_ours = {flag: ours[flag] for flag in ours.keys() - theirs.keys() - _ONLY_OURS.keys()}
    both = (theirs.keys() & ours.keys()) - _OTHER_VALUE.keys()
    other = {flag: (theirs[flag], ours[flag]) for flag in both if theirs[flag] != ours[flag]}
    assert (only_theirs, only_ours, other) == ({}, {}, {})


def test_no_explanation_is_left_over() -> None:
    seen: set[str] = set()
    for name, job in JOBS.items():
        catalogue = BACKEND.catalogue(VERSION)
        theirs = parse(upstream()[name]["argv"], catalogue)
        ours = parse(BACKEND.argv(translate(job, BACKEND, VERSION).native), catalogue)
        seen |= {flag for flag in theirs.keys() | ours.keys() if theirs.get(flag) != ours.get(flag)}
    explained: Mapping[str, str] = {**_ONLY_UPSTREAM, **_ONLY_OURS, **_OTHER_VALUE}
    assert seen == explained.keys()


@pytest.mark.parametrize("name", JOBS)
def test_script_and_environment(name: str) -> None:
    example = upstream()[name]
    plan = launch(JOBS[name], translate(JOBS[name], BACKEND, VERSION).native)
    assert len(plan.nodes) == example["nodes"]
    assert example["entry"] in plan.nodes[0].argv
    common = plan.nodes[0].env.keys() & example["env"].keys()
    assert {key: plan.nodes[0].env[key] for key in common} == {key: example["env"][key] for key in common}

"""What backends compute differently is found between two jobs, by ports and by `launch diff`."""

import json
from collections.abc import Sequence

import pytest

from launcher.cli import main
from launcher.compose import compose
from launcher.job.finding import Finding
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import judge
from launcher.port.port import sent
from launcher.rules.computations import RULE, TOPICS, computed_differently
from launcher.rules.effective import EffectiveValues
from launcher.rules.engine import load
from launcher.rules.native import effective_of
from launcher.rules.registry import RULES

_MOE, _DENSE, _LATENT = "+recipe=tiny_qwen3_moe", "+recipe=tiny_qwen3", "+recipe=tiny_deepseek_v3"
_CP = ("cluster.devices_per_node=2", "parallel.cp=2")
_DP = ("cluster.devices_per_node=2",)
_CHATS = (_DENSE, "task=sft", "data.format=messages")
_OLDER = "megatron_lm@0.12.1"
_TOKENS = ("data.format=megatron", "data.paths=[tokens]")
_PADS = (_DENSE, *_TOKENS, "tokenizer.path=folder", "tokenizer.type=PretrainedFromHF", "tokenizer.pad_is_eos=true")
# Topic -> the job, two backends that differ in it, and an override or backend with which they do not.
CASES: dict[str, tuple[Sequence[str], str, str, str]] = {
    "LOSS-CP": ((_DENSE, *_CP, "data.eod_mask_loss=true"), "megatron_lm", "mindspeed", "data.eod_mask_loss=false"),
    "LABELS-CP": ((_DENSE, *_CP, "task=sft"), "megatron", "mindspeed", "task=pretrain"),
    "LOSS-DP": ((_DENSE, *_DP, "data.eod_mask_loss=true"), "megatron_lm", "mindformers", "data.eod_mask_loss=false"),
    "LOSS-MASK": (_PADS, "mindspeed", "megatron_lm", "tokenizer.pad_is_eos=false"),
    "LOGITS-GRADIENT": (
        (_DENSE, "kernels.cross_entropy_fusion=true"),
        "megatron",
        "mindformers",
        "kernels.cross_entropy_fusion=false",
    ),
    "BALANCE-WEIGHT": ((_MOE, *_CP), "mindspeed", "megatron", "parallel.cp=1"),
    "BALANCE-SEQUENCE": ((_MOE, *_CP), "mindformers", "megatron", "moe.aux_loss_coeff=0.0"),
    "BALANCE-PADDING": ((_MOE, "task=sft"), "megatron", "mindspeed", "moe.aux_loss_coeff=0.0"),
    "BALANCE-JOINED": (
        (_MOE, "moe.load_balancing_type=seq_aux_loss", "batch.micro_batch_size=2", "batch.global_batch_size=4"),
        "megatron",
        "mindspeed",
        "moe.load_balancing_type=aux_loss",
    ),
    "CHAT-END": ((*_CHATS, "data.template=qwen"), "megatron", "mindspeed", "data.template=null"),
    "CHAT-THINKING": ((*_CHATS, "data.enable_thinking=true"), "megatron", "mindspeed", "task=pretrain"),
    "MTP-NORM": ((_LATENT,), "megatron_lm", "mindspeed", "model.num_nextn_predict_layers=0"),
    "BALANCE-CHOICE": ((_LATENT,), "megatron", "mindspeed", "moe.aux_loss_coeff=0.0"),
}
# Test of its own below, and tests/backends/mindformers/rule_cases.py: one job is not computed so on two backends.
OTHERS = {"EXPERT-GRADIENTS", "ATTENTION-MASK", "CHAT-FORMAT"}


def effective(words: Sequence[str], target: str) -> EffectiveValues:
    """Return the values that a backend runs a job with."""
    name, _, version = target.partition("@")
    job = compose([*words, f"backend={name}", *([f"backend.version={version}"] if version else [])])
    backend = get_backend(name)
    number = backend.version(job.backend.version)
    prepared = backend.prepare(job, number)
    return effective_of(prepared, backend, number, translate(prepared, backend, number).native)


def between(words: Sequence[str], one: str, other: str) -> dict[str, Finding]:
    """Return what two backends compute differently, by topic."""
    found = computed_differently([effective(words, one), effective(words, other)])
    return {finding.rule.removeprefix(f"{RULE}-"): finding for finding in found}


@pytest.mark.parametrize("topic", CASES)
def test_a_difference_is_found_and_its_remedies_remove_it(topic: str) -> None:
    words, one, other, without = CASES[topic]
    found = between(words, one, other)[topic]
    for name in (one, other):
        assert found.message.count(f"{get_backend(name).title} ") == 2
    assert found.source
    works = [str(fix) for fix in found.fixes]
    assert works == list(TOPICS[topic].works)
    for override in (*works, without):
        assert topic not in between([*words, override], one, other), override


def test_versions_of_one_backend_differ_too() -> None:
    assert "BALANCE-CHOICE" in between([_LATENT], "megatron_lm", _OLDER)
    assert not between([_LATENT], "mindspeed", _OLDER)


def test_what_is_not_known_of_a_version_is_not_claimed() -> None:
    assert not between([_LATENT], "megatron_lm", "megatron@3.6.4")


@pytest.mark.parametrize("recipe", [_DENSE, _MOE, "+recipe=llama3_8b", "+recipe=qwen3_moe"])
def test_plain_jobs_are_computed_alike(recipe: str) -> None:
    assert not between([recipe, "parallel.cp=1"], "megatron", "mindspeed")


def test_every_topic_has_a_case_and_every_row_a_topic() -> None:
    load(module for name in backend_names() for module in get_backend(name).rules)
    rows = [(name, row) for name in backend_names() for row in get_backend(name).computations()]
    assert {row.topic for _, row in rows} == TOPICS.keys() == CASES.keys() | OTHERS
    for _, row in rows:
        if row.rule:
            assert row.rule in RULES
            assert (row.way, row.source) == ("", "")
        else:
            assert row.way in TOPICS[row.topic].ways
            assert row.source
    for id_, topic in TOPICS.items():
        assert topic.ways.keys() == {row.way for _, row in rows if row.topic == id_ and row.way}


def test_a_port_says_it_and_leaves_out_what_the_target_says_itself() -> None:
    job = compose([_LATENT, "backend=megatron_lm"])
    ported = sent(job, get_backend("mindspeed"), "26.1.0")
    (found,) = [each for each in ported.findings if each.rule.startswith(RULE)]
    assert found.rule == f"{RULE}-BALANCE-CHOICE"
    assert found.message.startswith("MindSpeed-LLM 26.1.0 and Megatron-LM 0.16.1 compute the load of experts")
    masked = compose([_DENSE, *_CP, "data.eod_mask_loss=true", "backend=mindspeed"])
    to_other = sent(masked, get_backend("megatron_lm"), "0.16.1").findings
    assert not [each for each in to_other if each.rule == f"{RULE}-LOSS-CP"]  # MLM-CP-MEAN says it of the target


def test_jobs_that_differ_are_compared_by_what_each_computes() -> None:
    split = (_MOE, *_DP, "parallel.tp=2")
    jobs = [effective([*split, f"parallel.etp={etp}"], name) for etp, name in ((1, "megatron_lm"), (2, "mindspeed"))]
    (found,) = computed_differently(jobs)
    assert found.rule == f"{RULE}-EXPERT-GRADIENTS"
    assert found.source.startswith(RULES["MLM-ETP-REPLICAS"].source)
    assert "Megatron-LM 0.16.1: without expert parallelism" in found.message


def test_diff_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", _LATENT, "--backends", "megatron_lm,mindspeed,mindformers"]
    assert main(words) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if " compute the load of experts " in line)
    assert "MindSpeed-LLM 26.1.0, MindFormers 2.1.0: the experts that tokens are sent to are counted" in line
    assert main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["computed_differently"]
    assert {each["rule"] for each in found} == {f"{RULE}-BALANCE-CHOICE", f"{RULE}-MTP-NORM"}


def test_deepseek_v2_has_two_chat_formats() -> None:
    words = ["model=deepseek_v2_lite", "batch.seq_length=64", "task=sft", "data.format=messages"]
    assert "CHAT-FORMAT" in between(words, "megatron", "mindspeed")
    assert "CHAT-FORMAT" not in between([*words, "task=pretrain"], "megatron", "mindspeed")


_SHARED = ("moe.aux_loss_coeff=0.5", "cluster.devices_per_node=4", "parallel.tp=2", "parallel.sequence_parallel=true")
# Backend, per token, and the share of the coefficient with tp 2 and cp 2; None: it is whole. The shares of
# Megatron-LM 0.16.1 were measured: the gradient norm of cp 1 comes back with the coefficient times the ranks.
SHARES = (
    ("megatron_lm@0.12.1", True, 4),
    ("megatron_lm@0.15.3", True, 4),
    ("megatron_lm@0.18.2", True, 4),
    ("megatron_lm@0.19.0", True, None),
    ("megatron_lm@0.12.1", False, 2),
    ("megatron_lm@0.15.3", False, 2),
    ("megatron_lm@0.16.1", False, None),
    ("mindspeed@26.1.0", True, 4),
    ("mindspeed@26.1.0", False, 2),
    ("megatron@4.6.0", True, 4),
    ("megatron@4.6.0", False, None),
)


@pytest.mark.parametrize(("target", "per_token", "share"), SHARES)
def test_the_weight_of_balancing_losses_is_told(target: str, per_token: bool, share: int | None) -> None:
    name, _, version = target.partition("@")
    per_token_loss = f"precision.calculate_per_token_loss={str(per_token).lower()}"
    words = (_MOE, *_SHARED, "parallel.cp=2", per_token_loss, f"backend={name}", f"backend.version={version}")
    found = [each.message for each in judge(compose(words), fixes=False).findings if "BALANCE-SHARE" in each.rule]
    assert len(found) == (share is not None)
    assert all(f"1/{share} of their coefficients; moe.aux_loss_coeff times {share} " in each for each in found)

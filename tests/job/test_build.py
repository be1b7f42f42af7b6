"""A tree becomes a typed job, or every mistake in it is named at once."""

import dataclasses

import pytest

from launcher.job import Job, as_tree, build, field_paths, fields, value_at
from tests.conftest import make_job

WRONG = {
    "unknown section": ({"paralel": {"tp": 2}}, "paralel", "unknown", "parallel"),
    "unknown field": ({"parallel": {"ppp": 2}}, "parallel.ppp", "unknown", "parallel.pp"),
    "field of another section": ({"parallel": {"seq_length": 2}}, "parallel.seq_length", "unknown", "batch.seq_length"),
    "text for a number": ({"parallel": {"tp": "two"}}, "parallel.tp", "type", None),
    "fraction for a whole number": ({"parallel": {"tp": 2.5}}, "parallel.tp", "type", "2"),
    "true for a number": ({"parallel": {"tp": True}}, "parallel.tp", "type", None),
    "number for true or false": ({"model": {"qk_layernorm": 1}}, "model.qk_layernorm", "type", "true"),
    "null for what must be": ({"parallel": {"tp": None}}, "parallel.tp", "type", None),
    "not among the choices": ({"recompute": {"granularity": "ful"}}, "recompute.granularity", "choice", "full"),
    "wrong item of a list": ({"recompute": {"modules": ["core_atn"]}}, "recompute.modules", "choice", "core_attn"),
    "below its bound": ({"batch": {"micro_batch_size": 0}}, "batch.micro_batch_size", "bound", "1"),
    "not a number at all": ({"optimizer": {"lr": float("nan")}}, "optimizer.lr", "bound", None),
    "value for a section": ({"batch": 3}, "batch", "section", None),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_mistake_is_named_with_what_would_work(case):
    tree, path, kind, works = case
    _, problems = build(tree)
    assert [(problem.path, problem.kind) for problem in problems] == [(path, kind)]
    assert works is None or works in problems[0].works


def test_all_mistakes_come_at_once():
    trees = [tree for tree, path, _, _ in WRONG.values() if path.count(".") == 1]
    merged: dict[str, dict[str, object]] = {}
    for tree in trees:
        for section, values in tree.items():
            merged.setdefault(section, {}).update(values)
    _, problems = build(merged)
    assert {problem.path for problem in problems} == {f"{s}.{f}" for s, values in merged.items() for f in values}


def test_numbers_and_texts_are_kept_exactly():
    job, problems = build({"backend": {"version": 4.6, "env": {"X": 1, "Y": True}}, "optimizer": {"lr": 1}})
    assert not problems
    assert job.backend.version == "4.6"
    assert job.backend.env == {"X": "1", "Y": "true"}
    assert job.optimizer.lr == 1.0


def test_tree_and_job_are_inverse():
    job = make_job(
        {"recompute": {"granularity": "selective", "modules": ["core_attn"]}, "backend": {"args": {"a": [1]}}}
    )
    again, problems = build(as_tree(job))
    assert not problems
    assert again == job


def test_every_field_is_documented_with_type_default_and_source():
    for path, info in fields().items():
        assert info.meta.doc.endswith("."), path
        assert info.meta.source, path
        assert (
            info.default is None
            or info.default in ((), {})
            or not info.meta.choices
            or info.default in info.meta.choices
        ), path
    assert len(field_paths()) > 250


def test_fields_that_change_training_have_a_default_or_say_that_there_is_none():
    """What changes training is written to every backend: those without a canonical value must be optional by nature."""
    for name in ("seed", "optimizer.weight_decay", "moe.aux_loss_coeff", "model.initializer_range", "model.rope_theta"):
        assert value_at(Job(), name) is not None


def test_a_job_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Job().seed = 1  # type: ignore[misc]

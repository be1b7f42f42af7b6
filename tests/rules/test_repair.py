"""Solving all errors of a job jointly."""

import pytest

from launcher.job import with_values
from launcher.pipeline import judge, variants_of
from launcher.rules.repair import Repair, repair
from tests.conftest import make_job


def repaired(job) -> Repair:
    return repair(job, lambda changed: judge(changed, fixes=False).findings, variants_of)


# Changes of a job, and what an engineer would do.
CASES = {
    "micro-batch before global batch": ({"batch": {"global_batch_size": 16, "micro_batch_size": 3}}, False),
    "layout before global batch": ({"batch": {"global_batch_size": 12}}, False),
    "two faults": ({"parallel": {"tp": 3}, "batch": {"global_batch_size": 20}}, True),
    "three faults": (
        {"parallel": {"tp": 16, "vpp": 3}, "batch": {"micro_batch_size": 5}, "recompute": {"granularity": "full"}},
        False,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_layout_mends_what_it_can_and_training_stays(case):
    tree, moe = case
    job = make_job(tree, moe=moe)
    found = repaired(job)
    assert (found.left, found.affects_training) == ((), ())
    assert not any(path.startswith("cluster.") for path in found.values)
    assert judge(with_values(job, found.values), fixes=False).ok


def test_what_changes_training_is_named():
    found = repaired(make_job({"optimizer": {"min_lr": 1.0}}))
    assert found.affects_training == tuple(found.values) == ("optimizer.min_lr",)


def test_a_passing_job_needs_nothing():
    found = repaired(make_job())
    assert (found.overrides, found.left) == ((), ())


def test_what_only_the_user_knows_is_asked_for_and_the_rest_is_mended():
    job = make_job({"optimizer": {"lr": None}, "parallel": {"tp": 16}})
    found = repaired(job)
    assert found.asks == ("optimizer.lr=X",)
    assert found.left == ()
    assert judge(with_values(job, {**found.values, "optimizer.lr": 1e-4}), fixes=False).ok


def test_the_changes_are_a_nested_tree_of_plain_data():
    found = repaired(make_job({"parallel": {"first_stage_layers": 4}}))
    assert set(found.as_tree()) <= {"parallel"}
    assert found.overrides

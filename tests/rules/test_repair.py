"""Applying proposed fixes until a job passes."""

from launcher.job import with_values
from launcher.pipeline import judge
from launcher.rules.repair import repair
from tests.conftest import make_job


def findings(job):
    return list(judge(job).findings)


def test_one_fault_is_repaired_by_its_nearest_fix():
    found = repair(make_job({"batch": {"global_batch_size": 12}}), findings)
    assert found.left == ()
    assert found.overrides == ("batch.global_batch_size=16",)


def test_several_faults_are_repaired_together():
    job = make_job({"parallel": {"tp": 3}, "batch": {"global_batch_size": 20}}, moe=True)
    found = repair(job, findings)
    assert found.left == ()
    assert all(f.severity != "error" for f in findings(with_values(job, found.values)))


def test_a_passing_job_needs_nothing():
    found = repair(make_job(), findings)
    assert (found.overrides, found.left) == ((), ())


def test_what_no_change_removes_is_left_and_told():
    found = repair(make_job({"optimizer": {"lr": None}}), findings)
    assert [finding.rule for finding in found.left] == ["REQ-LR"]


def test_the_changes_are_a_nested_tree_of_plain_data():
    found = repair(make_job({"parallel": {"first_stage_layers": 4}}), findings)
    tree = found.as_tree()
    assert set(tree) <= {"parallel"}
    assert found.overrides

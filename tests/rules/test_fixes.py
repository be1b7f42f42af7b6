"""Fixes are the nearest values with which the whole job passes."""

import pytest

from launcher.compose import compose
from launcher.job import Job, convert, fields, with_values
from launcher.job.finding import Finding
from launcher.pipeline import judge as judge_for_backend
from launcher.plan.executor import option_rules
from launcher.report.findings import format_finding
from launcher.rules.changes import changes_of
from launcher.rules.engine import load, run
from launcher.rules.fixes import with_fixes
from launcher.rules.registry import RuleContext
from launcher.rules.variants import Variants
from tests.conftest import make_job

load(option_rules())


def judge(job: Job) -> list[Finding]:
    return run(RuleContext(job=job))


def fixed(tree, *, moe=False):
    job = make_job(tree, moe=moe)
    return job, with_fixes(judge(job), lambda: Variants(job))


def apply(job: Job, override: str) -> Job:
    import yaml

    path, _, text = override.partition("=")
    info = fields()[path]
    return with_values(job, {path: convert(yaml.safe_load(text), info.type, info.meta)})


BROKEN = {
    "tp against heads": ({"parallel": {"tp": 8}, "model": {"num_attention_heads": 12}}, False, "parallel.tp=4"),
    "global batch": ({"batch": {"global_batch_size": 20}}, False, "parallel.tp=2"),
    "global batch of a prime": ({"batch": {"global_batch_size": 17}}, False, "batch.global_batch_size=16"),
    "sequence under context parallelism": (
        {"batch": {"seq_length": 127}, "parallel": {"cp": 2}},
        False,
        "batch.seq_length=128",
    ),
    "experts with tp": ({"parallel": {"tp": 2}}, True, "parallel.sequence_parallel=true"),
    "experts and ep": (
        {"parallel": {"ep": 3}, "cluster": {"devices_per_node": 6}, "batch": {"global_batch_size": 12}},
        True,
        "parallel.ep=2",
    ),
    "two faults": ({"parallel": {"tp": 2, "ep": 16}}, True, None),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN.keys())
def test_fixes_work_and_the_nearest_comes_first(case):
    tree, moe, expected = case
    job, findings = fixed(tree, moe=moe)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert errors
    for error in errors:
        assert 1 <= len(error.fixes) <= 3, error
        for fix in error.fixes:
            changed = job
            for override in fix.overrides:
                changed = apply(changed, override)
            after = [finding for finding in judge(changed) if finding.severity == "error"]
            assert error.rule not in {finding.rule for finding in after}, (str(fix), after)
    if expected is not None:
        assert expected in {str(fix) for error in errors for fix in error.fixes}


def test_no_fix_changes_the_model():
    _, findings = fixed({"model": {"num_attention_heads": 12}, "parallel": {"tp": 8}})
    assert not [fix for finding in findings for fix in finding.fixes if "model." in str(fix)]


def test_the_first_fixes_of_all_errors_together_give_a_job_without_errors():
    tree = {"parallel": {"tp": 2, "sequence_parallel": True}, "batch": {"seq_length": 127, "global_batch_size": 18}}
    job, findings = fixed(tree)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert len(errors) == 2
    for override in dict.fromkeys(override for error in errors for override in error.fixes[0].overrides):
        job = apply(job, override)
    assert not [finding for finding in judge(job) if finding.severity == "error"]


def test_what_changes_training_comes_later_and_is_marked():
    _, findings = fixed({"batch": {"global_batch_size": 20}})
    (error,) = (finding for finding in findings if finding.rule == "BATCH-GLOBAL")
    assert [fix.affects_training for fix in error.fixes] == [False, False, True]
    assert "batch.global_batch_size" in str(error.fixes[-1])
    assert error.as_tree()["affects_training"] == [str(error.fixes[-1])]
    assert f"{error.fixes[-1]} (changes training)" in format_finding(error)


def test_more_hardware_is_not_offered_where_less_does():
    _, findings = fixed({"cluster": {"devices_per_node": 7}, "parallel": {"tp": 2}})
    assert not [fix for finding in findings for fix in finding.fixes if "cluster." in str(fix)]


def test_the_layers_that_one_stage_lost_go_to_another_one():
    """What the user typed stays, and the nearest value of another field makes room for it."""
    job = compose(["+recipe=llama3_70b", "backend=megatron", "parallel.first_stage_layers=19"])
    (error,) = (finding for finding in judge_for_backend(job).findings if finding.rule == "PAR-PP-LAYERS")
    assert str(error.fixes[0]) == "parallel.last_stage_layers=21"


ASKED = {
    "length of training": ({"schedule": {"train_iters": None}}, "REQ-LENGTH", ("schedule.train_iters=N",)),
    "learning rate": ({"optimizer": {"lr": None}}, "REQ-LR", ("optimizer.lr=X",)),
    "length of a sequence": ({"batch": {"seq_length": None}}, "REQ-BATCH", ("batch.seq_length=N",)),
    "global batch": ({"batch": {"global_batch_size": None}}, "REQ-BATCH", ("batch.global_batch_size=N",)),
}


@pytest.mark.parametrize("case", ASKED.values(), ids=ASKED)
def test_what_only_the_user_knows_is_asked_for(case):
    tree, rule, asks = case
    _, findings = fixed(tree)
    (error,) = (finding for finding in findings if finding.rule == rule)
    assert (error.fixes, error.asks) == ((), asks)
    assert f"specify: {asks[0]}" in format_finding(error)


def test_a_learning_rate_below_the_last_one_lowers_the_last_one():
    job, findings = fixed({"optimizer": {"min_lr": 1.0}})
    (error,) = (finding for finding in findings if finding.rule == "LR-ORDER")
    assert [changes_of(fix) for fix in error.fixes] == [{"optimizer.min_lr": job.optimizer.lr * 0.1}]


def passed(backend: str, args):
    job = make_job({"backend": {"name": backend, "args": args}, "data": {"format": "mock"}})
    return {finding.rule: [str(fix) for fix in finding.fixes] for finding in judge_for_backend(job).findings}


def test_an_argument_that_is_passed_through_can_be_left_out():
    assert passed("mindformers", {"context": {"mode": 7}})["MF-CONTEXT-MODE"] == ["backend.args.context.mode=null"]


def test_what_a_table_proposes_is_checked_like_any_fix():
    job = make_job({"backend": {"name": "mindspeed"}, "parallel": {"cp": 2, "cp_algorithm": "adaptive"}})
    proposed = [fix for f in judge_for_backend(job).findings if f.rule == "MAP-UNSUPPORTED" for fix in f.fixes]
    assert proposed
    for fix in proposed:
        changed = with_values(job, changes_of(fix) or {})
        assert judge_for_backend(changed, fixes=False).ok, str(fix)


def test_arithmetic_is_reported_once():
    job = make_job({"backend": {"name": "mindformers"}, "parallel": {"tp": 3}})
    rules = [finding.rule for finding in judge_for_backend(job).findings if finding.severity == "error"]
    assert "PAR-WORLD" in rules
    assert "MF-WORLD" not in rules
    assert "parallel.dp" not in {path for f in judge_for_backend(job).findings for path in f.fields}


def test_a_value_that_the_text_of_a_rule_names_is_tried():
    """Batches by length need padding: without padding_free, which changes nothing of training."""
    assert passed("megatron", {"group_by_length": True})["SW-GROUP-BY-LENGTH"][0] == "batch.padding_free=false"


def test_another_length_of_training_is_offered_only_where_nothing_else_works():
    """A port to Ascend offered to train one step, and a long warm-up to train one step more than it."""
    long = compose(["+recipe=tiny_qwen3", "backend=megatron_lm", "schedule.train_iters=3"])
    (warm_up,) = [each for each in judge_for_backend(long).findings if each.rule == "LR-WARMUP-LENGTH"]
    assert warm_up.fixes
    assert all("lr_warmup_iters" in str(fix) for fix in warm_up.fixes)
    tuned = compose(["+recipe=qwen3_8b_sft", "backend=mindspeed", "data.format=messages", "data.paths=[a]"])
    whole = with_values(tuned, {"schedule.epochs": 2.0, "schedule.train_iters": None})
    (epochs,) = [each for each in judge_for_backend(whole).findings if "schedule.epochs" in each.fields]
    assert [str(fix) for fix in epochs.fixes] == ["schedule.train_iters=1000 schedule.epochs=null"]


NODES = {
    "no layout of 1,000 devices": (("+recipe=deepseek_v3", "cluster.nodes=125", "backend=mindspeed"), (96, 128)),
    "a layout far from the recipe's": (("+recipe=deepseek_v3", "cluster.nodes=125", "backend=megatron"), (96, 128)),
    "no fewer ones": (("+recipe=kimi_k2", "cluster.nodes=7", "backend=megatron"), (64,)),
}


@pytest.mark.parametrize("words, counts", NODES.values(), ids=NODES)
def test_numbers_of_nodes_that_work_are_offered_for_every_error_of_the_layout(words, counts):
    """125 nodes had pp=50 for one of two errors and nothing for the other."""
    job = compose(words)
    errors = [finding for finding in judge_for_backend(job).findings if finding.severity == "error"]
    assert {finding.rule for finding in errors} == {"PAR-WORLD", "PAR-EXPERT-WORLD"}
    for error in errors:
        assert tuple(str(fix) for fix in error.fixes)[-len(counts) :] == tuple(f"cluster.nodes={n}" for n in counts)
    for count in counts:
        assert judge_for_backend(compose([*words, f"cluster.nodes={count}"]), fixes=False).ok
    # What is offered first for each error gives, together, a job without errors.
    together = [str(override) for error in errors for override in str(error.fixes[0]).split()]
    assert judge_for_backend(compose([*words, *together]), fixes=False).ok


def test_another_number_of_nodes_is_not_offered_where_one_size_is_enough():
    job = compose(["+recipe=deepseek_v3", "cluster.nodes=60", "backend=megatron"])
    (error,) = [finding for finding in judge_for_backend(job).findings if finding.severity == "error"]
    assert [str(fix) for fix in error.fixes] == ["parallel.pp=5"]


def test_names_near_to_unknown_arguments_are_looked_for_once(monkeypatch):
    """Hundreds of jobs are tried for a fix, each with the same arguments of another backend: it took two minutes."""
    from launcher.catalogue import catalogue

    looked = []

    def suggest(name, *rest):
        looked.append(name)
        return []

    monkeypatch.setattr(catalogue, "suggest", suggest)
    unknown = {f"no_such_argument_{number}": 1 for number in range(5)}
    job = make_job({"backend": {"args": unknown}, "parallel": {"tp": 3}}, backend="mindspeed")
    assert any(finding.rule == "ARG-UNKNOWN" for finding in judge_for_backend(job).findings)
    # Each among the names of its section, then among all.
    assert len(looked) <= 2 * len(unknown)

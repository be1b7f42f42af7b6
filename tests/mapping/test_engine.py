"""The engine on a backend of a few rows: nothing dropped, nothing invented, both directions."""

import dataclasses

import pytest

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.job import Job, Origin, with_values
from launcher.mapping.backend import Backend, UnknownBackend, UnknownVersion, get_backend
from launcher.mapping.engine import read_back, translate
from launcher.mapping.rows import Gap, Table, choice, computed, fixed, mapped, same, switch, switch_off, unmapped_fields
from launcher.plan import LaunchPlan
from tests.conftest import make_job

ARGUMENTS = (
    Argument(name="tp", dest="tp", type="int", default=1),
    Argument(name="sp", dest="sp", type="bool", action="store_true"),
    Argument(name="no-fusion", dest="no-fusion", type="bool", action="store_true"),
    Argument(name="precision", dest="precision", type="str", choices=("bfloat16", "half")),
    Argument(name="modules", dest="modules", type="str"),
    Argument(name="timeout-seconds", dest="timeout-seconds", type="int"),
    Argument(name="old-name", dest="old-name", type="int"),
    Argument(name="new-name", dest="new-name", type="int"),
    Argument(name="always", dest="always", type="bool", action="store_true"),
    Argument(name="ga", dest="ga", type="int"),
    Argument(name="free", dest="free", type="int"),
)
TABLE = Table(
    rows=(
        same("parallel.tp", "tp"),
        switch("parallel.sequence_parallel", "sp"),
        switch_off("kernels.rope_fusion", "no-fusion"),
        choice("precision.dtype", "precision", {"bf16": "bfloat16", "fp16": "half", "fp32": None}),
        mapped("recompute.modules", "modules", ",".join, lambda text: tuple(text.split(","))),
        mapped("fault_tolerance.timeout_minutes", "timeout-seconds", lambda m: m * 60, lambda s: s // 60),
        same("parallel.pp", "old-name", until="1.9"),
        same("parallel.pp", "new-name", since="2.0"),
        fixed("always", True, note="every job needs it"),
        computed(
            ("batch.global_batch_size", "batch.micro_batch_size", "parallel.dp"),
            ("ga",),
            lambda job: [
                ("ga", (job.batch.global_batch_size or 1) // job.batch.micro_batch_size // (job.parallel.dp or 1))
            ],
        ),
    ),
    unsupported={
        "parallel.cp": Gap(why="it has no context parallelism"),
        "kernels.rmsnorm_fusion": Gap(why="always fused", neutral=(True,), severity="warning"),
    },
)


def no_launch(job: Job, native: object) -> LaunchPlan:
    raise AssertionError("translation starts nothing")


TOY = Backend(
    name="toy",
    title="Toy",
    versions=("2.0", "1.9"),
    devices=("cpu",),
    table=lambda version: TABLE,
    catalogue=lambda version: Catalogue(backend="toy", version=version, style="argparse", arguments=ARGUMENTS),
    launch=no_launch,
    argv=lambda native: [],
)


def written(changes=None, version="2.0", tree=None):
    job = with_values(make_job(tree, backend="toy"), changes or {}, Origin(kind="override", where="typed"))
    translation = translate(job, TOY, version)
    return {arg.flag: arg for arg in translation.native}, translation.findings


def test_values_cross_in_the_backends_terms():
    args, findings = written(
        {
            "parallel.tp": 2,
            "parallel.sequence_parallel": True,
            "kernels.rope_fusion": False,
            "recompute.modules": ("a", "b"),
            "fault_tolerance.timeout_minutes": 3,
        }
    )
    values = {flag: arg.value for flag, arg in args.items()}
    assert values == {
        "tp": 2,
        "sp": True,
        "no-fusion": True,
        "precision": "bfloat16",
        "modules": "a,b",
        "timeout-seconds": 180,
        "new-name": 1,
        "always": True,
        "ga": 4,
    }
    assert not findings


def test_every_argument_says_where_it_came_from():
    args, _ = written({"parallel.tp": 2})
    assert (args["tp"].field, args["tp"].origin, args["tp"].where) == ("parallel.tp", "override", "typed")
    assert args["precision"].origin == "default"
    assert args["always"].origin == "derived"
    assert args["ga"].origin == "derived"


def test_what_nobody_asked_for_is_not_written():
    args, _ = written()
    assert not {"sp", "no-fusion", "modules", "timeout-seconds"} & set(args)


def test_versions_choose_the_name():
    assert "old-name" in written(version="1.9")[0]
    assert "new-name" in written(version="2.0")[0]


def test_what_cannot_be_expressed_is_an_error_unless_training_is_unaffected():
    _, findings = written({"parallel.cp": 2, "kernels.rmsnorm_fusion": False})
    assert {(f.fields, f.severity) for f in findings} == {
        (("parallel.cp",), "error"),
        (("kernels.rmsnorm_fusion",), "warning"),
    }
    assert not written({"kernels.rmsnorm_fusion": True})[1]


def test_an_unknown_choice_names_what_would_work():
    narrow = Table(rows=(choice("precision.dtype", "precision", {"fp16": "half"}),))
    backend = dataclasses.replace(TOY, table=lambda version: narrow)
    findings = translate(make_job(), backend, "2.0").findings
    assert [str(fix) for fix in findings[0].fixes] == ["precision.dtype=fp16"]


def test_pass_through_is_checked_and_written_last():
    args, findings = written(tree={"backend": {"name": "toy", "args": {"free": 3}}})
    assert list(args)[-1] == "free"
    assert args["free"].origin == "pass-through"
    assert not findings


WRONG = {
    "unknown name": ({"fre": 3}, "ARG-UNKNOWN"),
    "wrong type": ({"free": "x"}, "ARG-VALUE"),
    "against a default": ({"tp": 3}, "ARG-REPLACED"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_wrong_pass_through_is_found(case):
    extra, rule = case
    _, findings = written(tree={"backend": {"name": "toy", "args": extra}})
    assert rule in {finding.rule for finding in findings}


def test_pass_through_against_a_value_that_the_user_set_is_an_error():
    _, findings = written({"parallel.tp": 2}, tree={"backend": {"name": "toy", "args": {"tp": 4}}})
    assert {(f.rule, f.severity) for f in findings} == {("ARG-CONTRADICTION", "error")}


# Backend of the import ("": none), where field and argument were set: the rule that tells, and the value that counts.
TWICE = {
    "both stand in the imported job's file": ("toy", "recipe", "recipe", ("ARG-REPLACED", "warning"), 4),
    "written by hand": (None, "recipe", "recipe", ("ARG-CONTRADICTION", "error"), 4),
    "carried over from another backend": ("other", "recipe", "recipe", ("ARG-CONTRADICTION", "error"), 4),
    "the field is typed anew": ("toy", "override", "recipe", ("ARG-REPLACED", "change"), 2),
    "the field is typed anew on another backend": ("other", "override", "recipe", ("ARG-REPLACED", "change"), 2),
    "the argument is typed, too": ("toy", "override", "override", ("ARG-CONTRADICTION", "error"), 4),
    "typed against a file by hand": (None, "override", "recipe", ("ARG-CONTRADICTION", "error"), 4),
}


@pytest.mark.parametrize("case", TWICE.values(), ids=TWICE.keys())
def test_what_an_import_wrote_beside_a_field_holds_until_the_field_is_typed_again(case):
    imported_for, field, argument, reported, counts = case
    tree = {"backend": {"name": "toy", "args": {"tp": 4}}, "imported": {"backend": imported_for}}
    job = with_values(make_job(tree, backend="toy"), {"parallel.tp": 2}, Origin(kind=field, where="job.yaml:3"))
    origins = {**job.origins, "backend.args.tp": Origin(kind=argument, where="job.yaml:9")}
    translation = translate(dataclasses.replace(job, origins=origins), TOY, "2.0")
    assert {(finding.rule, finding.severity) for finding in translation.findings} == {reported}
    assert {arg.flag: arg.value for arg in translation.native}["tp"] == counts


def test_reading_back_gives_the_job_and_keeps_the_rest():
    args, _ = written({"parallel.tp": 2, "parallel.sequence_parallel": True, "recompute.modules": ("a", "b")})
    native = {flag: arg.value for flag, arg in args.items()} | {"free": 7}
    back = read_back(native, TOY, "2.0")
    assert (back.job.parallel.tp, back.job.parallel.sequence_parallel) == (2, True)
    assert back.job.backend.args == {"ga": 4, "free": 7}
    assert {arg.flag for arg in back.unmapped} == {"ga", "free"}


def test_a_table_that_forgets_a_field_is_found_out():
    assert "parallel.cp" not in unmapped_fields(TABLE, "2.0")
    assert "optimizer.lr" in unmapped_fields(TABLE, "2.0")


def test_unknown_backends_and_versions_are_refused():
    with pytest.raises(UnknownBackend):
        get_backend("none")
    with pytest.raises(UnknownVersion, match=r"2\.0, 1\.9"):
        TOY.version("3")

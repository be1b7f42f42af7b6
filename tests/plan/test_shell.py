"""The script runs in a real bash without this program, and every argument is preserved."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.plan import LaunchPlan, NodePlan, PlanFile
from launcher.plan.shell import one_line, references, script
from tests.sampling import examples

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('X'), os.getcwd()]))"


def run_script(text: str, folder: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash"],
        input=text,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def plan(*args: str, env: dict[str, str] | None = None, **more: object) -> LaunchPlan:
    node = NodePlan(rank=0, argv=(sys.executable, "-c", SHOW, *args), env=env or {})
    return LaunchPlan(nodes=(node,), **more)  # type: ignore[arg-type]


ARGS = {
    "layer pattern": "([0]*3+[1]*58)",
    "json": '{"a": [1, 2], "b": "it\'s"}',
    "dollar": "$HOME and `date`",
    "hub dataset": "AI-ModelScope/alpaca-gpt4-data-zh#500",
    "pipeline layout": "Et*3|(tt|)*29,m|L",
    "empty": "",
    "new line": "a\nb",
    "chinese": "你好",
}


@pytest.mark.parametrize("arg", ARGS.values(), ids=ARGS.keys())
def test_a_word_is_preserved(arg, tmp_path):
    done = run_script(script(plan("--x", arg)), tmp_path)
    assert json.loads(done.stdout)[0] == ["--x", arg], done.stderr


@examples(30)
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12), min_size=1, max_size=4))
def test_any_arguments_survive_one_line(args):
    from launcher.plan.shell import REFERENCE

    if any(REFERENCE.search(arg) for arg in args):
        return
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {one_line(args)}"], capture_output=True, check=True)
    assert done.stdout.decode("utf-8", "surrogatepass").split("\0")[:-1] == args


def test_files_are_written_where_they_belong(tmp_path):
    content = "a: 1\nEND_OF_FILE\n$HOME 'quoted'\n"
    done = run_script(script(plan(files=(PlanFile(path="out/x.yaml", content=content),))), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "x.yaml").read_text() == content


def test_references_are_resolved_or_asked_for(tmp_path):
    text = script(plan("--dir", "${DATA_DIR}/a b", env={"X": "${DATA_DIR}"}))
    assert references(plan("${DATA_DIR}")) == ("DATA_DIR",)
    refused = run_script(text, tmp_path)
    assert refused.returncode != 0
    assert "set DATA_DIR" in refused.stderr
    done = run_script(text, tmp_path, DATA_DIR="/d")
    assert json.loads(done.stdout)[:2] == [["--dir", "/d/a b"], "/d"]


def test_a_relative_path_of_the_user_survives_a_change_of_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "work").mkdir()
    node = NodePlan(rank=0, argv=(sys.executable, "-c", SHOW, "${MODEL_PATH}"), workdir="work")
    text = script(LaunchPlan(nodes=(node,)))
    assert json.loads(run_script(text, tmp_path, MODEL_PATH="mine").stdout)[0] == [str(tmp_path / "mine")]
    assert json.loads(run_script(text, tmp_path, MODEL_PATH="hub/name").stdout)[0] == ["hub/name"]


def test_a_search_path_may_be_empty(tmp_path):
    text = script(plan(env={"X": "/mine:${PYTHONPATH}"}))
    assert json.loads(run_script(text, tmp_path).stdout)[1] == "/mine:"
    assert json.loads(run_script(text, tmp_path, PYTHONPATH="/theirs").stdout)[1] == "/mine:/theirs"


def test_references_in_files_are_resolved_and_the_rest_is_literal(tmp_path):
    content = 'dir: "${DATA_DIR}/x"\ncost: $5 `date` \\n\n'
    text = script(plan(files=(PlanFile(path="x.yaml", content=content),)))
    assert run_script(text, tmp_path).returncode != 0
    assert run_script(text, tmp_path, DATA_DIR="/d").returncode == 0
    assert (tmp_path / "x.yaml").read_text() == content.replace("${DATA_DIR}", "/d")


def test_several_nodes_share_one_script_that_reads_the_rank(tmp_path):
    nodes = tuple(
        NodePlan(rank=rank, argv=(sys.executable, "-c", SHOW, "--node_rank", str(rank)), env={"NODE_RANK": str(rank)})
        for rank in range(300)
    )
    text = script(LaunchPlan(nodes=nodes))
    assert len(text) < 1000
    assert "set NODE_RANK" in run_script(text, tmp_path).stderr
    assert json.loads(run_script(text, tmp_path, NODE_RANK="7").stdout)[0] == ["--node_rank", "7"]


def test_nodes_that_differ_otherwise_get_a_case_each(tmp_path):
    nodes = tuple(NodePlan(rank=rank, argv=(sys.executable, "-c", SHOW, f"host{rank * 2}")) for rank in range(3))
    done = run_script(script(LaunchPlan(nodes=nodes)), tmp_path, NODE_RANK="2")
    assert json.loads(done.stdout)[0] == ["host4"]


def test_preparation_runs_first_and_its_failure_ends_the_script(tmp_path):
    prepare = NodePlan(rank=0, argv=("bash", "-c", "exit 3"))
    done = run_script(script(plan(prepare=(prepare,))), tmp_path)
    assert done.returncode == 3
    assert not done.stdout


def test_with_several_nodes_preparation_runs_on_node_0_only(tmp_path):
    prepare = NodePlan(rank=0, argv=("bash", "-c", 'echo "by $NODE_RANK" >> prepared\necho "two  lines"'))
    nodes = tuple(
        NodePlan(rank=rank, argv=(sys.executable, "-c", SHOW, "--node_rank", str(rank)), env={"NODE_RANK": str(rank)})
        for rank in range(2)
    )
    text = script(LaunchPlan(nodes=nodes, prepare=(prepare,)))
    for rank in ("1", "0"):
        done = run_script(text, tmp_path, NODE_RANK=rank)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])[0] == ["--node_rank", rank]
        assert done.stdout.startswith("two  lines\n") == (rank == "0")
    assert (tmp_path / "prepared").read_text() == "by 0\n"


def test_with_several_nodes_failed_preparation_ends_node_0(tmp_path):
    prepare = NodePlan(rank=0, argv=("bash", "-c", "exit 3"))
    nodes = tuple(NodePlan(rank=rank, argv=("echo", "trained")) for rank in range(2))
    text = script(LaunchPlan(nodes=nodes, prepare=(prepare,)))
    assert [run_script(text, tmp_path, NODE_RANK=rank).returncode for rank in ("0", "1")] == [3, 0]

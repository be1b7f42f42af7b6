"""The planner's server, attacked over HTTP as a page with a valid session would."""

import http.client
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.serving import Planner, planner
from tests.waiting import STUCK_SECONDS, wait_until

pytest.importorskip("dash")
pytestmark = pytest.mark.slow

JOB = ("+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g")
PLANTED = "planted-7f3a9c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("server")
    (made / "secret.yaml").write_text(f"name: {PLANTED}\nbatch: {{seq_length: 128}}\n")
    (made / "secret.sh").write_text(f"export RUN_NAME={PLANTED}\n")
    (made / "config.json").write_text(json.dumps({"model_type": PLANTED, "architectures": [PLANTED]}))
    (made / "link.yaml").symlink_to(made / "secret.yaml")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Planner]:
    with planner(folder, PLANTED_VARIABLE=PLANTED, WANDB_API_KEY=PLANTED) as running:
        yield running


def test_a_job_is_judged_and_estimated(server: Planner) -> None:
    text = server.live(*JOB)
    assert "Passes all rules" in text
    assert "tokens/s per device" in text


def test_a_search_is_cancelled_though_a_tick_comes_with_the_click(server: Planner) -> None:
    """With two tabs open, a click on Cancel waited for an answer, and was taken for the tick that waited with it."""
    status, text = server.callback("search-id.data", search__start=1, words=list(JOB))
    assert status == 200, text
    name = json.loads(text)["response"]["search-id"]["data"]
    both = ("search-poll.n_intervals", "search-cancel.n_clicks")
    given = {"search__poll": 3, "search__cancel": 1, "search__id": name}
    assert "cancelled" in server.callback("search-result.children", both, **given)[1]


ATTACKS = {
    "a job file": ("+job={folder}/secret.yaml",),
    "a job file beside the server": ("+job=secret.yaml",),
    "a job file through a link": ("+job={folder}/link.yaml",),
    "a recipe by path": ("+recipe={folder}/secret.yaml",),
    "a recipe by relative path": ("+recipe=../../../../../..{folder}/secret",),
    "a strategy": ("+strategy={folder}/secret.yaml",),
    "a model file": ("model={folder}/secret.yaml",),
    "a model folder": ("model={folder}",),
    "a model's own path": ("model.path={folder}",),
    "a model's own path to the file": ("model.path={folder}/config.json",),
    "a tokenizer": ("model=qwen3_8b", "tokenizer.path={folder}"),
    "data": (*JOB, "data.paths=[{folder}/secret.yaml]"),
    "an environment variable": (*JOB, "name=${{oc.env:PLANTED_VARIABLE}}"),
    "an environment variable of a list": (*JOB, "data.paths=[${{oc.env:PLANTED_VARIABLE}}]"),
    "an escaped environment variable": (*JOB, "name=\\\\${{oc.env:PLANTED_VARIABLE}}"),
    "Hydra's search path": (*JOB, "hydra.searchpath=[file://{folder}]"),
    "Hydra's folder": (*JOB, "hydra.run.dir={folder}/out"),
    "a folder of recipes": (*JOB, "--config-dir={folder}", "+recipe=secret"),
    "the interpreter of the ranks": (*JOB, "rehearse.entry=native", "cluster.python={folder}/secret.sh"),
    "a host file": (*JOB, "cluster=ssh", "cluster.options.hostfile={folder}/secret.yaml"),
    "a template of Slurm": (*JOB, "cluster=slurm", "cluster.options.header={folder}/secret.sh"),
}


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("words", ATTACKS.values(), ids=ATTACKS)
def test_files_and_variables_of_the_server_are_not_read(server: Planner, folder: Path, words: tuple[str, ...]) -> None:
    assert PLANTED not in server.live(*(word.format(folder=folder) for word in words))


@pytest.mark.parametrize("field", ["model.path", "tokenizer.path", "checkpoint.load", "data.paths", "lora.load"])
def test_an_existing_path_is_answered_as_one_that_does_not_exist(server: Planner, folder: Path, field: str) -> None:
    there, missing = (server.live(*JOB, f"{field}={folder}{end}") for end in ("", "-no"))
    assert there == missing.replace(f"{folder}-no", str(folder))


SCRIPTS = {
    "source": "source {folder}/secret.sh\n",
    "a dot": ". {folder}/secret.sh\n",
    "source beside the server": "source ./secret.sh\n",
    "source beside the script": 'source "$(dirname "$0")"/../../secret.sh\n',
    "reading a file": "RUN_NAME=$(cat {folder}/secret.sh)\n",
    "reading a file by bash": "RUN_NAME=$(<{folder}/secret.sh)\n",
    "reading lines": "read -r RUN_NAME < {folder}/secret.sh\n",
    "a variable": "RUN_NAME=$PLANTED_VARIABLE\n",
    "a secret of the environment": "RUN_NAME=$WANDB_API_KEY\n",
    "running a program": "RUN_NAME=$(printenv PLANTED_VARIABLE)\n",
    "all files": "RUN_NAME=$(ls {folder}; cat {folder}/*)\n",
}
_REST = "export RUN_NAME\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --wandb-exp-name $RUN_NAME-x\n"


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_reads_nothing_of_the_server(server: Planner, folder: Path, script: str) -> None:
    text = server.imported(script.format(folder=folder) + _REST)
    assert "arguments of the script" in text or "Not imported" in text
    assert PLANTED not in text


def test_a_configuration_that_extends_a_file_of_the_server_does_not_read_it(server: Planner, folder: Path) -> None:
    text = server.imported(f"base_config: {folder}/secret.yaml\nmodel: {{type: x}}\n", ".yaml")
    assert PLANTED not in text


def test_a_script_is_not_run(server: Planner, folder: Path) -> None:
    server.imported(f"touch {folder}/ran; $(touch {folder}/ran)\n{_REST}")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("name", ["cli.ui", "jail.Jail", "../x", "answers.compose"])
def test_a_callback_that_is_not_the_page_s_is_refused(server: Planner, name: str) -> None:
    body = {"output": f"{name}.children", "outputs": {"id": name, "property": "children"}, "inputs": []}
    assert server.send("/_dash-update-component", json.dumps(body).encode())[0] >= 400


@pytest.mark.parametrize("path", ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets//etc/passwd"])
def test_only_assets_are_served(server: Planner, path: str) -> None:
    status, text = server.send(path)
    assert "build(pool" not in text
    assert "root:" not in text
    assert status in (200, 404)
    assert "<html" in text or status == 404


def test_50_mib_are_refused(server: Planner) -> None:
    """As soon as their size is announced."""
    link = http.client.HTTPConnection(server.origin.removeprefix("http://"), timeout=60)
    link.putrequest("POST", "/_dash-update-component")
    for name, value in {"Content-Length": str(50 * 2**20), "Content-Type": "application/json"}.items():
        link.putheader(name, value)
    link.endheaders()
    link.send(b'{"a": "' + b"x" * 2**16)
    assert link.getresponse().status == 413


def test_a_script_above_its_bound_is_refused_with_its_size(server: Planner) -> None:
    assert "2.0 MiB; a script or configuration has at most 2 MiB" in server.imported("# " + "x" * 2**21)


def test_a_computation_that_does_not_end_is_ended(server: Planner) -> None:
    """And others go on."""
    begun = time.monotonic()
    text = server.imported("while true; do X=$X$X; done\nfor i in {1..999999999}; do :; done\n" + _REST)
    assert time.monotonic() - begun < STUCK_SECONDS
    assert "import-report" in text
    assert "Passes all rules" in server.live(*JOB)


@pytest.mark.parametrize(
    "word", ["cluster.nodes=1000000000", "parallel.pp=100000000", "model.num_hidden_layers=999999999"]
)
def test_sizes_beyond_reason_leave_the_server_answering(server: Planner, word: str) -> None:
    server.live(*JOB, word)
    assert "Passes all rules" in server.live(*JOB)


def test_uploads_are_gone_when_they_are_read(server: Planner, folder: Path) -> None:
    server.imported(_REST)
    assert [path for kept in folder.glob("launch-ui-*") for path in kept.iterdir()] == []


def test_it_ends_with_its_processes_and_leaves_nothing(tmp_path: Path) -> None:
    with planner(tmp_path) as running:
        running.live(*JOB)
        group = [int(each) for each in os.listdir("/proc") if each.isdigit() and _is_in(each, tmp_path)]
        assert len(group) >= 2
    wait_until(lambda: not [each for each in group if _is_in(str(each), tmp_path)])
    assert list(tmp_path.glob("launch-ui-*")) == []


def _is_in(process: str, folder: Path) -> bool:
    """Return whether a process works in a folder."""
    try:
        return os.readlink(f"/proc/{process}/cwd") == str(folder)
    except OSError:
        return False

"""Whatever text a plan holds, only its own programs run, with exactly its words and variables, on every executor."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.executors.failure import CannotStart
from launcher.executors.files import resolved
from launcher.executors.kubernetes.pods import Pods
from launcher.executors.slurm.executor import Request
from launcher.executors.ssh.executor import Hosts
from launcher.plan import LaunchPlan, NodePlan, PlanFile, Start, Watch
from launcher.plan.executor import Place, get_executor
from launcher.plan.shell import Unwritable, one_line, script
from tests.injection.hostile import PLAIN, Stubs, agrees, expected, header_options
from tests.sampling import examples

FOLDER = 'it\'s $(pwned) here; `pwned` ${HOME} %j & "x"'
ARGS = tuple(PLAIN.values())


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """Programs that record their calls."""
    return Stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def folder(tmp_path: Path, stubs: Stubs) -> Path:
    """A folder to start in, whose name is hostile, too."""
    stubs.calls()
    made = tmp_path / FOLDER
    made.mkdir()
    return made


def plan(*args: str, nodes: int = 1, **more: object) -> LaunchPlan:
    env = {f"X{number}": arg for number, arg in enumerate(args)}
    made = tuple(
        NodePlan(rank=rank, argv=("torchrun", "--node_rank", str(rank), *args), env=env) for rank in range(nodes)
    )
    return LaunchPlan(nodes=made, what="\n".join(args), notes=args, **more)  # type: ignore[arg-type]


def texts(most: int) -> "st.SearchStrategy[list[str]]":
    free = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
    pieces = st.lists(st.sampled_from([*ARGS, "pwned", "$(", ")", "'", '"', "`", "\\", "\n", "${HOME}"]), max_size=4)
    return st.lists(free | pieces.map("".join), min_size=1, max_size=most)


def check_script(stubs: Stubs, folder: Path, args: list[str], *, nodes: int = 1) -> None:
    stubs.calls()
    environ = stubs.environ()
    made = plan(*args, nodes=nodes)
    rank = nodes - 1
    done = stubs.run(["bash", "-c", script(made)], folder, NODE_RANK=str(rank))
    (call,) = stubs.calls()
    assert agrees(call, expected(made.nodes[rank], environ)), (call.argv, done.stderr)
    done = stubs.run(["bash", "-c", one_line(made.nodes[0].argv)], folder)
    assert [call.argv for call in stubs.calls()] == [expected(made.nodes[0], environ).argv]


@examples(100)
@given(args=texts(8), nodes=st.sampled_from([1, 3]))
def test_a_script_runs_its_command_alone_with_its_arguments(stubs: Stubs, args: list[str], nodes: int) -> None:
    check_script(stubs, stubs.folder, args, nodes=nodes)


def test_a_script_with_every_hostile_argument(stubs: Stubs, folder: Path) -> None:
    check_script(stubs, folder, list(ARGS))


@pytest.mark.parametrize("shared", [False, True], ids=["one node", "several"])
def test_files_are_written_as_they_are(stubs: Stubs, folder: Path, shared: bool) -> None:
    content = "".join(f"{text}\n" for text in ARGS if "\r" not in text) + "\n\n"
    paths = {f"out/{number}{text}": text for number, text in enumerate(ARGS) if text.isprintable() and "/" not in text}
    paths |= {"-x/-y": "a dash", "plain": "a reference"}
    files = [PlanFile(path=path, content=content, mode=0o755 if "a" in path else 0o644) for path in paths]
    made = plan("x", nodes=2 if shared else 1, files=tuple(files))
    done = stubs.run(["bash", "-c", script(made)], folder, NODE_RANK="0")
    assert [call.argv[0] for call in stubs.calls()] == ["torchrun"], done.stderr
    environ = stubs.environ()
    for path in paths:
        assert (folder / resolved(path, environ)).read_text() == resolved(content, environ)
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == {resolved(path, environ) for path in paths}


@pytest.mark.parametrize("value", ['a"b', "a\\", "a\nb"], ids=["quote", "backslash", "line end"])
def test_a_variable_that_would_change_a_file_is_refused(stubs: Stubs, folder: Path, value: str) -> None:
    made = plan("x", files=(PlanFile(path="x.yaml", content='a: "${MODEL_PATH}"\n'),))
    done = stubs.run(["bash", "-c", script(made)], folder, MODEL_PATH=value)
    assert done.returncode == 1
    assert b"MODEL_PATH holds a quote" in done.stderr
    assert not stubs.calls()
    assert not list(folder.iterdir())


def test_a_command_that_looks_like_an_option_is_run(stubs: Stubs, folder: Path) -> None:
    shutil.copy(stubs.folder / "torchrun", stubs.folder / "-c")
    step = NodePlan(rank=0, argv=("-c", "pwned"))
    done = stubs.run(["bash", "-c", script(LaunchPlan(nodes=(step,), prepare=(step,)))], folder)
    assert [call.argv for call in stubs.calls()] == [("-c", "pwned")] * 2, done.stderr


UNWRITABLE = {
    "a name with a dash": {"A-B": "1"},
    "a name with a command": {"A$(pwned)": "1"},
    "an empty name": {"": "1"},
    "a function": {"BASH_FUNC_python%%": "() { pwned; }"},
    "a number of bash": {"RANDOM": "a[$(pwned)]"},
    "a constant of bash": {"UID": "1"},
    "a value with NUL": {"A": "a\0b"},
    "a value that is no text": {"A": "\udcff"},
}


@pytest.mark.parametrize("env", UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_plan_that_no_script_can_express_is_none(env: dict[str, str]) -> None:
    with pytest.raises(Unwritable):
        script(LaunchPlan(nodes=(NodePlan(rank=0, argv=("torchrun",), env=env),)))


# -- executors


SETTINGS = {
    "ssh": Hosts(hosts=("me@n1", "n2"), options=("-o", "ProxyCommand=a 'b' $(pwned)", "-p2222")),
    "slurm": Request(options=("--nodes=2", "--comment=a 'b' \"c\" \\ #d $(pwned); pwned", "-C", "x", "--exclusive")),
    "kubernetes": Pods(annotations=(("a", "$(pwned)\n'y'"), ("b", "y"), ("c", "0o7"))),
}


def start(executor: str, **more: object) -> Start:
    known: dict[str, object] = {
        "name": "a 'job' $(pwned) `pwned` \"x\" #y %j \\",
        "devices_per_node": 2,
        "settings": SETTINGS.get(executor),
        **more,
    }
    return Start(executor=executor, **known)  # type: ignore[arg-type]


def rendered(executor: str, folder: Path, **more: object) -> tuple[LaunchPlan, dict[str, Path]]:
    """Return a plan of two nodes full of hostile words, and the files that start it, on disk."""
    watch = Watch(checkpoints=f"out/{FOLDER}", trackers=(("", "latest"),), iteration_line="-iteration [0-9]+")
    made = replace(plan(*ARGS, nodes=2, start=start(executor, **more)), watch=watch, output_dir="out")
    place = Place(id="job-1", folder=str(folder / "out"), launch_dir=str(folder))
    files = {}
    for file in get_executor(executor).render(made, place):
        path = Path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content)
        files[path.name] = path
    (folder / "out" / "logs").mkdir()
    return made, files


def check_nodes(stubs: Stubs, made: LaunchPlan, reported: object) -> None:
    calls = stubs.calls()
    environ = stubs.environ()
    assert not [call for call in calls if call.argv[0] == "pwned"], reported
    trained = [call for call in calls if call.argv[0] == "torchrun"]
    for node in made.nodes:
        assert any(agrees(call, expected(node, environ)) for call in trained), reported
    assert len(trained) == len(made.nodes)


CARRIED = {"HTTP_PROXY": "a b\nLD_DEBUG=all\n.\n'$(pwned)'", "WANDB_BASE_URL": "x; pwned"}


@pytest.mark.slow
def test_nodes_reached_by_ssh_run_their_command_alone(stubs: Stubs, folder: Path) -> None:
    made, files = rendered("ssh", folder, python=f"{stubs.folder}/python")
    # Files in the way of a program that reads numbers from names and from what others print.
    (folder / "out/run/exits").mkdir()
    (folder / "out/run/exits/a[$(pwned)].0").write_text("a[$(pwned)] x\n")
    before = set(Path("/tmp").glob("tmp.*"))
    done = stubs.run(["bash", str(files["start.sh"])], folder, **CARRIED)
    assert done.returncode == 0, done
    calls = stubs.calls()
    for call in calls:
        if call.argv[0] == "torchrun":
            assert {name: call.env[name] for name in CARRIED} == CARRIED
            assert "LD_DEBUG" not in call.env
    hosts = [call.argv[call.argv.index("--") + 1] for call in calls if call.argv[0] == "ssh"]
    assert sorted(hosts) == ["me@n1", "me@n1", "n2"]
    trained = [call for call in calls if call.argv[0] == "torchrun"]
    assert all(any(agrees(call, expected(node, stubs.environ())) for call in trained) for node in made.nodes)
    assert not [call for call in calls if call.argv[0] == "pwned"]
    assert set(Path("/tmp").glob("tmp.*")) <= before | {path for path in before if not path.exists()}


def test_a_host_that_answers_with_a_command_runs_nothing(stubs: Stubs, folder: Path, tmp_path: Path) -> None:
    _, files = rendered("ssh", folder)
    own = tmp_path / "bin"
    own.mkdir()
    (own / "ssh").write_text("#!/bin/sh\necho 'a[$(pwned)]'\n")
    (own / "ssh").chmod(0o755)
    done = stubs.run(["bash", str(files["start.sh"])], folder, PATH=f"{own}:{stubs.folder}:/usr/bin:/bin")
    assert done.returncode == 75
    assert not stubs.calls()


SSH_REFUSED = {
    "an option as host": ({"settings": Hosts(hosts=("-oProxyCommand=pwned", "n2"))}, "HOST"),
    "an option as user": ({"settings": Hosts(hosts=("-x@n1", "n2"))}, "HOST"),
    "a script of sed as host": ({"settings": Hosts(hosts=("x/e;e pwned", "n2"))}, "HOST"),
    "a host among the options": (
        {"settings": Hosts(hosts=("n1", "n2"), options=("-p", "22", "evil"))},
        "not an option of ssh",
    ),
    "the end of options": ({"settings": Hosts(hosts=("n1", "n2"), options=("--",))}, "ends the options"),
}


@pytest.mark.parametrize("case", SSH_REFUSED.values(), ids=SSH_REFUSED)
def test_what_ssh_would_read_otherwise_is_refused(case: tuple[dict[str, object], str], folder: Path) -> None:
    changes, says = case
    with pytest.raises(CannotStart, match=says):
        rendered("ssh", folder, **changes)


@pytest.mark.slow
def test_tasks_of_slurm_run_their_command_alone(stubs: Stubs, folder: Path) -> None:
    made, files = rendered("slurm", folder, python=f"{stubs.folder}/python")
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "STUB_NODES": "2"}
    done = stubs.run(["bash", str(files["job.sbatch"])], folder, **slurm)
    assert done.returncode == 0, done
    calls = stubs.calls()
    (step,) = [call for call in calls if call.argv[0] == "srun"]
    assert f"--output={str(folder).replace('%', '%%')}/out/logs/node%n.log" in step.argv
    trained = [call for call in calls if call.argv[0] == "torchrun"]
    assert all(any(agrees(call, expected(node, stubs.environ())) for call in trained) for node in made.nodes)
    assert not [call for call in calls if call.argv[0] == "pwned"]


def header(folder: Path, **more: object) -> tuple[LaunchPlan, str]:
    made, files = rendered("slurm", folder, **more)
    return made, files["job.sbatch"].read_text()


def wanted_header(made: LaunchPlan, folder: Path) -> list[str]:
    log = f"{str(folder).replace('%', '%%')}/out/logs/slurm.log"
    own = [f"--job-name={made.start.name}", "--comment=job-1", f"--output={log}", "--open-mode=append"]
    return [*own, *made.start.settings.options]


def test_a_header_asks_for_what_the_plan_asks_for(folder: Path) -> None:
    made, text = header(folder)
    assert list(header_options(text)) == wanted_header(made, folder)


@examples(200)
@given(args=texts(4))
def test_any_printable_option_is_written_in_a_header(args: list[str]) -> None:
    from launcher.executors.slurm.executor import _header

    for arg in args:
        option = f"--x={arg}"
        if option.isprintable():
            assert list(header_options(f"{_header(option)}\ntrue")) == [option]
        else:
            with pytest.raises(CannotStart):
                _header(option)


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="apt-get install slurm-client")
def test_sbatch_itself_reads_the_header_so(folder: Path, tmp_path: Path) -> None:
    """It says what it read before it looks for the controller, which is not there."""
    made, text = header(
        folder, settings=Request(options=("--account=a 'b' \"c\" \\ #d $(pwned); pwned", "-C", "x y", "--exclusive"))
    )
    conf = tmp_path / "slurm.conf"
    lines = ("ClusterName=x", "SlurmctldHost=h(127.0.0.1)", "SlurmctldPort=1", "MessageTimeout=2", "SlurmctldTimeout=2")
    conf.write_text("\n".join([*lines, "NodeName=n", "PartitionName=p Nodes=n", ""]))
    (tmp_path / "job.sbatch").write_text(text)
    environ = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(conf), "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        ["sbatch", "-vv", str(tmp_path / "job.sbatch")], env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        reported = _defined(process.stderr)
        process.kill()
    own = dict(option.removeprefix("--").partition("=")[::2] for option in wanted_header(made, folder))
    assert (reported["account"], reported["constraint"]) == (own["account"], "x y")
    assert (reported["job-name"], reported["comment"]) == (made.start.name, "job-1")


def _defined(lines: Iterator[str]) -> dict[str, str]:
    """Return what sbatch says it was asked for: `sbatch: NAME  : VALUE`, between two lines."""
    found: dict[str, str] = {}
    for line in lines:
        if "end of defined options" in line or "error" in line:
            break
        name, colon, value = line.rstrip("\n").removeprefix("sbatch: ").partition(": ")
        if colon:
            found[name.strip()] = value
    return found


SLURM_REFUSED = {
    "a second line": ({"settings": Request(options=("--comment=x\npwned",))}, "one-line"),
    "a name of two lines": ({"name": "x\npwned"}, "one-line"),
}


@pytest.mark.parametrize("case", SLURM_REFUSED.values(), ids=SLURM_REFUSED)
def test_what_no_header_can_hold_is_refused(case: tuple[dict[str, object], str], folder: Path) -> None:
    changes, says = case
    with pytest.raises(CannotStart, match=says):
        rendered("slurm", folder, **changes)


def test_a_folder_that_would_end_a_header_is_refused(tmp_path: Path) -> None:
    made = plan("x", start=start("slurm"))
    for name in ("a\npwned", "a\\b"):
        with pytest.raises(CannotStart):
            get_executor("slurm").render(made, Place(id="x", folder=f"/{name}", launch_dir="/"))


def test_pods_run_their_command_alone(stubs: Stubs, folder: Path) -> None:
    made, files = rendered("kubernetes", folder)
    objects = list(yaml.safe_load_all(files["job.yaml"].read_text()))
    scripts = objects[0]["data"]
    for rank in range(2):
        args = {"NODE_RANK": str(rank), "MASTER_ADDR": "h", "MASTER_PORT": "1"}
        done = stubs.run(["bash", "-c", scripts["command.sh"]], folder, **args)
        assert done.returncode == 0, done.stderr
    check_nodes(stubs, made, "")
    notes = objects[-1]["metadata"]["annotations"]
    assert (notes["a"], notes["b"], notes["c"]) == ("$(pwned)\n'y'", "y", "0o7")
    assert notes["launch/folder"] == str(folder / "out")


def test_a_manifest_has_no_word_that_kubectl_reads_otherwise(folder: Path) -> None:
    """sigs.k8s.io/yaml reads y as a truth value and 0o7 as a number: such texts stand in quotes."""
    _, files = rendered("kubernetes", folder)
    text = files["job.yaml"].read_text()
    assert 'b: "y"' in text
    assert 'c: "0o7"' in text


def test_a_pod_gets_the_value_of_a_variable_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet expands $(NAME), and makes one $ of two (Kubernetes, Container env)."""
    monkeypatch.setenv("DATA_PATH", "$(HF_TOKEN)/$$x/$")
    made = plan("${DATA_PATH}", start=start("kubernetes"))
    place = Place(id="job-1", folder=str(folder / "out"), launch_dir=str(folder))
    manifest = get_executor("kubernetes").render(made, place)[-1].content
    job = list(yaml.safe_load_all(manifest))[-1]
    (variable,) = (
        each for each in job["spec"]["template"]["spec"]["containers"][0]["env"] if each["name"] == "DATA_PATH"
    )
    assert variable["value"].replace("$$", "$") == "$(HF_TOKEN)/$$x/$"


def test_submitit_s_header_asks_for_what_the_plan_asks_for(tmp_path: Path) -> None:
    submitit = pytest.importorskip("submitit.slurm.slurm")
    from launcher.executors.slurm.submitit import check, parameters

    options = ("--nodes=2", "--comment=a 'b' \"c\" #d $(pwned); pwned")
    made = plan("x", start=start("slurm", name="a 'job' $(pwned)", settings=Request(options=options)))
    check([made])
    text = submitit._make_sbatch_string(command="run", folder=tmp_path, map_count=2, **parameters(made))
    assert {*options, "--job-name=a 'job' $(pwned)"} <= set(header_options(text))


SUBMITIT_REFUSED = {
    "two lines": {"settings": Request(options=("--comment=x\npwned",))},
    "a name of two lines": {"name": "x\npwned"},
    "an option of two lines": {"settings": Request(options=("--a\npwned",))},
    "a backslash": {"settings": Request(options=("--comment=a\\b",))},
}


@pytest.mark.parametrize("changes", SUBMITIT_REFUSED.values(), ids=SUBMITIT_REFUSED)
def test_what_submitit_would_write_otherwise_is_refused(changes: dict[str, object]) -> None:
    from launcher.executors.slurm.submitit import check

    with pytest.raises(CannotStart):
        check([plan("x", start=start("slurm", **{"name": "x", "settings": Request(), **changes}))])


def test_a_node_of_a_platform_has_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.executors.environment.nodes import here, plan_of_node

    made = plan(*ARGS, nodes=2, start=start("environment"))
    part = plan_of_node(made, here(made, {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "h"}))
    assert part.nodes == (made.nodes[1],)
    with pytest.raises(CannotStart, match="not a host name"):
        here(made, {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "--log-dir=x"})


def test_this_machine_runs_the_command_alone(stubs: Stubs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.executors.local import run as local

    for name, value in stubs.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(local, "_environment", _without_own_path)
    made = plan(*ARGS, output_dir="out")
    ended = local.run(made, quiet=True)
    assert ended.code == 0, ended.log.read_text()
    assert [agrees(call, expected(made.nodes[0], stubs.environ())) for call in stubs.calls()] == [True]


def _without_own_path(node: NodePlan, environ: dict[str, str], _python: str | None) -> dict[str, str]:
    """Return a node's variables without the folder of this Python, whose torchrun is the real one."""
    return {**environ, **{key: resolved(value, environ) for key, value in node.env.items()}}


def test_records_changed_by_somebody_are_no_options(stubs: Stubs) -> None:
    executor = get_executor("slurm")
    handle = json.loads('{"job": "--user=root"}')
    with pytest.raises(CannotStart, match="not a Slurm job id"):
        executor.stop(handle)
    assert not executor.observe(handle).asked
    assert not stubs.calls()

"""Running a plan here: nothing overwritten, nothing left behind, the right exit code."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.executors.failure import CannotStart
from launcher.executors.files import Written, claim
from launcher.executors.local.run import Kept, run
from launcher.executors.processes import descendants, identified, kill_all, ranks_below
from launcher.executors.stop import Stop
from launcher.plan import LaunchPlan, NodePlan, PlanFile, Start
from tests.conftest import ROOT
from tests.processes import alive
from tests.waiting import STUCK_SECONDS

pytestmark = pytest.mark.slow


def plan(folder: Path, code: str, *args: str, env: dict[str, str] | None = None, **more: object) -> LaunchPlan:
    node = NodePlan(rank=0, argv=(sys.executable, "-c", code, *args), env=env or {})
    return LaunchPlan(nodes=(node,), output_dir=str(folder), **more)  # type: ignore[arg-type]


def test_output_is_logged_and_the_exit_code_comes_back(tmp_path, capfd):
    ended = run(plan(tmp_path / "out", "print('hello'); raise SystemExit(3)"))
    assert ended.code == 3
    assert ended.log.read_text() == "hello\n"
    assert "hello" in capfd.readouterr().out


def test_a_folder_that_is_not_empty_is_refused_and_untouched(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(CannotStart, match="not empty"):
        run(plan(tmp_path, "print(1)", files=(PlanFile(path=str(tmp_path / "mine"), content="other"),)))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot be written"):
        run(plan(tmp_path / "file" / "out", "print(1)"))


def test_a_reference_that_is_not_set_is_refused(tmp_path):
    with pytest.raises(CannotStart, match="NOT_SET_ANYWHERE"):
        run(plan(tmp_path / "out", "print(1)", "${NOT_SET_ANYWHERE}"))
    assert not (tmp_path / "out").exists()


def test_several_nodes_are_refused(tmp_path):
    nodes = tuple(NodePlan(rank=rank, argv=("true",)) for rank in range(2))
    with pytest.raises(CannotStart, match="2 nodes"):
        run(LaunchPlan(nodes=nodes, output_dir=str(tmp_path / "out")))


def tool(path: Path, text: str = "#!/bin/sh\necho trained\n", mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_python_is_this_one_where_it_has_only_the_name_python3(tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    tool(tools / "python", "#!/bin/sh\nexit 3\n")  # a different interpreter on the user's PATH
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("sys.executable", str(tool(tmp_path / "python3")))
    out = tmp_path / "out"
    assert run(LaunchPlan(nodes=(NodePlan(rank=0, argv=("python",)),), output_dir=str(out))).code == 0
    assert "trained" in (out / "logs" / "node0.log").read_text()


ABSENT = {
    "name": ("no-such-command", {}, "no-such-command"),
    "path": ("/none/here", {}, "/none/here does not exist"),
    "reference": ("${TOOLS}/absent", {}, "absent does not exist"),
    "not executable": ("${TOOLS}/plain", {}, "is not executable"),
    "PATH of the child": ("tool", {"PATH": "/none"}, "no such program on the PATH"),
    "no program at all": ("${TOOLS}/broken", {}, "broken cannot be started"),
    "interpreter": ("${TOOLS}/shebang", {}, "shebang cannot be started"),
}


@pytest.mark.parametrize("where", ["node", "prepare"])
@pytest.mark.parametrize("case", ABSENT.values(), ids=ABSENT.keys())
def test_a_command_that_cannot_be_started_leaves_nothing_and_a_retry_works(tmp_path, monkeypatch, case, where):
    program, env, message = case
    tools = tmp_path / "tools"
    tools.mkdir()
    good = NodePlan(rank=0, argv=(str(tool(tools / "tool")),))
    tool(tools / "plain", mode=0o644)
    tool(tools / "broken", "\0\0\0\0")  # the kernel says only at the start that this is no program
    tool(tools / "shebang", "#!/none/sh\n")
    monkeypatch.setenv("TOOLS", str(tools))
    bad = NodePlan(rank=0, argv=(program,), env=env)
    out = tmp_path / "new" / "out"
    files = (PlanFile(path=str(out / "conf" / "x.yaml"), content="x"),)
    steps = {"nodes": (bad,)} if where == "node" else {"nodes": (good,), "prepare": (bad,)}
    with pytest.raises(CannotStart, match=message):
        run(LaunchPlan(output_dir=str(out), files=files, **steps))
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]
    assert run(LaunchPlan(output_dir=str(out), files=files, nodes=(good,))).code == 0


def test_a_failed_start_removes_only_what_this_run_wrote(tmp_path):
    shebang = NodePlan(rank=0, argv=(str(tool(tmp_path / "shebang", "#!/none/sh\n")),))
    out, beside = tmp_path / "out", tmp_path / "mine"
    beside.mkdir()
    (beside / "precious").write_text("mine")
    prepare = NodePlan(rank=0, argv=("bash", "-c", f"echo weights > {out}/weights"))
    files = tuple(PlanFile(path=str(folder / "x.yaml"), content="x") for folder in (out, beside))
    with pytest.raises(CannotStart, match="preparation wrote are kept"):
        run(LaunchPlan(output_dir=str(out), files=files, prepare=(prepare,), nodes=(shebang,)))
    assert [path.name for path in out.iterdir()] == ["weights"]
    assert [path.name for path in beside.iterdir()] == ["precious"]


def test_a_program_that_the_plan_makes_is_started(tmp_path):
    program = tmp_path / "elsewhere" / "go"
    files = (PlanFile(path=str(program), content="#!/bin/sh\necho made\n", mode=0o755),)
    nodes = (NodePlan(rank=0, argv=("./go",), workdir=str(program.parent)),)
    out = tmp_path / "out"
    with pytest.raises(CannotStart, match="working directory"):
        run(LaunchPlan(output_dir=str(out), files=files, nodes=nodes))
    program.parent.mkdir()
    assert run(LaunchPlan(output_dir=str(out), files=files, nodes=nodes)).log.read_text() == "made\n"


def test_a_taken_port_is_replaced_by_a_free_one(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code = "import os, sys; print(sys.argv[-1] == os.environ['MASTER_PORT'], sys.argv[-1])"
        ended = run(plan(tmp_path / "out", code, "--master_port", port, env={"MASTER_PORT": port}))
    same, chosen = ended.log.read_text().split()
    assert same == "True"
    assert chosen != port


def test_a_port_that_the_user_chose_is_taken_or_nothing_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = plan(tmp_path / "out", "print('ran')", "--master_port", str(port))
        made = replace(made, start=Start(port=port))
        with pytest.raises(CannotStart, match=f"port {port} is in use"):
            run(made)
        assert not (tmp_path / "out").exists()
    assert run(made).code == 0


def test_of_runs_that_start_at_once_each_has_a_port_of_its_own(tmp_path):
    """Their processes bind it a while later; if both ask for one port, one of them does not start."""
    code = "import os, socket, time; time.sleep(1); s = socket.create_server(('', int(os.environ['MASTER_PORT']))); "
    code += "time.sleep(1)"
    made = [plan(tmp_path / f"out{number}", code, env={"MASTER_PORT": "29500"}) for number in range(6)]
    with ThreadPoolExecutor(len(made)) as pool:
        assert [ended.code for ended in pool.map(lambda one: run(one, quiet=True), made)] == [0] * len(made)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def asks(number: int) -> str:
        one = plan(tmp_path / f"same{number}", code, env={"MASTER_PORT": str(port)})
        kept = Kept(id=f"same-{number}")
        try:
            return str(run(replace(one, start=Start(port=port)), quiet=True, kept=kept).code)
        except CannotStart as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        first, second = sorted(pool.map(asks, (1, 2)))
    assert (first, "is reserved by a run that starts now" in second) == ("0", True)
    assert asks(3) == "0"


def test_only_the_port_is_replaced(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code = "import os, sys; print(*sys.argv[1:], os.environ['MASTER_PORT'], os.environ['STEPS'])"
        args = ("--train-iters", port, "--master-port", port, f"--master_port={port}")
        ended = run(plan(tmp_path / "out", code, *args, env={"MASTER_PORT": port, "STEPS": port}))
    seen = ended.log.read_text().split()
    assert seen[:3] == ["--train-iters", port, "--master-port"]
    new = seen[3]
    assert new != port
    assert seen[4:] == [f"--master_port={new}", new, port]


def test_a_full_disk_stops_neither_the_run_nor_what_it_shows(tmp_path, capfd):
    log = tmp_path / "out" / "logs" / "node0.log"
    fill = NodePlan(rank=0, argv=("bash", "-c", f"ln -sf /dev/full {log}"))
    # More than a pipe holds: a reader that gave up would block the process for ever.
    ended = run(plan(tmp_path / "out", "print('x' * 1_000_000); print('end')", prepare=(fill,)))
    assert ended.code == 0
    assert ended.log_problem == "No space left on device"
    shown = capfd.readouterr().out
    assert shown.count("x") == 1_000_000
    assert shown.endswith("end\n")


def test_a_reused_number_of_a_foreign_process_is_not_killed():
    foreign = subprocess.Popen(["sleep", "60"])
    try:
        now = identified(foreign.pid)
        assert now is not None
        kill_all([replace(now, start=now.start - 1)])
        time.sleep(0.2)
        assert foreign.poll() is None
        kill_all([now])
        assert foreign.wait(timeout=STUCK_SECONDS) == -signal.SIGKILL
        assert identified(foreign.pid) is None
    finally:
        foreign.kill()


def test_failed_preparation_ends_the_run(tmp_path):
    prepare = NodePlan(rank=0, argv=("bash", "-c", "exit 4"))
    ended = run(plan(tmp_path / "out", "print('trained')", prepare=(prepare,)))
    assert ended.code == 4
    assert "trained" not in ended.log.read_text()


# A starter whose child has a session of its own, as torchrun's ranks have.
STARTER = """
import subprocess, sys, time, signal
child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
def stop(number, frame):
    if SLOW: return
    child.send_signal(number); child.wait(); raise SystemExit(1)
signal.signal(signal.SIGTERM, stop)
print("child", child.pid, flush=True)
while True: time.sleep(0.1)
"""
RUNNER = """
import sys
from pathlib import Path
from launcher.executors.files import Written, claim
from launcher.executors.local.run import Kept, run
from launcher.plan import LaunchPlan, NodePlan
ended = run(LaunchPlan(nodes=(NodePlan(rank=0, argv=(sys.executable, "-c", sys.argv[1])),), output_dir=sys.argv[2]))
print("ended", ended.code, ended.interrupted, flush=True)
"""
SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *a: (time.sleep(2), print("saved", flush=True), sys.exit(0)))
time.sleep(60)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


@pytest.mark.parametrize(("child", "slow", "times"), [(SAVES, False, 1), (DEAF, True, 2)], ids=["clean stop", "kill"])
def test_ctrl_c_leaves_no_process(tmp_path, child, slow, times):
    starter = STARTER.replace("CHILD", repr(child)).replace("SLOW", str(slow))
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER, starter, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    time.sleep(1.0)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    out, _ = process.communicate(timeout=STUCK_SECONDS)
    assert "ended 130 True" in out
    assert ("saved" in out) == (not slow)
    assert not alive(pid)


SAVES_ON_TERM = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    time.sleep(1)
    Path(sys.argv[1]).write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("pid", os.getpid(), flush=True)
time.sleep(60)
"""


def runner(start: str, code: str, out: Path) -> "subprocess.Popen[str]":
    node = "NodePlan(rank=0, argv=(sys.executable, '-c', sys.argv[1], sys.argv[3]))"
    text = RUNNER.replace('NodePlan(rank=0, argv=(sys.executable, "-c", sys.argv[1]))', node)
    return subprocess.Popen(
        [sys.executable, "-c", start + text, code, str(out), str(out.with_name("saved"))],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("numbers", [(signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM, signal.SIGHUP)], ids=str)
def test_a_lost_terminal_ends_the_run_cleanly(tmp_path, numbers):
    process = runner("import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n", SAVES_ON_TERM, tmp_path / "out")
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.1)
    process.stdout.close()
    process.wait(timeout=STUCK_SECONDS)
    assert (tmp_path / "saved").read_text() == "saved"
    assert not alive(pid)


def test_nohup_keeps_the_run(tmp_path):
    ignores = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = runner(ignores, "import time; print('up', flush=True); time.sleep(2); print('done')", tmp_path / "out")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(timeout=STUCK_SECONDS)
    assert out == "done\nended 0 False\n"


def test_a_signal_that_comes_before_the_process_is_not_lost(tmp_path):
    """The signal is sent by the preparation's last act: it arrives between two processes, or just after."""
    prepare = NodePlan(rank=0, argv=("bash", "-c", f"kill -TERM {os.getpid()}"))
    before = signal.getsignal(signal.SIGTERM)
    ended = run(plan(tmp_path / "out", "print('trained')", prepare=(prepare,)))
    assert (ended.code, ended.interrupted) == (143, True)
    assert "trained" not in ended.log.read_text()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_during_the_start_reaches_the_process(tmp_path):
    stop = Stop()
    with stop:
        os.kill(os.getpid(), signal.SIGTERM)
        process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        stop.watch(process)
        assert process.wait(timeout=STUCK_SECONDS) == -signal.SIGTERM
    assert stop.received == [signal.SIGTERM]


def test_a_script_that_ends_nodes_by_itself_has_the_time_that_ranks_may_save(monkeypatch):
    stop = Stop(200.0, passes_interrupt=True)
    with stop:
        process = subprocess.Popen(["bash", "-c", "trap '' TERM; echo; sleep 600"], stdout=-1, start_new_session=True)
        assert process.stdout is not None
        process.stdout.readline()
        stop.watch(process)
        os.kill(os.getpid(), signal.SIGTERM)
        now = time.monotonic()
        monkeypatch.setattr("launcher.executors.stop.time.monotonic", lambda: now + 270)
        waited = not stop.overdue()
        monkeypatch.setattr("launcher.executors.stop.time.monotonic", lambda: now + 300)
        overdue = stop.overdue()
        stop.kill()
        process.wait()
    assert (waited, overdue) == (True, True)


def test_ranks_are_found_though_a_platform_sets_their_variable_for_the_node():
    script = "LOCAL_RANK=0 bash -c 'echo $$; sleep 600 & wait' & wait"
    agent = ["bash", "-c", 'bash -c "$1"; :', "agent", script]
    process = subprocess.Popen(agent, stdout=subprocess.PIPE, env={**os.environ, "RANK": "0"})
    assert process.stdout is not None
    rank = int(process.stdout.readline())
    found = ranks_below(process.pid)
    kill_all(descendants(process.pid))
    process.wait()
    assert [each.pid for each in found] == [rank]


def test_of_jobs_that_start_at_once_in_one_folder_one_has_it(tmp_path):
    def one(folder: Path) -> Written | None:
        written = Written()
        try:
            claim(folder, written)
        except CannotStart:
            return None
        return written

    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            (winner,) = [written for written in pool.map(one, [tmp_path / f"out{number}"] * 8) if written is not None]
        assert [path.name for path in (tmp_path / f"out{number}").iterdir()] == ["run"]
        winner.undo()
        assert not (tmp_path / f"out{number}" / "run").exists()

"""What nobody foresaw: one line, one document with --json, the right exit code, and the traceback in a file."""

import errno
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from launcher.cli import main
from launcher.cli.dispatch import VERBS, Verb
from launcher.cli.internal_error import REQUIRED
from launcher.cli.streams import ASCII
from launcher.rules.diagnostics import DIAGNOSTICS
from tests.commands import ROOT, run_process

# name: what a verb raises; exit code, what is said.
RAISED = {
    "a fault of the program": ("ValueError('bad\\nthing')", 1, "internal error: ValueError: bad"),
    "no message": ("AssertionError()", 1, "internal error: AssertionError (launcher/cli/dispatch.py"),
    "no end of recursion": ("RecursionError('deep')", 1, "internal error: RecursionError: deep"),
    "an error group": ("ExceptionGroup('many', [ValueError('a')])", 1, "internal error: ExceptionGroup: many"),
    "a base exception": ("BaseException('odd')", 1, "internal error: BaseException: odd"),
    "no dependency": ("ModuleNotFoundError('no', name='hydra.core')", 1, "-m pip install -e "),
    "no module of ours": ("ModuleNotFoundError('no', name='launcher.x')", 1, "internal error: ModuleNotFoundError: no"),
    "no memory": ("MemoryError()", 1, "does not have enough memory"),
    "a full disk": (f"OSError({errno.ENOSPC}, 'No space left on device')", 1, "free some space"),
    "too many files": (f"OSError({errno.EMFILE}, 'Too many open files')", 1, "ulimit -n"),
    "another error of the system": ("OSError('odd')", 1, "internal error: OSError: odd"),
    "a file": ("FileNotFoundError(2, 'No such file or directory', 'x/y')", 1, "x/y: No such file or directory"),
    "no home": ("RuntimeError('Could not determine home directory.')", 1, "no home directory"),
    "Ctrl-C": ("KeyboardInterrupt()", 130, "interrupted"),
    "an exit": ("SystemExit(2)", 2, ""),
    "an exit with words": ("SystemExit('no more')", 1, "no more"),
    "an exit without a code": ("SystemExit()", 0, ""),
    "a pipe of its own": ("BrokenPipeError(32, 'Broken pipe')", 1, "internal error: BrokenPipeError"),
    "a secret": ("ValueError('backend.env.HF_TOKEN=hunter2hunter2')", 1, "internal error: ValueError"),
}


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a verb `broken` that raises what the file says; return the folder of details."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(VERBS, "broken", Verb(module="broken_verb", doc=""))
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.delitem(sys.modules, "broken_verb", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path / "home" / "errors"


def raising(what: str) -> None:
    sys.modules.pop("broken_verb", None)
    Path("broken_verb.py").write_text(f"def main(words):\n    raise {what}\n")


@pytest.mark.parametrize("name", RAISED)
def test_everything_ends_in_one_line(broken: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    what, expected, text = RAISED[name]
    raising(what)
    code = main(["broken", "backend.env.WANDB_API_KEY=hunter2hunter2"])
    out, err = capsys.readouterr()
    assert (code, out) == (expected, ""), err
    assert text in err
    assert "Traceback" not in err
    assert "hunter2" not in err
    if "internal error" in err:
        (line,) = err.splitlines()
        details = Path(re.search(r"details: (\S+)$", line)[1])
        assert details.parent == broken
        assert stat.S_IMODE(details.stat().st_mode) == 0o600
        assert stat.S_IMODE(broken.stat().st_mode) == 0o700
        assert "Traceback (most recent call last)" in details.read_text()
        assert "hunter2" not in details.read_text()


@pytest.mark.parametrize("many", [False, True])
def test_with_json_there_is_one_document(broken: Path, capsys: pytest.CaptureFixture[str], many: bool) -> None:
    raising("ValueError('bad')")
    assert main(["broken", "--json", *(["-m"] if many else [])]) == 1
    out, err = capsys.readouterr()
    (tree,) = json.loads(out) if many else [json.loads(out)]
    assert (tree["ok"], tree["findings"][0]["rule"]) == (False, "CMD-INTERNAL")
    assert Path(tree["details"]).is_file()
    assert "internal error" in err


def test_where_no_details_can_be_written_nothing_else_goes_wrong(
    broken: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raising("ValueError('bad')")
    monkeypatch.setenv("LAUNCH_HOME", "/dev/null/x")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["broken"]) == 1
    assert "details: /" in capsys.readouterr().err  # in a temporary folder
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/x")
    assert main(["broken"]) == 1
    assert "this is a bug in Launch\n" in capsys.readouterr().err


def test_old_details_do_not_pile_up(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken.mkdir(parents=True)
    for number in range(50):
        (broken / f"error-20200101-0000{number:02d}-1.txt").write_text("")
    raising("ValueError('bad')")
    assert main(["broken"]) == 1
    assert len(list(broken.iterdir())) == 20


def test_every_finding_of_the_command_line_is_explained() -> None:
    assert {"CMD-INTERNAL", "CMD-BUDGET"} <= set(DIAGNOSTICS)


# -- words
@pytest.mark.parametrize("arg", ["name=\udcff", "name=a\0b", "\udcfe", "+recipe=\udcff.yaml", "--json=\udcff"])
@pytest.mark.parametrize("verb", ["check", "dry-run", "import", "explain", "status", ""])
def test_arguments_that_are_no_text_are_refused(capsys: pytest.CaptureFixture[str], verb: str, arg: str) -> None:
    assert main([*filter(None, [verb]), arg]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


# -- the process: the real command
def shell(folder: Path, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = ["bash", "-c", script, "bash", sys.executable, "-m", "launcher", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": str(folder / "home"), **env}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False)


JOB = ("+recipe=tiny_qwen3", "backend=megatron_lm")


@pytest.mark.slow
def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    done = shell(tmp_path, '"$@" > /dev/full', "explain", "parallel.tp")
    assert (done.returncode, done.stderr) == (
        1,
        b"launch: standard output cannot be written: No space left on device\n",
    )
    done = shell(tmp_path, '"$@" >&- 2>&- <&-', "check", *JOB, "parallel.tp=3")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    done = shell(tmp_path, '"$@" 2> /dev/full', "chek")
    assert (done.returncode, done.stdout) == (2, b"")
    done = shell(tmp_path, '"$@" | head -1; exit ${PIPESTATUS[0]}', "args", "megatron")
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_a_reader_that_has_gone_does_not_change_the_verdict(tmp_path: Path) -> None:
    done = shell(tmp_path, '"$@" | true; exit ${PIPESTATUS[0]}', "check", *JOB, "parallel.tp=3")
    assert (done.returncode, done.stderr) == (1, b"")


def test_output_is_ascii_where_nothing_else_can_be_shown(tmp_path: Path) -> None:
    for env in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = shell(tmp_path, '"$@"', "--help", **env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"OVERRIDES ..." in done.stdout
        assert done.stdout.isascii()
    done = shell(tmp_path, '"$@"', "check", "name=名前", "é", "--json", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert "é" in json.loads(done.stdout)["findings"][0]["message"]


def test_ascii_replaces_every_character_that_is_printed() -> None:
    texts = [*(ROOT / "launcher" / "cli").glob("*.py"), *(ROOT / "launcher" / "report").glob("*.py")]
    signs = {sign for path in texts for sign in path.read_text(encoding="utf-8") if not sign.isascii()}
    assert not [sign for sign in signs if not sign.isalpha() and sign not in ASCII]


def test_a_removed_directory_is_named(tmp_path: Path) -> None:
    gone = 'mkdir gone; cd gone; rmdir ../gone; "$@"'
    done = shell(tmp_path, gone, "dry-run", *JOB)
    assert done.returncode == 1
    assert b"the current directory has been removed" in done.stderr
    assert shell(tmp_path, gone, "--help").returncode == 0


def test_the_first_moments_belong_to_ctrl_c(tmp_path: Path) -> None:
    """Python itself answers a signal before it has read a line of ours; from there on it is this program."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        with subprocess.Popen(
            [sys.executable, "-v", "-m", "launcher", "dry-run", *JOB],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stderr is not None
            reported = ""
            while "import 'launcher.cli.streams'" not in reported:  # -v: each module as it is imported
                reported = child.stderr.readline()
                assert reported, "ended early"
            time.sleep(delay)
            child.send_signal(signal.SIGINT)
            rest = child.stderr.read()
        assert child.returncode in (130, 0)  # 0: it was faster
        assert "Traceback" not in rest
        assert "Exception ignored" not in rest
        assert child.returncode == 0 or "interrupted" in rest


def started(folder: Path, text: str, arg: str) -> tuple[int, str]:
    """Run a module of this text by `python -m`, and return its exit code and output."""
    (folder / "started.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, "-m", "started", arg]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    return done.returncode, done.stderr


def test_ctrl_c_while_a_class_is_made(tmp_path: Path) -> None:
    """Where the signal comes inside `exec` of text, `python -m` would end by the signal instead of exit code 130."""
    body = "import os, signal\ndef main(words):\n    exec('os.kill(os.getpid(), signal.SIGINT)\\nwhile True: pass')\n"
    (tmp_path / "interrupted_verb.py").write_text(body)
    start = (
        "from launcher.cli.dispatch import VERBS, Verb\n"
        "VERBS['check'] = Verb(module='interrupted_verb', doc='')\n"
        "from launcher.cli import main\n"
        "raise SystemExit(main())\n"
    )
    assert started(tmp_path, start, "check") == (130, "interrupted\n")


def test_a_signal_after_the_answer_changes_nothing(tmp_path: Path) -> None:
    """The interpreter takes its own handlers away while it ends, and would end by the signal."""
    start = (
        "import atexit, os, signal\n"
        "atexit.register(lambda: [os.kill(os.getpid(), each) for each in (signal.SIGINT, signal.SIGTERM)])\n"
        "from launcher.cli import main\n"
        "raise SystemExit(main())\n"
    )
    assert started(tmp_path, start, "--version") == (0, "")


def test_another_package_of_the_name_is_named(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{tmp_path}.launch"}
    for name in ("launcher", "backends", "conf", "recipes"):
        (tmp_path / name).mkdir()  # folders without code hide nothing
    assert run_process(["dry-run", *JOB], cwd=tmp_path, env=env).code == 0
    (tmp_path / "backends" / "__init__.py").write_text("")
    done = run_process(["dry-run", *JOB], cwd=tmp_path, env=env)
    assert (done.code, done.out) == (1, "")
    assert f"{tmp_path}/backends/__init__.py hides the package backends of Launch" in done.err
    assert len(done.err.splitlines()) == 1
    (tmp_path / "launcher" / "__init__.py").write_text("raise SystemExit('executed')")
    code = "import sys; from launch_llm import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", code, "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert f"{tmp_path}/launcher/__init__.py hides" in found.stderr


def test_every_dependency_that_is_missing_is_named():
    waiting, imported = ["launch-llm"], set()
    for distribution in waiting:
        wanted = map(Requirement, metadata.requires(distribution) or ())
        names = [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
        waiting += [name.lower() for name in names if name.lower() not in waiting]
        held = {
            name for name, owners in metadata.packages_distributions().items() if distribution in map(str.lower, owners)
        }
        assert distribution == "launch-llm" or held & REQUIRED, f"{distribution} is imported as one of {held}"
        imported |= held
    assert imported >= REQUIRED

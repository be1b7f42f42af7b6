"""Files and folders that the command line names: what lies there already is replaced only by its own kind."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cli import main
from launcher.cli.options import writable
from launcher.cli.refusal import WrongUse
from launcher.outputs.files import OutputRefused, write_output
from launcher.outputs.kinds import JOB, PICTURE, PROGRAM, TRACE, Kind
from tests.commands import ROOT

Say = pytest.CaptureFixture[str]
SMALL = ("+recipe=tiny_qwen3", "backend=megatron", "hardware=h100_80g", "cluster.nodes=1")
STAGES = ("+recipe=qwen3_8b", "backend=megatron", "hardware=a100_80g", "parallel.tp=1", "parallel.pp=4", "--quick")
AXES = "search.axes=[micro_batch_size]"
SCRIPT = (
    "megatron sft --model m --dataset d --tensor_model_parallel_size 2 --micro_batch_size 1 --global_batch_size 8\n"
)
MINE = "mine: precious\nnotes: [1, 2]\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    Path("train.sh").write_text(SCRIPT)
    return tmp_path / "work"


# name: words, option, name of the file.
WRITERS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "check --fix": (("check", *SMALL, "--fix"), "-o", "x.yaml"),
    "import": (("import", "train.sh"), "-o", "x.yaml"),
    "import without an ending": (("import", "train.sh"), "-o", "job"),
    "import --to": (("import", "train.sh", "--to", "megatron"), "-o", "x.yaml"),
    "search": (("search", *SMALL, AXES), "-o", "x.yaml"),
    "search --csv": (("search", *SMALL, AXES), "--csv", "x.csv"),
    "search --plot": (("search", *SMALL, AXES), "--plot", "x.svg"),
    "search --resume": (("search", *SMALL, AXES), "--resume", "x.json"),
    "balance": (("balance", *STAGES), "-o", "x.yaml"),
    "balance --mps": (("balance", *STAGES), "--mps", "x.mps"),
    "balance --plot": (("balance", *STAGES), "--plot", "x.html"),
    "estimate": (("estimate", *SMALL), "--plot", "x.svg"),
    "estimate as a page": (("estimate", *SMALL), "--plot", "x.html"),
    "report": (("report", *SMALL), "-o", "x.html"),
    "estimate --trace": (("estimate", *SMALL), "--trace", "x.json"),
}


def _text(path: Path) -> None:
    path.write_text(MINE)


def _bytes(path: Path) -> None:
    path.write_bytes(os.urandom(300))


def _same_format(path: Path) -> None:
    """What other programs write under such a name."""
    path.write_text(
        {
            ".yaml": "services:\n  web: {image: nginx}\n",
            ".csv": "name,grade\nAda,1\n",
            ".svg": '<svg xmlns="http://www.w3.org/2000/svg"><title>drawn by hand</title></svg>\n',
            ".html": "<!doctype html><p>my page</p>\n",
            ".json": '{"traceEvents": [{"name": "kernel"}], "schemaVersion": 1}\n',
            ".mps": "NAME mine\nROWS\n N obj\nENDATA\n",
        }.get(path.suffix, SCRIPT)
    )


def _link(path: Path) -> None:
    path.with_name("target").write_text(MINE)
    path.symlink_to("target")


def _link_of_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "text": _text,
    "bytes": _bytes,
    "the same format": _same_format,
    "a link": _link,
    "a link of nothing": _link_of_nothing,
}


def held(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    return found


def written(capsys: Say, *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(args))
    return (code, *capsys.readouterr())


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_somebody_is_never_replaced(writer: str, hostile: str, here: Path, capsys: Say) -> None:
    args, flag, name = WRITERS[writer]
    HOSTILE[hostile](here / name)
    before = held(here)
    for more in ((), ("--json",)):
        code, out, err = written(capsys, *args, flag, name, *more)
        assert code == 1
        assert held(here) == before
    assert json.loads(out)["ok"] is False
    code, out, err = written(capsys, *args, flag, name)
    assert "is not replaced" in err
    works = shlex.split(err.partition("works: ")[2].splitlines()[0])
    assert works[0] == flag
    assert not Path(works[1]).exists()
    if args[0] in ("check", "import", "estimate"):
        assert written(capsys, *args, *works)[0] in (0, 1)
        assert Path(works[1]).is_file()
        assert {path: data for path, data in held(here).items() if path in before} == before


EDITED = ("check --fix", "import", "import --to", "search --csv", "balance")
REPLACED = ("search --plot", "search --resume", "estimate", "estimate as a page", "estimate --trace", "balance --mps")


@pytest.mark.sample(keep=5)
@pytest.mark.parametrize("writer", [*EDITED, *REPLACED])
def test_a_file_of_the_same_kind_is_replaced_and_kept_if_it_was_edited(writer: str, here: Path, capsys: Say) -> None:
    args, flag, name = WRITERS[writer]
    file = here / name
    code, _, err = written(capsys, *args, flag, name)
    assert file.is_file(), err
    first = file.read_bytes()
    assert written(capsys, *args, flag, name)[0] == code
    assert sorted(path.name for path in here.iterdir()) == sorted(["train.sh", name])
    edited = first + (b"" if writer == "search --resume" else b"\n# edited\n")
    file.write_bytes(edited)
    file.chmod(0o640)
    assert written(capsys, *args, flag, name)[0] == code
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    kept = here / f"{name}.1"
    if writer in EDITED:
        assert kept.read_bytes() == edited
        file.write_bytes(edited + b"# again\n")
        assert f"kept as {name}.2" in written(capsys, *args, flag, name)[2]
    else:
        assert not kept.exists()


def test_several_jobs_are_written_all_or_not_at_all(here: Path, capsys: Say) -> None:
    Path("train.sh").write_text(SCRIPT + SCRIPT.replace("--micro_batch_size 1", "--micro_batch_size 2"))
    Path("job_2.yaml").write_text(MINE)
    before = held(here)
    code, _, err = written(capsys, "import", "train.sh", "--all-commands", "-o", "job.yaml")
    assert code == 1
    assert "job_2.yaml is not a job file" in err
    assert held(here) == before


def test_standard_output_is_written_through(here: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m launcher import train.sh -o /dev/stdout > all.txt"
    code = os.system(f"PYTHONPATH={shlex.quote(str(ROOT))} {command}")
    assert code == 0
    text = Path("all.txt").read_text()
    assert "# Imported from train.sh" in text
    assert "tensor_model_parallel_size" in text
    assert not Path("/dev/stdout").is_file() or Path("/dev/stdout").is_symlink()


# --- folders ---


@pytest.mark.parametrize(
    "args",
    [
        ("search", *SMALL, AXES, "--emit-profile", "full"),
        ("dry-run", *SMALL, "--render", "full"),
        ("run", *SMALL, "runtime=rehearsal", "output_dir=full"),
        ("run", *SMALL, "runtime=rehearsal", "output_dir=full", "-m", "optimizer.lr=1e-2,2e-2"),
    ],
    ids=["search --emit-profile", "dry-run --render", "run", "run -m"],
)
def test_a_folder_that_holds_something_is_not_mixed_with(args: tuple[str, ...], here: Path, capsys: Say) -> None:
    for folder in ("full", "full/1", "full/2"):
        Path(folder).mkdir()
        Path(folder, "profile.csv").write_text("dp,tp\n1,2\n")
    before = held(here.parent)
    code, _, err = written(capsys, *args)
    assert code == 1
    assert held(here.parent) == before
    assert "not empty" in err
    assert "full" in err.partition("works: ")[2]


# --- the one module that decides ---

TEXTS = st.one_of(st.binary(max_size=200), st.text(max_size=80).map(str.encode))


@given(old=TEXTS, new=TEXTS, kind=st.sampled_from([JOB, PICTURE, TRACE, PROGRAM]), kept=st.integers(0, 3))
def test_whatever_was_there_is_still_there(
    tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes, kind: Kind, kept: int
) -> None:
    """Under its own name, or beside it; a file that launch itself drew may go."""
    folder = tmp_path_factory.mktemp("any")
    path = folder / "x.yaml"
    path.write_bytes(old)
    for number in range(1, kept + 1):
        path.with_name(f"x.yaml.{number}").write_bytes(f"earlier {number}".encode())
    earlier = {file.name: file.read_bytes() for file in folder.iterdir() if file != path}
    try:
        write_output(path, new, kind)
    except OutputRefused as refused:
        error: OutputRefused | None = refused
    else:
        error = None
    if error is not None:
        assert path.read_bytes() == old
        assert error.free is not None
        assert not error.free.exists()
    else:
        assert path.read_bytes() == new
        mine = kind is not JOB or not old
        assert mine or old in [file.read_bytes() for file in folder.iterdir()]
        assert not mine or not old or kind.recognises(path) or b"made by launch" in old
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name: after.get(name) for name in earlier} == earlier
    assert not [name for name in after if name.startswith(".")]


@pytest.mark.parametrize(("open_folder", "works"), [("cwd", "-o ./x.yaml"), ("home", "-o ~/x.yaml"), ("", None)])
def test_only_a_folder_that_can_be_written_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_folder: str, works: str | None
) -> None:
    for name in ("cwd", "home", "closed"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("os.access", lambda path, _mode: Path(path).absolute().name == open_folder)
    with pytest.raises(WrongUse, match="closed is not writable") as refused:
        writable("-o", str(tmp_path / "closed" / "x.yaml"), JOB, ".yaml")
    assert refused.value.works == (() if works is None else (works,))

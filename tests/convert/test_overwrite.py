"""What `launch convert --overwrite` replaces: conversions and checkpoints, and never somebody's work."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.convert.journal import Journal
from tests.convert.adapters import adapter_arrays, linear_modules, write_adapter
from tests.convert.helpers import launch
from tests.convert.test_replacing import ended_at
from tests.convert.tiny import tiny_llama
from tests.waiting import STUCK_SECONDS

Say = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, an adapter of it, and both as converted; to be copied."""
    root = tmp_path_factory.mktemp("made")
    model = tiny_llama(root / "hf")
    adapter = write_adapter(root / "adapter", adapter_arrays(linear_modules(model)))
    assert launch("hf-to-mcore", "--model", model, "--out", root / "mcore") == 0
    assert launch("hf-to-mcore", "--model", model, "--adapter", adapter, "--out", root / "mcore-adapter") == 0
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of these, beside a working directory of its own and a home of its own."""
    root = tmp_path / "here"
    shutil.copytree(made, root)
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return root


def words_of(verb: str, here: Path, out: object) -> list[object]:
    return {
        "hf-to-mcore": ["hf-to-mcore", "--model", here / "hf", "--out", out],
        "legacy": ["hf-to-mcore", "--model", here / "hf", "--out", out, "--format", "legacy"],
        "mcore-to-hf": ["mcore-to-hf", "--checkpoint", here / "mcore", "--out", out],
        "fp8": ["mcore-to-hf", "--checkpoint", here / "mcore", "--out", out, "--fp8", "blockwise"],
        "reshard": ["reshard", "--checkpoint", here / "mcore", "--out", out, "--format", "legacy"],
        "adapter": ["hf-to-mcore", "--model", here / "hf", "--adapter", here / "adapter", "--out", out],
        "adapter back": ["mcore-to-hf", "--checkpoint", here / "mcore-adapter", "--model", here / "hf", "--out", out],
        "merge": ["merge", "--model", here / "hf", "--adapter", here / "adapter", "--out", out],
    }[verb]


VERBS = ("hf-to-mcore", "legacy", "mcore-to-hf", "fp8", "reshard", "adapter", "adapter back", "merge")
# FP8 is written of models that are published so; what it replaces is asked before that is.
WRITING = tuple(verb for verb in VERBS if verb != "fp8")


def snapshot(*folders: Path) -> dict[str, bytes | str]:
    """Everything below folders: bytes of files, targets of links, names of folders; the working directory aside."""
    found: dict[str, bytes | str] = {}
    for folder in folders:
        for where, names, files in os.walk(folder):
            for name in (*names, *files):
                path = Path(where, name)
                if path.is_symlink():
                    found[str(path)] = f"-> {os.readlink(path)}"
                else:
                    found[str(path)] = path.read_bytes() if path.is_file() else "folder"
    return found


# --- what is refused ---


def _documents(root: Path) -> Path:
    out = root / "thesis"
    out.mkdir()
    (out / "chapter1.tex").write_text("precious")
    return out


def _work_tree(root: Path) -> Path:
    out = root / "checkout"
    shutil.copytree(root / "mcore", out)
    (out / ".git").mkdir()
    (out / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return out


def _holds_work_tree(root: Path) -> Path:
    out = root / "outer"
    shutil.copytree(root / "mcore", out)
    (out / "iter_0000001" / "code").mkdir()
    (out / "iter_0000001" / "code" / ".git").write_text("gitdir: elsewhere\n")
    return out


def _with(name: str, text: str = "mine") -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        out = root / "with more"
        shutil.copytree(root / "mcore", out)
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
        return out

    return make


def _link(root: Path) -> Path:
    out = root / "link"
    shutil.copytree(root / "mcore", root / "other")
    out.symlink_to(root / "other")
    return out


def _link_of_nothing(root: Path) -> Path:
    out = root / "link"
    out.symlink_to(root / "nowhere")
    return out


def _forged_record(root: Path) -> Path:
    out = root / "forged"
    out.mkdir()
    (out / "conversion.json").write_text("{}")
    (out / "novel.md").write_text("mine")
    return out


def _tensors_alone(root: Path) -> Path:
    """Embeddings of somebody: safetensors without the config.json of a model."""
    out = root / "embeddings"
    out.mkdir()
    shutil.copy(root / "hf" / "model.safetensors", out / "library.safetensors")
    return out


def _not_what_it_says(root: Path) -> Path:
    out = root / "renamed"
    out.mkdir()
    shutil.copy(root / "hf" / "config.json", out / "config.json")
    (out / "model.safetensors").write_text("a diary under an odd name")
    return out


def _current(root: Path) -> Path:
    return Path()


def _above_current(root: Path) -> Path:
    return Path("..")


def _current_in_a_checkpoint(root: Path) -> Path:
    out = root / "current"
    shutil.copytree(root / "mcore", out)
    os.chdir(out / "iter_0000001")
    return out


def _home(root: Path) -> Path:
    return Path("~")


def _home_that_is_a_checkpoint(root: Path) -> Path:
    home = Path.home()
    shutil.copytree(root / "mcore", home, dirs_exist_ok=True)
    return home


def _root(root: Path) -> Path:
    return Path("/")


def _mount(root: Path) -> Path:
    return Path("/proc")


def _holds_mount(root: Path) -> Path:
    return Path("/dev")


def _file(root: Path) -> Path:
    out = root / "file"
    out.write_text("mine")
    return out


def _holds_all(root: Path) -> Path:
    return root


def _edited(root: Path) -> Path:
    out = root / "edited"
    shutil.copytree(root / "mcore", out)
    config = out / "huggingface" / "config.json"
    config.write_text(config.read_text().replace("10000.0", "500000.0"))
    return out


def _trained_into(root: Path) -> Path:
    out = root / "trained"
    shutil.copytree(root / "mcore", out)
    shutil.copytree(out / "iter_0000001", out / "iter_0000100")
    (out / "latest_checkpointed_iteration.txt").write_text("100")
    return out


def _socket(root: Path) -> Path:
    out = root / "with pipe"
    shutil.copytree(root / "mcore", out)
    os.mkfifo(out / "iter_0000001" / "common.pt.fifo")
    return out


# name: what makes the target (below the folder with the sources), and what the refusal says.
HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "documents": (_documents, "neither a conversion nor a checkpoint"),
    "a git work tree": (_work_tree, "git work tree"),
    "a git work tree inside": (_holds_work_tree, "iter_0000001/code/"),
    "a document beside": (_with("notes.txt"), "notes.txt"),
    "a model card beside": (_with("README.md"), "README.md"),
    "a script beside": (_with("train.py"), "train.py"),
    "a folder beside": (_with("results/table.csv"), "results/"),
    "a file deep inside": (_with("iter_0000001/notes.txt"), "iter_0000001/notes.txt"),
    "a hidden file": (_with(".env", "TOKEN=1"), ".env"),
    "a changed file": (_edited, "huggingface/config.json (changed since it was written)"),
    "a training that goes on": (_trained_into, "latest_checkpointed_iteration.txt (changed"),
    "a pipe": (_socket, "common.pt.fifo"),
    "a link": (_link, "symbolic link"),
    "a link of nothing": (_link_of_nothing, "symbolic link"),
    "a forged record": (_forged_record, "neither a conversion nor a checkpoint"),
    "tensors alone": (_tensors_alone, "neither a conversion nor a checkpoint"),
    "not what it says": (_not_what_it_says, "model.safetensors (content does not match its name)"),
    "the working directory": (_current, "working directory"),
    "above the working directory": (_above_current, ""),
    "the working directory inside": (_current_in_a_checkpoint, "contains the working directory"),
    "home": (_home, "home directory"),
    "a home that is a checkpoint": (_home_that_is_a_checkpoint, "home directory"),
    "root": (_root, ""),
    "a mount point": (_mount, "mount point"),
    "mount points inside": (_holds_mount, "mount point"),
    "a file": (_file, "not a directory"),
    "a folder that holds the source": (_holds_all, "overlap"),
}


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_not_ours_is_refused_and_another_target_that_works_is_named(
    hostile: str, here: Path, capsys: Say
) -> None:
    make, reported = HOSTILE[hostile]
    out = make(here)
    everything = snapshot(here.parent)
    for verb in VERBS:
        for more in ([], ["--overwrite"], ["--overwrite", "--no-verify"]):
            assert launch(*words_of(verb, here, out), *more) == 1, (verb, more)
            captured = capsys.readouterr().err
            assert reported in captured
            assert "--overwrite" not in captured
            assert snapshot(here.parent) == everything, (verb, more)
    free = captured.partition("works: --out ")[2].splitlines()[0].strip("'")
    assert not Path(free).exists()
    assert launch(*words_of(verb, here, free)) == 0
    if out.exists() and hostile != "a folder that holds the source":
        assert {name: data for name, data in snapshot(here.parent).items() if name in everything} == everything


SOURCES = ("hf", "mcore", "adapter")


@pytest.mark.parametrize("verb", VERBS)
def test_a_source_is_never_replaced_however_it_is_spelled(verb: str, here: Path, capsys: Say) -> None:
    read = {str(arg) for arg in words_of(verb, here, "out")}
    (here.parent / "alias").symlink_to(here)
    for source in (name for name in SOURCES if str(here / name) in read):
        everything = snapshot(here)
        for out in (
            here / source,
            here.parent / "alias" / source,
            here / source / "new",
            here / source / ".." / source,
        ):
            assert launch(*words_of(verb, here, out), "--overwrite") == 1
            assert "overlap" in capsys.readouterr().err
            assert snapshot(here) == everything


def test_a_source_whose_files_are_links_into_the_target_is_not_taken_away(here: Path, capsys: Say) -> None:
    store = here / "store"
    shutil.move(here / "hf", store)
    (here / "hf").mkdir()
    for name in ("config.json", "model.safetensors"):
        (here / "hf" / name).symlink_to(store / name)
    (store / "README.md").unlink()
    everything = snapshot(here)
    assert launch(*words_of("merge", here, store), "--overwrite") == 1
    assert "overlap" in capsys.readouterr().err
    assert snapshot(here) == everything


# --- what is replaced ---


def _ours(verb: str) -> Callable[[Path, Path], None]:
    def make(here: Path, out: Path) -> None:
        assert launch(*words_of(verb, here, out)) == 0

    return make


def _published(here: Path, out: Path) -> None:
    shutil.copytree(here / "hf", out)
    (out / "README.md").unlink()


def _without_record(here: Path, out: Path) -> None:
    shutil.copytree(here / "mcore", out)
    (out / "conversion.json").unlink()
    (out / "huggingface" / "README.md").unlink()


def _of_peft(here: Path, out: Path) -> None:
    shutil.copytree(here / "adapter", out)


def _with_links(here: Path, out: Path) -> None:
    """As a cache of the hub holds it: every file is a link."""
    out.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(here / "hf" / name, here / f"blob-{name}")
        (out / name).symlink_to(here / f"blob-{name}")


REPLACED: dict[str, Callable[[Path, Path], None]] = {
    **{f"{verb}, converted here": _ours(verb) for verb in WRITING},
    "a model": _published,
    "a checkpoint without a record": _without_record,
    "an adapter": _of_peft,
    "links": _with_links,
}


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("old", REPLACED)
def test_conversions_and_checkpoints_are_replaced_when_asked(old: str, here: Path, capsys: Say) -> None:
    out = here.parent / "out"
    REPLACED[old](here, out)
    before = snapshot(here.parent)
    for verb in ("mcore-to-hf", "reshard", "merge"):
        earlier = snapshot(out)
        capsys.readouterr()
        assert launch(*words_of(verb, here, out)) == 1
        assert "--overwrite" in capsys.readouterr().err
        assert snapshot(out) == earlier
        assert launch(*words_of(verb, here, out), "--overwrite", "--dry-run") == 0
        assert snapshot(out) == earlier
        assert launch(*words_of(verb, here, out), "--overwrite") == 0
        if verb != "merge":
            assert launch("verify", out, here / "mcore", "--model", here / "hf") == 0
    outside = {name: data for name, data in before.items() if not name.startswith(str(out))}
    after = {name: data for name, data in snapshot(here.parent).items() if not name.startswith(str(out))}
    assert after == outside


def test_without_verification_the_old_folder_is_kept_and_named(here: Path, capsys: Say) -> None:
    out = here.parent / "out"
    _published(here, out)
    old = {name.removeprefix(str(out)): data for name, data in snapshot(out).items()}
    assert launch(*words_of("reshard", here, out), "--overwrite", "--no-verify") == 0
    kept = out.with_name("out.replaced-by-convert")
    assert f"kept as {kept}" in capsys.readouterr().err
    assert {name.removeprefix(str(kept)): data for name, data in snapshot(kept).items()} == old
    assert launch(*words_of("mcore-to-hf", here, out), "--overwrite") == 0
    assert {name.removeprefix(str(kept)): data for name, data in snapshot(kept).items()} == old


def test_the_record_names_every_file_beside_it(here: Path) -> None:
    for verb in WRITING:
        out = here.parent / verb
        assert launch(*words_of(verb, here, out)) == 0
        files = json.loads((out / "conversion.json").read_text())["files"]
        found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
        assert set(files) == found - {"conversion.json"}
        assert all(files[name]["bytes"] == (out / name).stat().st_size for name in files)


# --- ends in between ---


def _is_whole(folder: Path, here: Path, capsys: Say) -> bool:
    if not folder.is_dir():
        return False
    code = launch("verify", folder, here / "mcore", "--model", here / "hf")
    capsys.readouterr()
    return code == 0


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_a_random_change_the_old_or_the_new_is_whole(seed: int, here: Path, capsys: Say) -> None:
    chance = random.Random(seed)
    out = here.parent / "area" / "out"
    out.parent.mkdir()
    assert launch(*words_of("reshard", here, out)) == 0
    for _ in range(8):
        number = chance.randrange(5, 70)
        ended_at(number, lambda: launch(*words_of("mcore-to-hf", here, out), "--overwrite", "--workers", "1"))
        beside = sorted(out.parent.iterdir())
        assert any(_is_whole(folder, here, capsys) for folder in beside), (number, beside)
    assert launch(*words_of("mcore-to-hf", here, out), "--overwrite") == 0
    assert _is_whole(out, here, capsys)
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal_at_any_time_the_old_or_the_new_is_whole(signal_number: int, here: Path, capsys: Say) -> None:
    chance = random.Random(signal_number)
    out = here.parent / "area" / "out"
    out.parent.mkdir()
    assert launch(*words_of("reshard", here, out)) == 0
    args = [str(arg) for arg in (*words_of("mcore-to-hf", here, out), "--overwrite")]
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-m", "launcher", "convert", *args], stdout=subprocess.DEVNULL)
        try:
            process.wait(chance.uniform(0.1, 1.2))
        except subprocess.TimeoutExpired:
            process.send_signal(signal_number)
        process.wait(timeout=STUCK_SECONDS)
        beside = sorted(out.parent.iterdir())
        assert any(_is_whole(folder, here, capsys) for folder in beside), beside
    assert launch(*words_of("mcore-to-hf", here, out), "--overwrite") == 0
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.slow
def test_an_old_folder_that_an_interrupted_start_moved_aside_is_back_and_reported(here: Path, capsys: Say) -> None:
    old, area = here.parent / "old", here.parent / "area"
    assert launch(*words_of("reshard", here, old)) == 0
    for number in range(200):
        shutil.rmtree(area, ignore_errors=True)
        area.mkdir()
        out = Path(shutil.copytree(old, area / "out"))
        ended_at(number, lambda out=out: launch(*words_of("mcore-to-hf", here, out), "--overwrite", "--workers", "1"))
        if not out.exists():
            break
    assert not out.exists()
    before = {name.removeprefix(str(old)): data for name, data in snapshot(old).items()}
    capsys.readouterr()
    assert launch(*words_of("mcore-to-hf", here, out)) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert {name.removeprefix(str(out)): data for name, data in snapshot(out).items()} == before
    assert launch(*words_of("mcore-to-hf", here, out), "--overwrite") == 0
    assert [path.name for path in area.iterdir()] == ["out"]


@pytest.mark.parametrize("verb", ["hf-to-mcore", "merge"])
def test_a_refused_start_removes_the_journal_of_one_that_was_killed_at_its_end(verb: str, here: Path) -> None:
    """Killed between the last rename and the removal of its journal, which then describes nothing."""
    assert launch(*words_of(verb, here, "out")) == 0
    finished = Journal(Path("out.partial.journal"))
    finished.restart("digest")
    finished.close()
    unfinished = Journal(Path("other.partial.journal"))
    unfinished.restart("digest")
    unfinished.close()
    shutil.copytree("out", "other")
    Path("other.partial").mkdir()
    for out in ("out", "other"):
        assert launch(*words_of(verb, here, out)) == 1
    assert sorted(path.name for path in Path().iterdir()) == ["other", "other.partial", "other.partial.journal", "out"]

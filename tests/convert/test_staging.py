"""A conversion that is killed, refused or out of space leaves the target as it was, and the next start completes it."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import Unwritable
from launcher.convert.staging import Staging
from tests.conftest import ROOT
from tests.convert.containers import bytes_of
from tests.convert.containers.converting import TENSORS
from tests.waiting import STUCK_SECONDS

COMMAND = [sys.executable, "-m", "tests.convert.containers.converting"]


def start(target: Path, *options: str, within: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*within, *COMMAND, str(target), *options], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=STUCK_SECONDS)
    return process.returncode, out, err


def complete(target: Path) -> bool:
    slots = safetensors.read(target).slots
    return len(slots) == len(TENSORS) and all(bytes_of.stored(slot) == bytes_of.expected(slot) for slot in slots)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "there" / "out"


def test_the_result_appears_whole_and_leaves_nothing_beside_it(target):
    code, out, err = finish(start(target, "space"))
    assert (code, err) == (0, "")
    assert json.loads(out) == {"moved": 60}
    assert complete(target)
    assert [path.name for path in target.parent.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_nothing_is_lost_and_the_next_start_completes(target, seed):
    """The target's name shows nothing until everything is there; what was finished is not moved again."""
    chance = random.Random(seed)
    for _ in range(12):
        process = start(target, "slow")
        time.sleep(chance.uniform(0.05, 0.5))
        process.kill()
        code, _, _ = finish(process)
        if code == 0 or target.exists():
            break
    if not target.exists():
        code, _, err = finish(start(target))
        assert (code, err) == (0, "")
    assert complete(target)
    assert not (target.parent / "out.partial").exists()


def test_what_was_finished_is_not_moved_again(target):
    process = start(target, "slow")
    journal = target.parent / "out.partial.journal"
    while not journal.exists() or journal.read_bytes().count(b"done") < 10:
        time.sleep(0.01)
    process.kill()
    finish(process)
    assert not target.exists()
    code, out, _ = finish(start(target))
    assert code == 0
    assert json.loads(out)["moved"] <= 50
    assert complete(target)


@pytest.mark.slow
def test_killed_while_overwriting_the_old_result_stays(target):
    target.mkdir(parents=True)
    (target / "old").write_text("precious")
    for seed in range(5):
        process = start(target, "slow", "overwrite")
        time.sleep(random.Random(seed).uniform(0.1, 0.5))
        process.kill()
        finish(process)
        assert (target / "old").exists() or complete(target)
    assert finish(start(target, "overwrite"))[0] == 0
    assert complete(target)
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_a_target_that_holds_something_is_refused_and_stays(target):
    target.mkdir(parents=True)
    (target / "mine").touch()
    for options in ((), ("overwrite",)):
        code, _, err = finish(start(target, *options))
        assert code == 1
        assert f"refused: {target}: " in err
        assert "mine" in err
        assert "--overwrite" not in err
        assert f"--out {target}-2" in err
        assert sorted(path.name for path in target.parent.iterdir()) == ["out"]


IN_THE_WAY = {
    "a file": (lambda target: target.write_text("x"), "not a directory"),
    "a partial directory of somebody": (
        lambda target: target.with_name("out.partial").mkdir(),
        "was not left by a conversion",
    ),
    "a journal of somebody": (
        lambda target: target.with_name("out.partial.journal").write_text("diary"),
        "was not left by a conversion",
    ),
    "a journal that is a link": (lambda target: _link(target, "out.partial.journal"), "cannot be created"),
    "a partial directory that is a link": (lambda target: _link(target, "out.partial"), "was not left by a conversion"),
    "the target is a link": (lambda target: _link(target, "out"), "symbolic link"),
    "a dangling link": (lambda target: target.symlink_to("nowhere"), "symbolic link"),
}


def _link(target: Path, name: str) -> None:
    other = target.with_name("other")
    other.mkdir()
    target.with_name(name).symlink_to(other)


@pytest.mark.parametrize("make, message", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_the_way_is_named_and_stays(target, make, message):
    target.parent.mkdir()
    make(target)
    before = sorted(target.parent.iterdir())
    with pytest.raises(Unwritable, match=message):
        Staging(target, digest="plan")
    assert sorted(target.parent.iterdir()) == before


def test_an_empty_target_is_used(target):
    target.mkdir(parents=True)
    assert finish(start(target))[0] == 0
    assert complete(target)


def test_two_conversions_do_not_write_the_same_target(target):
    with Staging(target, digest="plan") as place:
        place.laid_out([])
        code, _, err = finish(start(target))
        assert (code, "another conversion is writing" in err) == (1, True)
        assert place.directory.is_dir()


def test_another_plan_starts_again(target):
    with Staging(target, digest="one") as place:
        place.laid_out({"files": 1})
        (place.directory / "file").touch()
        place.finish(["a"])
    with Staging(target, digest="two") as place:
        assert (place.resumed, place.finished, place.layout) == (False, frozenset(), None)
        assert list(place.directory.iterdir()) == []


def test_a_refusal_before_anything_is_written_leaves_nothing(target):
    with pytest.raises(Unwritable, match="not enough space"), Staging(target, digest="plan") as place:
        place.check_space(10**18, 1)
    assert list(target.parent.iterdir()) == []


def test_the_space_is_named_in_both_numbers(target):
    with pytest.raises(Unwritable, match=r"expected 1000000000\.00 GB .*, found \d+\.\d\d GB free"):
        Staging(target, digest="plan").check_space(10**18, 1)


def test_after_a_restart_of_the_machine_only_what_was_flushed_counts(target):
    with Staging(target, digest="plan") as place:
        place.laid_out([])
        place.finish(["flushed"])
        place.sync()
        place.finish(["only written"])
    with Staging(target, digest="plan") as place:
        assert place.finished == {"flushed", "only written"}
    journal = target.with_name("out.partial.journal")
    text = journal.read_text()
    boot = json.loads(text.splitlines()[0])["boot"]
    journal.write_text(text.replace(boot, "x" * len(boot)))
    with Staging(target, digest="plan") as place:
        assert place.finished == {"flushed"}
    with Staging(target, digest="plan") as place:
        assert place.finished == {"flushed"}


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_torn_journal_is_continued_at_its_last_whole_line(target, cut):
    with Staging(target, digest="plan") as place:
        place.laid_out([])
        place.finish(["a"])
        place.finish(["b"])
    journal = target.with_name("out.partial.journal")
    journal.write_bytes(journal.read_bytes()[:-cut])
    with Staging(target, digest="plan") as place:
        assert place.finished in ({"a"}, frozenset())
        place.finish(["c"])
    with Staging(target, digest="plan") as place:
        assert "c" in place.finished


def small_disk(folder: Path, options: str) -> tuple[str, ...]:
    """Words that run a command with a small file system of its own at `folder`; skips where none can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = f'mount -t tmpfs -o {options} none {folder} && exec "$@"'
    for args in (("unshare", "-m"), ("unshare", "-rm")):
        within = (*args, "sh", "-c", mount, "sh")
        if (
            shutil.which("unshare")
            and subprocess.run([*within, "true"], capture_output=True, check=False).returncode == 0
        ):
            return within
    pytest.skip("no file system can be mounted here")


def test_a_disk_without_the_space_is_refused_before_anything_is_written(target):
    within = small_disk(target.parent, "size=200k")
    code, _, err = finish(start(target, "space", within=within))
    assert code == 1
    assert "not enough space" in err
    assert "300000 bytes" in err


def test_a_disk_without_inodes_is_refused(target):
    within = small_disk(target.parent, "size=10m,nr_inodes=6")
    code, _, err = finish(start(target, "space", within=within))
    assert code == 1
    assert "not enough inodes" in err


def test_a_disk_that_fills_up_ends_in_a_message_not_in_a_target(target):
    within = small_disk(target.parent, "size=200k")
    script = f'"$@"; code=$?; ls {target.parent}; exit $code'
    code, out, err = finish(start(target, within=(*within, "sh", "-c", script, "sh")))
    assert code == 1
    assert "No space left" in err
    assert "Traceback" not in err
    assert "continues where it stopped" in err
    assert out.split() == ["out.partial", "out.partial.journal"]


def test_a_limit_on_file_sizes_ends_in_a_message(target):
    code, _, err = finish(start(target, within=("prlimit", "--fsize=20000")))
    assert code == 1
    assert "Traceback" not in err
    assert "File too large" in err
    assert "ulimit -f" in err
    assert not target.exists()


def test_a_hole_that_a_full_memory_file_system_cannot_show_is_not_a_damaged_file(target):
    within = small_disk(target.parent, "size=64k")
    script = f"""
import os
from pathlib import Path
from launcher.convert.containers.transfer import OpenFiles
file = Path({str(target)!r})
os.close(os.open(file, os.O_CREAT | os.O_RDWR))
os.truncate(file, 2**20)
with OpenFiles() as files:
    files.load(file, 0, 2**20)
"""
    done = subprocess.run([*within, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "its holes cannot be read: No space left on device" in done.stderr
    assert "more space on this file system" in done.stderr

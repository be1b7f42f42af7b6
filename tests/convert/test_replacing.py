"""Overwriting is killed at each of its file operations: the old or the new is whole, and the next start ends it."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.convert.containers.errors import Unwritable
from launcher.convert.staging import Staging
from launcher.outputs.contents import Contents, Known, contents_of

pytestmark = pytest.mark.slow

# Audit events of everything that changes a folder (docs.python.org/3/library/audit_events.html).
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
OLD = {"a": "old a", "b": "old b", "deep/c": "old c"}
NEW = {"a": "new a", "d": "new d"}


def judge(folder: Path) -> Contents:
    return contents_of(folder, "a result", Known(patterns=("a", "b", "d", "deep/c")))


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def held(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def replace(target: Path, *, proven: bool = True, meanwhile: Callable[[], None] = lambda: None) -> Path | None:
    with Staging(target, digest="plan", overwrite=True, judge=judge) as place:
        if place.layout is None:
            put(place.directory, NEW)
            place.laid_out([])
        meanwhile()
        place.publish(proven=proven)
    return place.kept


def ended_at(number: int, body: Callable[[], object], *, interrupted: bool = False) -> bool:
    """Run a body in a child that is killed (or interrupted as by Ctrl-C) at its change of that number.

    Tell whether it came to its end.
    """
    child = os.fork()
    if child == 0:
        left = number

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if event in CHANGES or writes:
                left -= 1
                if left == -1 and interrupted:
                    raise KeyboardInterrupt
                if left == -1:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            body()
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, 130)
    return status == 0


def whole(parent: Path) -> list[str]:
    """Names of the folders that hold all of the old or all of the new files."""
    return [folder.name for folder in sorted(parent.iterdir()) if folder.is_dir() and held(folder) in (OLD, NEW)]


@pytest.mark.parametrize("interrupted", [False, True], ids=["killed", "interrupted"])
@pytest.mark.parametrize("proven", [True, False], ids=["verified", "not verified"])
def test_ended_at_each_change_the_old_or_the_new_is_whole_and_the_next_start_ends_it(tmp_path, proven, interrupted):
    for number in range(200):
        parent = tmp_path / str(number)
        target = parent / "out"
        put(target, OLD)
        over = ended_at(number, lambda target=target: replace(target, proven=proven), interrupted=interrupted)
        here = whole(parent)
        assert here, f"change {number}: {sorted(parent.rglob('*'))}"
        if not target.exists():
            assert "out.replaced-by-convert" in here
        replace(target, proven=proven)
        assert held(target) == NEW
        beside = [path.name for path in parent.iterdir() if path != target]
        kept = [held(parent / name) for name in beside]
        # A start after the end replaces the new folder by itself, and keeps that one, too.
        assert kept == [] if proven else OLD in kept and all(files in (OLD, NEW) for files in kept)
        if over:
            assert number > 8
            return
    raise AssertionError("it does not end")


def convert(target: Path) -> None:
    """Convert to a target that does not exist; nothing is replaced."""
    with Staging(target, digest="plan", judge=judge) as place:
        if place.layout is None:
            put(place.directory, NEW)
            place.laid_out([])
        place.publish()


@pytest.mark.parametrize("interrupted", [False, True], ids=["killed", "interrupted"])
def test_ended_at_each_change_nothing_is_left_beside_the_result_of_the_next_start(tmp_path, interrupted):
    """Also where it ended after the last rename: then the next start refuses the target and removes the journal."""
    refused = 0
    for number in range(200):
        target = tmp_path / str(number) / "out"
        over = ended_at(number, lambda target=target: convert(target), interrupted=interrupted)
        if target.exists():
            refused += not over
            with pytest.raises(Unwritable, match="not empty"):
                convert(target)
        else:
            convert(target)
        assert held(target) == NEW
        assert [path.name for path in target.parent.iterdir()] == ["out"]
        if over:
            assert refused
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("interrupted", [False, True], ids=["killed", "interrupted"])
def test_a_result_that_is_being_discarded_is_not_continued(tmp_path, interrupted):
    def discarded(target: Path) -> None:
        with Staging(target, digest="plan") as place:
            put(place.directory, NEW)
            place.laid_out([])
            place.finish(NEW)
            place.discard()

    for number in range(200):
        target = tmp_path / str(number) / "out"
        over = ended_at(number, lambda target=target: discarded(target), interrupted=interrupted)
        with Staging(target, digest="plan") as place:
            assert not place.finished or held(place.directory) == NEW
        if over:
            return
    raise AssertionError("it does not end")


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_killed_twice_nothing_is_lost(tmp_path, seed):
    """The second start is killed, too: in what it does to recover."""
    chance = random.Random(seed)
    for attempt in range(8):
        parent = tmp_path / str(attempt)
        target = parent / "out"
        put(target, OLD)
        numbers = chance.randrange(8, 40), chance.randrange(1, 20)
        for number in numbers:
            ended_at(number, lambda target=target: replace(target))
            assert whole(parent), numbers
        replace(target)
        assert held(target) == NEW
        assert [path.name for path in parent.iterdir()] == ["out"]


def test_what_was_put_there_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "out"
    put(target, OLD)
    with pytest.raises(Unwritable, match=r"notes\.txt"):
        replace(target, meanwhile=lambda: put(target, {"notes.txt": "mine"}))
    assert held(target) == {**OLD, "notes.txt": "mine"}


def test_without_proof_the_old_folder_is_kept_under_a_free_name(tmp_path):
    target = tmp_path / "out"
    put(target, OLD)
    put(tmp_path / "out.replaced-by-convert", {"a": "of the user"})
    kept = replace(target, proven=False)
    assert kept is not None
    assert (held(target), held(kept)) == (NEW, OLD)
    assert held(tmp_path / "out.replaced-by-convert") == {"a": "of the user"}
    replace(target)
    assert (held(target), held(kept)) == (NEW, OLD)


def test_links_are_unlinked_and_never_followed(tmp_path):
    target, outside = tmp_path / "out", tmp_path / "outside"
    put(target, {"b": "old b"})
    put(outside, {"c": "mine"})
    (target / "a").symlink_to(outside / "c")
    (target / "deep").mkdir()
    (target / "deep" / "c").symlink_to(outside)
    assert replace(target) is None
    assert held(target) == NEW
    assert held(outside) == {"c": "mine"}


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path):
    target = tmp_path / "out"
    put(target, OLD)
    with Staging(target, digest="plan", overwrite=True, judge=judge) as place:
        put(place.directory, NEW)
        place.laid_out([])
        place.sync = lambda paths=None: os.rename(place.directory, tmp_path / "elsewhere")  # type: ignore[method-assign]
        with pytest.raises(Unwritable, match="cannot be replaced"):
            place.publish()
    assert held(target) == OLD

"""What a folder holds, and what is removed with it: entries that belong, one by one, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.outputs.contents import Known, contents_of, remove
from launcher.outputs.free import free_path
from launcher.outputs.protected import located, overlap, reason_against

KNOWN = Known(
    patterns=("model.bin", "part-*.bin", "deep/*.bin", "deep/er/x.bin"), valid=lambda path: path.stat().st_size < 9
)
NAMES = st.sampled_from(
    ["model.bin", "part-1.bin", "x.bin", "deep", "er", "notes.txt", ".git", "MODEL.BIN", "part-\n.bin"]
)
KINDS = st.sampled_from(["file", "large", "folder", "link", "link of nothing", "link of a folder", "pipe"])


def build(folder: Path, outside: Path, entries: list[tuple[list[str], str]]) -> None:
    for names, kind in entries:
        path = folder.joinpath(*names)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            {
                "file": lambda path=path: path.open("x").write("mine"),
                "large": lambda path=path: path.open("x").write("mine, and more"),
                "folder": lambda path=path: path.mkdir(),
                "link": lambda path=path: path.symlink_to(outside / "kept"),
                "link of nothing": lambda path=path: path.symlink_to(outside / "nowhere"),
                "link of a folder": lambda path=path: path.symlink_to(outside),
                "pipe": lambda path=path: os.mkfifo(path),
            }[kind]()
        except OSError:
            continue  # an entry before is in the way


def leaves(folder: Path) -> set[str]:
    found = set()
    for where, folders, files in os.walk(folder):
        names = [*files, *(name for name in folders if os.path.islink(os.path.join(where, name)))]
        found |= {os.path.relpath(os.path.join(where, name), folder) for name in names}
    return found


@given(entries=st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), KINDS), max_size=8), late=st.booleans())
def test_nothing_is_removed_but_what_belongs(tmp_path_factory, entries, late):
    root = tmp_path_factory.mktemp("any")
    folder, outside = root / "folder", root / "outside"
    for each in (folder, outside):
        each.mkdir()
    (outside / "kept").write_text("precious")
    build(folder, outside, entries)
    before = leaves(folder)
    found = contents_of(folder, "a thing", KNOWN)
    if not found.replaceable:
        assert found.foreign
        assert leaves(folder) == before
        return
    for name in before:
        path = folder / name
        assert path.is_symlink() or path.stat().st_size < 9
        assert name == "model.bin" or name.endswith(".bin")
    if late:
        (folder / "added since").write_text("mine")
    gone = remove(folder, found.entries)
    assert gone is not late
    assert leaves(folder) == ({"added since"} if late else set())
    assert (outside / "kept").read_text() == "precious"
    assert leaves(outside) == {"kept"}


PLACES = {
    "the working directory": ".",
    "the working directory, spelled otherwise": "inner/..",
    "its parent": "..",
    "root": "/",
    "a mount point": "/proc",
    "what holds mount points": "/dev",
    "home": "~",
    "a link": "link",
    "a link with a slash": "link/",
    "a link of nothing": "dangling",
    "a work tree": "checkout",
    "a work tree of another": "worktree",
    "a bare repository": "bare",
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    for name in ("work/inner", "home", "work/checkout/.git", "work/worktree", "work/bare/objects", "work/bare/refs"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    work = tmp_path / "work"
    (work / "worktree" / ".git").write_text("gitdir: elsewhere")
    (work / "bare" / "HEAD").write_text("ref: refs/heads/main")
    (work / "link").symlink_to("inner")
    (work / "dangling").symlink_to("nowhere")
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return work


@pytest.mark.parametrize("place", PLACES)
def test_places_are_protected_and_a_free_path_is_not_one(work, place):
    path = Path(PLACES[place]).expanduser()
    assert reason_against(located(path))
    free = free_path(path)
    assert free is not None
    assert not os.path.lexists(free)
    free.mkdir()
    assert reason_against(located(free)) is None


def test_an_ordinary_folder_is_not_protected_also_below_a_link(work):
    assert reason_against(located(Path("inner"))) is None
    assert reason_against(located(Path("link/new"))) is None
    assert located(Path("link/new")) == work / "inner" / "new"


def test_an_overlap_is_found_through_links_and_names(work):
    source = work / "source"
    (source / "deep").mkdir(parents=True)
    (work / "alias").symlink_to(work)
    for out in ("source", "alias/source", "source/new", "source/deep", "alias/source/deep/new", ".", ".."):
        assert overlap(Path(os.path.realpath(out)), [("it", source)]) == ("it", source), out
    for out in ("source-2", "alias/new", "inner"):
        assert overlap(Path(os.path.realpath(out)), [("it", source)]) is None, out

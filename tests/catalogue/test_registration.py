"""A new version is registered once nothing is unsettled; what is left is named, and the default version stays."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.catalogue.registered import registered
from launcher.mapping import backend as backends
from launcher.mapping.backend import BUILT_IN, Backend, get_backend
from launcher.mapping.engine import fields_of_flags
from tests.mapping.test_default_version import NEW_ARGUMENT, with_newer
from tools.catalogue import __main__ as command
from tools.catalogue import changes, facts, register
from tools.catalogue.evidence import Tree
from tools.catalogue.sources import Place, index
from tools.catalogue.unsettled import unsettled

ROOT = Path(__file__).resolve().parents[2] / "backends"
FILE = register.rendered(
    {
        "upstream": {"newest": "2.1.0", "released": "2026-02-01", "seen": "2026-03-01"},
        "tag": "v{}",
        "versions": [{"name": "2.1.0"}, {"name": "1.0.2"}, {"name": "master"}],
    }
)


@pytest.mark.parametrize("backend", BUILT_IN)
def test_every_catalogue_is_registered_and_every_version_has_one(backend: str) -> None:
    found = get_backend(backend)
    files = {path.stem for path in (ROOT / backend / "catalogue").glob("*.json")}
    assert files == {*found.versions, *found.other_entries}
    assert found.versions == registered(ROOT / backend / "versions.json").names
    assert found.default_version in found.versions


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("3.0.0", ["3.0.0", "2.1.0", "1.0.2", "master"]),
        ("1.1.0", ["2.1.0", "1.1.0", "1.0.2", "master"]),
        ("1.0.0-dev", ["2.1.0", "1.0.2", "1.0.0-dev", "master"]),
        ("next", ["2.1.0", "1.0.2", "master", "next"]),
        ("2.1.0", ["2.1.0", "1.0.2", "master"]),
    ],
)
def test_versions_are_entered_newest_first_and_branches_last(name: str, order: list[str]) -> None:
    after = json.loads(register.entered(FILE, {"name": name, "released": "2026-05-01"}, "2026-06-01"))
    assert [row["name"] for row in after["versions"]] == order
    assert after["upstream"]["newest"] == ("3.0.0" if name == "3.0.0" else "2.1.0")


def test_a_release_that_accepts_the_same_is_another_spelling(tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    file.write_text(register.made_equal(FILE, {"name": "2.1.1", "released": "2026-05-01"}, "2.1.0", "2026-06-01"))
    assert json.loads(file.read_text())["upstream"] == {
        "newest": "2.1.1",
        "released": "2026-05-01",
        "seen": "2026-06-01",
    }
    found = registered(file)
    assert found.names == ("2.1.0", "1.0.2", "master")
    assert found.aliases == {
        "2.1": "2.1.0", "v2.1.0": "2.1.0", "v2.1.1": "2.1.0", "2.1.1": "2.1.0", "1.0": "1.0.2", "v1.0.2": "1.0.2",
    }  # fmt: skip


def test_a_version_that_is_read_again_keeps_its_other_spellings() -> None:
    once = register.made_equal(FILE, {"name": "2.1.1", "released": "2026-05-01"}, "2.1.0", "2026-06-01")
    again = register.entered(once, {"name": "2.1.0", "released": "2026-02-01"}, "2026-06-02")
    assert json.loads(again)["versions"][0] == {"name": "2.1.0", "equal": ["2.1.1"], "released": "2026-02-01"}


@pytest.mark.parametrize("stop", [False, KeyboardInterrupt], ids=["unsettled", "interrupted"])
def test_a_version_that_is_not_registered_leaves_no_trace(
    stop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "megatron"
    (folder / "catalogue").mkdir(parents=True)
    (folder / "versions.json").write_text(FILE)
    (folder / "renames.json").write_text("renames")
    (folder / "registered_names.json").write_text("names")
    before = {path: path.read_text() for path in folder.glob("*.json")}
    monkeypatch.setattr(register, "BACKENDS", tmp_path)

    def entered(*_args: Any) -> bool:
        for path in (*before, folder / "catalogue" / "3.0.0.json"):
            path.write_text("of 3.0.0")
        if stop:
            raise stop
        return False

    monkeypatch.setattr(command, "_entered", entered)
    with pytest.raises(stop) if stop else contextlib.nullcontext():
        assert command._register("megatron", {"name": "3.0.0", "released": "2026-05-01"}, {}, lambda: None) == 1
    assert {path: path.read_text() for path in folder.rglob("*.json")} == before


def test_a_catalogue_of_mindformers_without_mindspore_is_refused(tmp_path: Path) -> None:
    """It would lack the keys of `context` that MindSpore declares, and be registered."""
    for more in ([], ["--mindspore", str(tmp_path)]):
        with pytest.raises(SystemExit, match="no mindspore/context.py" if more else "--mindspore is not given"):
            command.main(["mindformers", "--version", "2.0.0", *more])


def test_no_backend_is_imported_before_the_version_is_entered() -> None:
    """One that is would be judged without the version."""
    code = "import sys, tools.catalogue.__main__; sys.exit(str([m for m in sys.modules if m.startswith('backends.')]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("version", "around"),
    [("3.0", ("2.1.0", "master")), ("1.0", (None, "1.0.2")), ("2.1.0", ("1.0.2", "master")), ("dev", ("2.1.0", None))],
)
def test_neighbours_are_the_versions_before_and_after(version: str, around: tuple[str | None, str | None]) -> None:
    known = ["2.1.0", "1.0.2"] if version == "dev" else ["2.1.0", "1.0.2", "master"]
    assert register.neighbours(known, version) == around


def made(*arguments: Argument) -> Catalogue:
    return Catalogue(backend="b", version="1", style="argparse", arguments=arguments)


def test_differences_between_two_catalogues_are_named_by_kind() -> None:
    old = made(
        Argument(name="same", dest="same", help="one"),
        Argument(name="old-name", dest="old_name"),
        Argument(name="dropped", dest="dropped"),
        Argument(name="size", dest="size", type="int", default=1, has_default=True),
    )
    new = made(
        Argument(name="same", dest="same", help="another"),
        Argument(name="new-name", dest="new_name"),
        Argument(name="size", dest="size", type="float", default=2, has_default=True),
    )
    found = changes.changes(old, new, {"old_name": {"new": "new_name"}})
    assert [(each.what, each.name, each.says) for each in found] == [
        ("new", "new-name", ""),
        ("gone", "dropped", ""),
        ("renamed", "old-name", "new_name"),
        ("default", "size", "1 -> 2"),
        ("declared", "size", "type 'int' -> 'float'"),
    ]


@pytest.fixture
def candidate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Megatron-LM with a newer version: one more argument, and one less."""
    import backends.megatron_lm as module

    newer = with_newer(module.BACKEND)
    whole = newer.catalogue("99.0")
    kept = tuple(each for each in whole.arguments if each.name != "seq-length")
    less = dataclasses.replace(whole, arguments=kept, _index={}, _by_dest={})
    found = dataclasses.replace(
        newer, catalogue=lambda version: less if version == "99.0" else newer.catalogue(version)
    )
    monkeypatch.setattr(module, "BACKEND", found)
    for cached in (backends.get_backend, fields_of_flags):
        cached.cache_clear()
    yield get_backend("megatron_lm")
    for cached in (backends.get_backend, fields_of_flags):
        cached.cache_clear()


def test_what_is_unsettled_is_named_with_its_place(candidate: Backend) -> None:
    found = unsettled(candidate, "99.0", ("0.16.1", None), None)
    assert {line.partition(":")[0].partition(" (")[0] for line in found} >= {
        f"argument {NEW_ARGUMENT}",
        "row batch.seq_length",
        "gone seq-length",
    }
    assert all("backends/megatron_lm" in line or "renames.json" in line for line in found)


LINES = "def check(self):\n    assert self.x > 0\n"
SOURCE = "ms-swift 9.9 a.py:2"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        pytest.param(LINES, True, id="there"),
        pytest.param(f"# moved\n\n{LINES}", True, id="at another line"),
        pytest.param(LINES.replace("> 0", ">= 0"), False, id="reworded"),
        pytest.param(LINES.replace("check", "other"), False, id="in another function"),
    ],
)
def test_a_checkout_has_the_line_that_a_rule_names_or_not(
    text: str, holds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, content in (("named", LINES), ("new", text)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text(content)
    known = index(
        [Place(project="ms-swift", version="9.9", path="a.py", line=2)], {"ms-swift@9.9": tmp_path / "named"}, {}
    )
    tree = Tree("ms-swift", tmp_path / "new", known["files"])
    assert tree.evidence(SOURCE).holds is holds
    assert tree.evidence("megatron-core 0.16.1 transformer_config.py:1").holds is None


@pytest.mark.parametrize(
    ("at", "evidence", "decided"),
    [(("", "", "holds"), True, False), (("", "holds", "holds"), True, True), (("holds", "", ""), None, False)],
)
def test_a_bound_between_neighbours_is_decided_by_the_source(
    at: tuple[str, str, str], evidence: bool | None, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = dict(zip(("1", "2", "3"), at, strict=True))
    fact = facts.Fact(name="rule A", holds=said.__getitem__, source=SOURCE)
    monkeypatch.setattr(facts, "facts", lambda backend: [fact])
    tree: Any = SimpleNamespace(evidence=lambda source: SimpleNamespace(holds=evidence))
    (found,) = facts.open_facts(get_backend("megatron_lm"), "2", ("1", "3"), tree)
    assert found.is_decided is decided

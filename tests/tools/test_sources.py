"""Sources of rules name upstream lines that exist: the committed index knows each, with the text that it had."""

import json
import re
from pathlib import Path

import pytest

from tools.catalogue.sources import INDEX, Checkout, Place, digest, index, places, sources

MEMBERS = json.loads(INDEX.read_text(encoding="utf-8"))
_LINE = re.compile(r"\.py ?:\d")
CASES = {
    "one line": ("ms-swift 4.6.0 a/b.py:7, when training starts", "ms-swift 4.6.0 a/b.py 7"),
    "two projects": (
        "MindSpeed 26.1.0 f.py:1; MindSpeed-LLM 2.1.0 g.py:2",
        "MindSpeed 26.1.0 f.py 1, MindSpeed-LLM 2.1.0 g.py 2",
    ),
    "a tag is a version": ("Megatron-LM core_v0.12.1 arguments.py:684", "Megatron-LM 0.12.1 arguments.py 684"),
    "megatron-core is Megatron-LM": ("megatron-core 0.16.1 t.py:5", "Megatron-LM 0.16.1 t.py 5"),
    "ranges and lists": (
        "mindformers 1.6.0 x.py:6-8,3",
        "mindformers 1.6.0 x.py 6, mindformers 1.6.0 x.py 8, mindformers 1.6.0 x.py 3",
    ),
    "another version of the file": (
        "ms-swift 3.12.6 m.py:61, 4.0.0 :56",
        "ms-swift 3.12.6 m.py 61, ms-swift 4.0.0 m.py 56",
    ),
    "the version behind": (
        "swift/a.py:1 @4.6.0; megatron/b.py:2 @core_v0.16.1",
        "ms-swift 4.6.0 swift/a.py 1, Megatron-LM 0.16.1 megatron/b.py 2",
    ),
    "no line": ("Megatron-LM arguments.py validate_args", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_source_is_read(name: str) -> None:
    source, expected = CASES[name]
    found = [f"{each.project} {each.version} {each.path} {each.line}" for each in places(source)]
    assert ", ".join(found) == expected


def test_every_line_that_a_rule_names_is_in_the_index() -> None:
    files = MEMBERS["files"]
    for what, source in sources().items():
        for place in places(source):
            entry = files.get(f"{place.project} {place.version} {place.path}", {"lines": {}})
            command = f"python -m tools.catalogue.sources --source {place.project}@{place.version}=FOLDER"
            assert str(place.line) in entry["lines"], (
                f"{what}: {place.path}:{place.line} is not in the index: {command}"
            )


def test_every_source_with_a_line_names_project_and_version() -> None:
    assert [what for what, source in sources().items() if _LINE.search(source) and not list(places(source))] == []


def test_nothing_is_missing_upstream() -> None:
    assert MEMBERS["missing"] == {}
    assert [what for what, held in MEMBERS["catalogues"].items() if held == "missing"] == []


def test_the_index_is_small() -> None:
    assert INDEX.stat().st_size < 300_000


def test_a_line_is_kept_with_what_is_around_it_and_a_wrong_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "swift").mkdir()
    (tmp_path / "swift" / "a.py").write_text("class One:\n    def two(self):\n        assert self.x > 0\n")
    lines = (("a.py", 3), ("a.py", 4), ("b.py", 1))
    wanted = [Place(project="ms-swift", version="9.9", path=path, line=line) for path, line in lines]
    assert index([Place(project="ms-swift", version="9.8", path="a.py", line=3)], {}, {})["missing"] == {
        "ms-swift 9.8": "no checkout"
    }
    found = index(wanted, {"ms-swift@9.9": tmp_path}, {})
    assert found["files"] == {
        "ms-swift 9.9 a.py": {"file": "swift/a.py", "lines": {"3": f"two {digest('assert self.x > 0')}"}}
    }
    assert found["missing"] == {"ms-swift 9.9 a.py:4": "the file has 3 lines", "ms-swift 9.9 b.py": "no such file"}


def test_a_file_without_folder_is_the_trainers_own(tmp_path: Path) -> None:
    for name in ("tools/arguments.py", "megatron/training/arguments.py", "megatron/legacy/arguments.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert Checkout(tmp_path, "").file("arguments.py") == "megatron/training/arguments.py"
    assert Checkout(tmp_path, "").file("training/arguments.py") == "megatron/training/arguments.py"


def test_a_project_without_a_checkout_keeps_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def one():\n    pass\n")
    kept, new = (Place(project=project, version="9.9", path="a.py", line=2) for project in ("MindSpeed", "ms-swift"))
    before = index([kept], {"MindSpeed@9.9": tmp_path}, {})
    both = index([kept, new], {"ms-swift@9.9": tmp_path}, before)
    assert both["files"].keys() == {"MindSpeed 9.9 a.py", "ms-swift 9.9 a.py"}
    assert both["files"]["MindSpeed 9.9 a.py"] == before["files"]["MindSpeed 9.9 a.py"]
    assert both["missing"] == {}

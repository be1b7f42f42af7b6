"""The catalogue tools on small sources of our own: they must read what Python and the parsers would."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue.catalogue import from_json
from launcher.catalogue.checkout import hf_parser
from launcher.catalogue.checkout.classes import Package, Unknown, dataclass_fields, evaluate
from tools.catalogue import __main__ as command_line
from tools.catalogue import launchers, megatron_swift, renames
from tools.catalogue.recorder import Recorder
from tools.catalogue.writer import render

CLASSES = """
from dataclasses import dataclass, field
from typing import ClassVar, Dict, List, Literal, Optional, Union
import os

LIMIT = 4 * 1024

@dataclass
class Base:
    size: int = LIMIT
    shared: str = "base"
    hidden: int = field(init=False, default=3)
    KIND: ClassVar[str] = "x"

class Plain:
    not_a_field: int = 1

@dataclass
class Mixin:
    shared: str = "mixin"
    modules: List[str] = field(default_factory=lambda: ["all"])

@dataclass
class Train(Mixin, Base, Plain):
    size: int = 7
    needed: str
    fused: bool = True
    quiet: bool = False
    maybe: Optional[bool] = None
    fp: Optional[bool] = False
    choice: Literal["a", "b", None] = None
    level: Literal[0, 1] = 0
    coeff: List[float] = 0.0
    extra: Optional[Union[dict, str]] = None
    mixed: Optional[Union[str, List[str]]] = None
    place: str = os.getcwd()
    ratio: float | None = -1.5
"""


@pytest.fixture
def package(tmp_path: Path) -> Package:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "args.py").write_text(CLASSES)
    return Package(root=tmp_path, folders=("demo",))


@pytest.mark.parametrize(
    "text, value",
    [
        ("-1", -1),
        ("128 * 1024", 131072),
        ("[1, 'a', None]", [1, "a", None]),
        ("{'a': (1, 2)}", {"a": [1, 2]}),
        ("2 ** 10 // 3", 341),
    ],
)
def test_constant_expressions_are_evaluated(text: str, value: Any) -> None:
    assert evaluate(ast.parse(text, mode="eval").body) == value


def test_what_needs_running_is_reported_so() -> None:
    with pytest.raises(Unknown, match=r"os\.getcwd\(\)"):
        evaluate(ast.parse("os.getcwd()", mode="eval").body)


def test_fields_are_inherited_as_python_does(package: Package) -> None:
    chain = package.mro("Train")
    assert [source.name for source in chain] == ["Train", "Mixin", "Base", "Plain"]
    fields = dataclass_fields(chain)
    assert {"hidden", "KIND", "not_a_field"}.isdisjoint(fields)
    assert (fields["size"].default(), fields["shared"].default()) == (7, "mixin")
    assert list(fields)[:3] == ["size", "shared", "modules"]
    assert fields["size"].source == "demo/args.py:25"


def test_an_unknown_class_is_an_error(package: Package) -> None:
    with pytest.raises(LookupError, match="class Nothing not found"):
        package.mro("Nothing")


@pytest.mark.parametrize(
    "name, facts",
    [
        ("size", {"type": "int", "default": 7}),
        ("needed", {"type": "str", "required": True}),
        ("fused", {"type": "bool", "optional_value": True, "default": True, "negation": "no_fused"}),
        ("quiet", {"type": "bool", "optional_value": True, "negation": None}),
        ("maybe", {"type": "bool", "optional_value": False, "nullable": True, "default": None}),
        ("fp", {"type": "bool", "optional_value": True, "nullable": True}),
        ("choice", {"choices": ["a", "b", None], "type": "str", "nullable": True}),
        ("level", {"choices": [0, 1], "type": "int"}),
        ("modules", {"type": "str", "nargs": "+", "default": ["all"]}),
        ("coeff", {"type": "float", "nargs": "+", "default": None}),
        ("extra", {"type": "json", "nargs": None, "nullable": True}),
        ("mixed", {"type": "str", "nargs": None}),
        ("place", {"default_from": "os.getcwd()"}),
        ("ratio", {"type": "float", "default": -1.5, "nullable": True}),
    ],
)
def test_a_field_becomes_what_hf_argument_parser_makes_of_it(
    package: Package, name: str, facts: dict[str, Any]
) -> None:
    row = hf_parser.argument(dataclass_fields(package.mro("Train"))[name])
    assert {key: row.get(key) for key in facts} == facts


def swift_checkout(root: Path) -> Path:
    (root / "swift/megatron/arguments").mkdir(parents=True)
    (root / "swift/cli/_megatron").mkdir(parents=True)
    for command in ("sft", "pt"):
        (root / f"swift/cli/_megatron/{command}.py").write_text("")
    (root / "swift/megatron/arguments/args.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass MegatronSftArguments:\n    lr: float = 1e-4\n    _state: bool = False\n    only: int = 1\n"
        "@dataclass\nclass MegatronPretrainArguments(MegatronSftArguments):\n    lr: float = 1e-5\n    new: int = 2\n"
    )
    return root


def test_megatron_swift_commands_differ_where_their_classes_do(tmp_path: Path) -> None:
    head, rows = megatron_swift.extract(swift_checkout(tmp_path))
    by_name = {row["name"]: row for row in rows}
    assert head == {"style": "hf", "commands": ["sft", "pt"]}
    assert set(by_name) == {"lr", "only", "new"}
    assert by_name["lr"]["command_defaults"] == {"pt": 1e-5}
    assert by_name["new"]["commands"] == ["pt"]


def test_one_command_writes_a_catalogue_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "9.9.json"
    source = str(swift_checkout(tmp_path / "checkout"))
    argv = ["megatron", "--version", "9.9", "--source", source, "--revision", "abc", "-o", str(out)]
    assert command_line.main(argv) == 0
    assert "3 arguments" in capsys.readouterr().out
    loaded = from_json(json.loads(out.read_text()))
    assert (loaded.version, loaded.source["revision"], len(loaded)) == ("9.9", "abc", 3)
    assert len([line for line in out.read_text().splitlines() if line.startswith("  {")]) == 3


@pytest.mark.parametrize(
    "argv, says",
    [
        (["megatron", "--version", "1", "--source", "/nowhere"], "no such folder"),
        (["megatron", "--version", "1", "--source", "docs/zh", "--revision", "x"], "neither a checkout nor"),
        (["megatron_lm", "--version", "1", "--source", "installed"], "is not installed"),
        (["mindspeed", "--version", "1", "--source", ".", "--revision", "x"], "made of all three projects"),
    ],
)
def test_mistakes_on_the_command_line_are_reported(argv: list[str], says: str) -> None:
    with pytest.raises(SystemExit, match=says):
        command_line.main(argv)


def test_a_folder_without_git_needs_a_revision(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="say what it is with --revision"):
        command_line.main(["megatron", "--version", "1", "--source", str(tmp_path)])


def test_a_live_parser_is_recorded_with_its_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import json\n"
        "def add(parser):\n"
        "    group = parser.add_argument_group(title='sizes')\n"
        "    group.add_argument('--num-layers', '--layers', type=int, default=4)\n"
        "    group.add_argument('--no-fusion', action='store_false', dest='fusion')\n"
        "    group.add_argument('--map', type=json.loads, nargs='*', choices=[1, 2])\n"
        "    group.add_argument('--old', help='Deprecated, please use --num-layers instead')\n"
        "    group.add_argument('--trap', type=bool)\n"
    )
    (tmp_path / "declares.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(argparse._ActionsContainer, "add_argument", argparse._ActionsContainer.add_argument)
    recorder = Recorder({"Demo": tmp_path})
    recorder.install()
    import declares  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser()
    declares.add(parser)
    layers, fusion, mapping, old, trap = recorder.rows(parser)
    assert (layers["name"], layers["aliases"], layers["type"], layers["default"]) == (
        "num-layers",
        ["layers"],
        "int",
        4,
    )
    assert (layers["source"], layers["owner"], layers["group"]) == ("Demo/declares.py:4", "add", "sizes")
    assert (fusion["action"], fusion["dest"], fusion["default"]) == ("store_false", "fusion", True)
    assert (mapping["type"], mapping["nargs"], mapping["choices"]) == ("json_text", "*", [1, 2])
    assert (old["deprecated"], old["renamed_to"]) == (True, "num-layers")
    assert "any text" in trap["help"]


def test_launcher_options_are_read_from_source(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "parser.add_argument('--worker_num', type=int, default=8)\n"
        "parser.add_argument('--nproc-per-node', '--nproc_per_node', action=env, default='1')\n"
        "parser.add_argument('-m', '--module', action='store_true')\n"
        "parser.add_argument('script')\n"
    )
    rows = {row["name"]: row for row in launchers.options(path)}
    assert rows["worker_num"] | {"default": 8, "type": "int"} == rows["worker_num"]
    assert rows["nproc-per-node"]["aliases"] == ["nproc_per_node"]
    assert rows["module"]["action"] == "store_true"
    assert rows["script"]["required"]


def test_environment_variables_are_found_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text(
        "import os\nos.environ['SET_HERE'] = '1'\nrank = int(os.getenv('RANK', '0'))\n"
        "if 'ASKED_FOR' in os.environ: pass\nget_env_args('max_pixels', int, 5)\n"
    )
    page = tmp_path / "page.md"
    page.write_text("| NAMED_ONLY | what it does, unlike OTHER_THING |\n- RANK: the rank\nSome TEXT_HERE\n")
    rows = {row["name"]: row for row in launchers.variables([tmp_path / "code"], [page])}
    assert set(rows) == {"SET_HERE", "RANK", "ASKED_FOR", "MAX_PIXELS", "NAMED_ONLY"}
    assert (rows["RANK"]["default"], rows["RANK"]["owner"], rows["RANK"]["help"]) == ("0", "read", "documented")
    assert (rows["MAX_PIXELS"]["type"], rows["MAX_PIXELS"]["default"]) == ("int", 5)
    assert rows["SET_HERE"]["owner"] == "set"


def versions() -> dict[str, Any]:
    def make(version: str, *names: str) -> Any:
        rows = [{"name": name, "default": 1} for name in names]
        return from_json({"backend": "b", "version": version, "style": "hf", "source": {}, "arguments": rows})

    return {"1": make("1", "load", "lr"), "2": make("2", "model", "lr", "new")}


def test_renames_are_completed_from_the_catalogues() -> None:
    content = renames.build([{"old": "load", "new": "model", "kind": "rename"}], versions())
    assert content["names"] == [{"old": "load", "new": "model", "kind": "rename", "until": "1", "since": "2"}]
    assert content["added"] == [{"name": "model", "since": "2"}, {"name": "new", "since": "2"}]


@pytest.mark.parametrize(
    "judged, says",
    [
        pytest.param([], "load disappeared and is not judged", id="forgotten"),
        pytest.param([{"old": "lr", "new": "new", "kind": "rename"}], "lr did not disappear", id="still there"),
        pytest.param([{"old": "load", "new": "gone", "kind": "rename"}], "gone is not in 2", id="no such new name"),
        pytest.param([{"old": "load", "new": None, "kind": "rename"}], "do not fit", id="rename to nothing"),
        pytest.param([{"old": "load", "new": "model", "kind": "moved"}], "unknown kind", id="kind"),
    ],
)
def test_wrong_judgements_are_refused(judged: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        renames.build(judged, versions())


def test_a_written_file_reads_back_the_same() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "b", "type": "int", "default": None, "nullable": True},
        {"name": "a", "choices": ["x", None]},
    ]
    head = {"backend": "demo", "version": "1", "source": {}, "style": "hf"}
    loaded = from_json(json.loads(render(head, rows)))
    assert [argument.name for argument in loaded.arguments] == ["a", "b"]
    first, second = loaded.arguments
    assert (first.choices, first.has_default, second.has_default, second.default) == (("x", None), False, True, None)
    assert dataclasses.replace(second, name="c").name == "c"


def test_a_misspelt_key_never_reaches_a_file() -> None:
    with pytest.raises(ValueError, match="unknown catalogue keys"):
        render({"style": "hf"}, [{"name": "a", "defualt": 1}])

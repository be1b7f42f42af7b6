"""The JSON Schema of job files: what it accepts is what Launch reads, and nothing else."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from launcher.compose.search_path import SECTION_GROUPS
from launcher.job import build
from launcher.job.migrations import JOB_FILES, migrated
from launcher.job.shipped import shipped
from launcher.schema.document import document
from launcher.schema.field_table import FieldRow, field_table
from launcher.schema.files import editor_line, installed, is_editor_line, schema_text, with_editor_line
from tests.sampling import examples

JOBS = [*sorted(shipped("recipes").glob("*.yaml")), shipped("conf") / "config.yaml"]
STORED = sorted((Path(__file__).parents[1] / "data" / "schema").glob("*.yaml"))
SECTIONS = [path for group in SECTION_GROUPS for path in sorted((shipped("conf") / group).glob("*.yaml"))]
ROWS = {row.path: row for row in field_table()}
# Values of every type, some of which fit each field.
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    7,
    0.5,
    "x",
    "1",
    [],
    [1],
    [1.5],
    ["x"],
    [True],
    {},
    {"a": 1},
    {"a": []},
)


def read(path: Path) -> dict[str, Any]:
    tree = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


@cache
def validator(section: str = "") -> Draft202012Validator:
    schema = document()
    return Draft202012Validator({"$ref": f"#/$defs/{section}", "$defs": schema["$defs"]} if section else schema)


@pytest.mark.slow
def test_it_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(document())
    assert json.loads(schema_text(document())) == document()


def test_the_shipped_file_is_current() -> None:
    assert installed().read_text(encoding="utf-8") == schema_text(document()), "run python -m tools.docs.schema"


@pytest.mark.parametrize("path", [*JOBS, *STORED], ids=lambda path: path.stem)
def test_recipes_and_jobs_are_valid(path: Path) -> None:
    assert not [error.message for error in validator().iter_errors(read(path))]


@pytest.mark.parametrize("path", SECTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_files_of_a_section_are_valid(path: Path) -> None:
    assert not [error.message for error in validator(path.parent.name).iter_errors(read(path))]


@pytest.mark.parametrize("path", JOBS[:-1], ids=lambda path: path.stem)
def test_a_recipe_names_the_shipped_schema(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if is_editor_line(line)]
    assert len(lines) == 1
    assert (path.parent / lines[0].partition("$schema=")[2]).resolve() == installed().resolve()


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.sample(keep=10)
@pytest.mark.parametrize("section", dict.fromkeys(path.partition(".")[0] for path in ROWS))
def test_fields_take_the_values_that_launch_reads(section: str) -> None:
    for path in (path for path in ROWS if path.partition(".")[0] == section):
        row = ROWS[path]
        bounds = () if row.minimum is None else (row.minimum - 1, int(row.minimum))
        for value in (*VALUES, *row.choices, list(row.choices), *bounds):
            if row.text_values and value == {"a": []}:
                continue  # launch writes the list as text, which an editor should mark
            tree = nested(path, value)
            problems = build(tree)[1]
            errors = [error.message for error in validator().iter_errors(tree)]
            assert bool(problems) == bool(errors), f"{path}={value!r}: launch {problems}, schema {errors}"


@pytest.mark.parametrize("value", ["${parallel.tp}", "${oc.env:NAME,3}", "???"])
def test_values_that_hydra_resolves_are_valid_everywhere(value: str) -> None:
    for path in ROWS:
        assert validator().is_valid(nested(path, value)), path


@pytest.mark.parametrize(
    "defaults", [["_self_"], [{"override /model": "qwen3_8b"}], [{"/task": None}], [{"optional model": "x"}, "base"]]
)
def test_a_defaults_list_is_valid(defaults: list[Any]) -> None:
    assert validator().is_valid({"defaults": defaults})


def test_a_name_of_an_earlier_version_is_valid_and_deprecated() -> None:
    renames = {old: new for migration in JOB_FILES for old, new in migration.renames.items()}
    assert renames
    for old, new in renames.items():
        section, _, name = old.rpartition(".")
        entry = document()["$defs"][section]["properties"][name]
        assert entry["deprecated"] is True
        assert new in entry["description"]
        value = True if ROWS[new].kind == "boolean" else None
        assert validator().is_valid({section: {name: value}})
        assert not build(migrated({section: {name: value}}, JOB_FILES, "file"))[1]


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tree.items():
        if isinstance(value, dict) and ".".join((*path, name)) not in ROWS:
            yield from leaves(value, (*path, name))
        elif name != "defaults":
            yield (*path, name)


def changed(
    tree: dict[str, Any], path: tuple[str, ...], change: Callable[[dict[str, Any], str], None]
) -> dict[str, Any]:
    made = json.loads(json.dumps(tree))
    node = made
    for name in path[:-1]:
        node = node[name]
    change(node, path[-1])
    assert isinstance(made, dict)
    return made


@st.composite
def misspelt(draw: st.DrawFn, name: str) -> str:
    at = draw(st.integers(0, len(name) - 1))
    letter = draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz_"))
    return draw(
        st.sampled_from(
            [name[:at] + name[at + 1 :], name[:at] + letter + name[at:], name[:at] + letter + name[at + 1 :]]
        )
    )


@examples(120)
@given(data=st.data())
def test_a_misspelt_key_is_an_error(data: st.DataObject) -> None:
    tree = read(data.draw(st.sampled_from(JOBS[:-1])))
    path = data.draw(st.sampled_from(sorted(leaves(tree))))
    depth = data.draw(st.integers(1, len(path)))
    wrong = data.draw(misspelt(path[depth - 1]))
    beside = ".".join((*path[: depth - 1], wrong))
    assume(wrong and beside not in ROWS and not any(known.startswith(f"{beside}.") for known in ROWS))
    made = changed(tree, path[:depth], lambda node, name: node.__setitem__(wrong, node.pop(name)))
    assert not validator().is_valid(made)


@examples(120)
@given(data=st.data())
def test_a_value_of_a_wrong_type_is_an_error(data: st.DataObject) -> None:
    tree = read(data.draw(st.sampled_from(JOBS[:-1])))
    path = data.draw(st.sampled_from(sorted(leaves(tree))))
    wrong = data.draw(st.sampled_from(wrong_values(ROWS[".".join(path)])))
    made = changed(tree, path, lambda node, name: node.__setitem__(name, wrong))
    assert not validator().is_valid(made)


def wrong_values(row: FieldRow) -> list[Any]:
    """Return values that are wrong for a field by its type in words."""
    wrong: list[Any] = [{"a": 1}] if row.kind != "mapping" else ["x", 3, [1]]
    if row.kind != "mapping" and not row.is_list:
        wrong.append([1, 2])
    if row.kind in ("integer", "number"):
        wrong += ["many", True]
    if row.kind == "boolean":
        wrong += ["yes please", 3]
    return wrong + (["no such choice"] if row.choices else [])


def test_the_line_for_editors_stays_below_a_package_header() -> None:
    line = editor_line("/a/schema.json")
    assert with_editor_line("# @package _global_\na: 1\n", line) == f"# @package _global_\n{line}\na: 1\n"
    assert with_editor_line("a: 1\n", line) == f"{line}\na: 1\n"


def test_a_path_with_a_blank_is_a_uri() -> None:
    """A blank would end the path."""
    assert editor_line("/my files/schema.json", "hardware").endswith("=file:///my%20files/schema.json#/$defs/hardware")

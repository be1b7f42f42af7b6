"""What an editor with the real yaml-language-server shows for recipes and for files that Launch writes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cli.options import write_file
from launcher.job.shipped import shipped
from launcher.outputs.kinds import HARDWARE, JOB
from tests.conftest import Launch
from tests.schema.language_server import LanguageServer, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]
RECIPES = sorted(shipped("recipes").glob("*.yaml"))


@pytest.fixture(scope="module")
def server() -> Iterator[LanguageServer]:
    with LanguageServer() as running:
        yield running


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The folders of a checkout, for recipes that are changed."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "recipes").mkdir()
    shutil.copy(shipped("conf") / "schema.json", tmp_path / "conf")
    return tmp_path


def edited(checkout: Path, name: str, old: str, new: str) -> tuple[Path, int]:
    """Return a changed copy of a recipe, and the line of the change, from 0."""
    text = (shipped("recipes") / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = checkout / "recipes" / f"{name}.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path, text[: text.index(old)].count("\n")


@pytest.mark.sample(keep=10)
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_has_no_mark(server: LanguageServer, path: Path) -> None:
    assert server.opened(path) == []


def test_a_misspelt_field_is_marked(server: LanguageServer, checkout: Path) -> None:
    path, line = edited(checkout, "qwen3_moe", "  clip_grad: 1.0", "  clip_gard: 1.0")
    (mark,) = server.opened(path)
    assert mark["range"]["start"]["line"] == line
    assert "clip_gard" in mark["message"]


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("  pp: 2\n", "  pp: two\n", "integer"),
        ("  grouped_gemm: true\n", "  grouped_gemm: 3\n", "boolean"),
        ("  token_dispatcher_type: alltoall\n", "  token_dispatcher_type: alltoal\n", "alltoall"),
    ],
)
def test_a_wrong_value_is_marked(server: LanguageServer, checkout: Path, old: str, new: str, message: str) -> None:
    path, line = edited(checkout, "qwen3_moe", old, new)
    marks = server.opened(path)
    assert [mark["range"]["start"]["line"] for mark in marks] == [line]
    assert message in marks[0]["message"]


def test_fields_and_choices_are_completed_with_their_meaning(server: LanguageServer, checkout: Path) -> None:
    path, line = edited(checkout, "qwen3_moe", "  clip_grad: 1.0", "  clip")
    server.opened(path)
    found = {item["label"]: item for item in server.completed(path, line, len("  clip"))}
    assert "gradient" in str(found["clip_grad"]).lower()
    path, line = edited(checkout, "qwen3_8b", "  dtype: bf16", "  dtype: ")
    server.opened(path)
    labels = [item["label"] for item in server.completed(path, line, len("  dtype: "))]
    assert {"bf16", "fp16", "fp32"} <= set(labels)


def test_a_field_shows_its_meaning_and_unit(server: LanguageServer, checkout: Path) -> None:
    path, _ = edited(checkout, "qwen3_moe", "  clip_grad: 1.0", "  clip_grad: 2.0")
    server.opened(path)
    head = path.read_text().splitlines().index("  seq_length: 4096")
    assert "tokens" in server.hovered(path, head, 4).lower()


def test_what_hydra_resolves_has_no_mark(server: LanguageServer, checkout: Path) -> None:
    path, _ = edited(checkout, "qwen3_moe", "  pp: 2\n", "  pp: ${parallel.tp}\n  vpp: ???\n")
    assert server.opened(path) == []


@pytest.mark.parametrize("name", ["written", "in a folder with blanks/written"])
def test_written_files_name_the_installed_schema(server: LanguageServer, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    write_file(path, "# @package _global_\nparallel:\n  tp: 2\n", JOB)
    assert server.opened(path) == []
    path.with_stem("wrong").write_text(path.read_text().replace("tp: 2", "tpp: 2"))
    assert "tpp" in server.opened(path.with_stem("wrong"))[0]["message"]
    hardware = path.with_stem("hardware")
    write_file(hardware, "# @package hardware\nname: mine\nmemory_gib: 80\n", HARDWARE)
    assert server.opened(hardware) == []
    hardware.with_stem("other").write_text(hardware.read_text().replace("memory_gib", "memory_gb"))
    assert "memory_gb" in server.opened(hardware.with_stem("other"))[0]["message"]


def test_native_arguments_are_marked_by_the_schema_of_a_version(
    server: LanguageServer, tmp_path: Path, launch: Launch
) -> None:
    schema = tmp_path / "megatron.json"
    done = launch("schema", "--backend", "megatron", "--backend-version", "4.6.0", "-o", str(schema))
    line = done.out.splitlines()[-1]
    path = tmp_path / "job.yaml"
    path.write_text(f"{line}\nbackend:\n  args:\n    advantage_estimator: rloo\n    max_lenght: 8\n")
    (mark,) = server.opened(path)
    assert "max_lenght" in mark["message"]
    assert mark["range"]["start"]["line"] == 4

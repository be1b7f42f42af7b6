"""What `backend.args` says of one key of a YAML section leaves the section's other keys as they are."""

from typing import Any

import pytest
import yaml

from backends.mindformers.mapping_values import MAPPING_VALUES
from backends.mindformers.yaml_file import flatten
from launcher.compose import compose
from launcher.job import with_values
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from tests.conftest import Launch
from tests.nested import nested
from tests.sampling import sample

MINDFORMERS = get_backend("mindformers")
VERSION = MINDFORMERS.version(None)
CATALOGUE = MINDFORMERS.catalogue(VERSION)
JOB = compose(["+recipe=qwen3_moe", "backend=mindformers"])


def _written(args: dict[str, Any]) -> dict[str, Any]:
    native = translate(with_values(JOB, {"backend.args": args}), MINDFORMERS, VERSION).native
    return {arg.flag: arg.value for arg in native}


def test_a_nested_key_is_the_dotted_one() -> None:
    for name in sample([each for each in CATALOGUE.names() if "." in each], 40, "nested keys"):
        argument = CATALOGUE.get(name)
        assert argument is not None
        value = argument.default or 1
        assert _written(nested(name, value)) == _written({name: value}), name


@pytest.mark.parametrize(
    "word, kept",
    [
        ("model.model_config.seq_length=4096", ("model", "model_config", "hidden_size")),
        ("train_dataset.data_loader.config.seed=7", ("train_dataset", "data_loader", "type")),
        ("train_dataset.data_loader={config:{seed:7}}", ("train_dataset", "data_loader", "type")),
    ],
)
def test_the_file_keeps_the_rest_of_the_section(word: str, kept: tuple[str, ...], launch: Launch) -> None:
    shown = launch("dry-run", "+recipe=qwen3_moe", "backend=mindformers", f"+backend.args.{word}", "--format", "shell")
    assert shown.code == 0, shown.err
    lines = shown.out.split("<<END_OF_FILE\n", 1)[1].split("\nEND_OF_FILE", 1)[0]
    node = yaml.safe_load(lines)
    for part in kept:
        node = node[part]
    assert node


@pytest.mark.parametrize("word", ["model.model_config=3", "callbacks=[{type:MFLossMonitor}]"])
def test_a_value_in_place_of_a_section_contradicts_its_fields(word: str, launch: Launch) -> None:
    shown = launch("check", "+recipe=qwen3_moe", "backend=mindformers", f"+backend.args.{word}")
    assert shown.code == 1
    assert "other arguments of the section: set only one of them" in shown.out


def test_mappings_that_are_values_are_read_as_such_from_files_and_from_jobs() -> None:
    for name in sorted(MAPPING_VALUES):
        value = {"a": True}
        section, _, key = name.rpartition(".")
        assert flatten(nested(name, value))[name] == value
        assert _written({section: {key: value}}).get(name, value) == value

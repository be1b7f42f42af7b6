"""The catalogue's look-up and checks: what a user sees when an argument is misspelt, mistyped or out of range."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue import catalogue
from launcher.catalogue.catalogue import Catalogue, from_json
from tools.catalogue.renames import versions


def make(style: str, *rows: dict[str, Any], **head: Any) -> Catalogue:
    data = {"backend": "demo", "version": "1.2", "style": style, "source": {}, "arguments": list(rows)} | head
    return from_json(json.loads(json.dumps(data)))


HF = make(
    "hf",
    {"name": "tensor_model_parallel_size", "type": "int", "default": 1},
    {"name": "train_iters", "type": "int", "nullable": True, "default": None},
    {"name": "fusion", "type": "bool", "optional_value": True, "default": True, "negation": "no_fusion"},
    {"name": "bf16", "type": "bool", "nullable": True, "default": None},
    {"name": "target_modules", "nargs": "+", "default": ["all-linear"]},
    {"name": "lr_style", "default": "cosine", "choices": ["constant", "linear", "cosine"]},
    {"name": "extra", "type": "json", "default": "{}"},
    {"name": "lr", "type": "float", "default": 1e-5, "command_defaults": {"pt": 1e-4}, "commands": ["sft", "pt"]},
    {"name": "load_args", "type": "bool", "optional_value": True, "default": False},
    {"name": "load_data", "type": "bool", "optional_value": True, "default": False},
    commands=["sft", "pt", "export"],
)
ARGPARSE = make(
    "argparse",
    {"name": "tensor-model-parallel-size", "type": "int", "default": 1},
    {"name": "save-interval", "aliases": ["persistent-save-interval"], "type": "int", "default": None},
    {"name": "no-masked-softmax-fusion", "dest": "masked_softmax_fusion", "type": "bool", "action": "store_false",
     "default": True},
    {"name": "moe-layer-freq", "type": "expr", "default": 1},
    {"name": "rope-scaling", "type": "float", "nargs": 2},
)  # fmt: skip
YAML = make(
    "yaml",
    {"name": "parallel_config.model_parallel", "type": "int", "default": 1},
    {"name": "recompute_config.recompute", "type": "bool|list", "default": False},
    {"name": "model.rope_scaling", "type": "dict", "nullable": True, "default": None},
    {"name": "model.num_layers", "aliases": ["model.num_hidden_layers"], "dest": "num_layers", "type": "int"},
    open_sections=["context"],
    strict_sections=["parallel_config"],
)


@pytest.mark.parametrize(
    "source, name, found",
    [
        pytest.param(HF, "tensor-model-parallel-size", "tensor_model_parallel_size", id="hf takes dashes"),
        pytest.param(HF, "--tensor_model-parallel_size", "tensor_model_parallel_size", id="hf takes a mixture"),
        pytest.param(HF, "no-fusion", "fusion", id="hf negation"),
        pytest.param(HF, "train_iter", None, id="a prefix is no name"),
        pytest.param(ARGPARSE, "--tensor-model-parallel-size", "tensor-model-parallel-size", id="argparse as declared"),
        pytest.param(ARGPARSE, "tensor_model_parallel_size", None, id="argparse refuses underscores"),
        pytest.param(ARGPARSE, "persistent-save-interval", "save-interval", id="alias"),
        pytest.param(YAML, "model.num_hidden_layers", "model.num_layers", id="yaml alias"),
    ],
)
def test_get_follows_the_backends_own_parser(source: Catalogue, name: str, found: str | None) -> None:
    argument = source.get(name)
    assert (argument and argument.name) == found


def test_a_negation_is_distinguished_from_an_argument() -> None:
    assert HF.is_negation("no_fusion")
    assert not HF.is_negation("fusion")
    assert not ARGPARSE.is_negation("no-masked-softmax-fusion")


def test_prefixes_are_resolved_only_where_the_parser_accepts_them() -> None:
    assert [argument.name for argument in HF.by_prefix("train_it")] == ["train_iters"]
    assert [argument.name for argument in HF.by_prefix("load")] == ["load_args", "load_data"]
    assert ARGPARSE.by_prefix("tensor") == []


def test_dest_finds_what_a_flag_stores() -> None:
    found = ARGPARSE.by_dest("masked_softmax_fusion")
    assert found is not None
    assert found.name == "no-masked-softmax-fusion"
    assert ARGPARSE.by_dest("tensor_model_parallel_size") is not None


@pytest.mark.parametrize(
    "source, name, value",
    [
        pytest.param(HF, "train_iters", "100", id="int as text"),
        pytest.param(HF, "train_iters", None, id="nothing where None is allowed"),
        pytest.param(HF, "fusion", True, id="bare bool"),
        pytest.param(HF, "fusion", "No", id="bool word"),
        pytest.param(HF, "no_fusion", True, id="bare negation"),
        pytest.param(HF, "target_modules", ["q", "k"], id="list"),
        pytest.param(HF, "target_modules", "q", id="list of one"),
        pytest.param(HF, "extra", '{"a": 1}', id="json"),
        pytest.param(HF, "extra", "kwargs.json", id="json by file name"),
        pytest.param(HF, "lr", "1e-5", id="float in scientific form"),
        pytest.param(ARGPARSE, "no-masked-softmax-fusion", True, id="flag"),
        pytest.param(ARGPARSE, "moe-layer-freq", "([1]*94)", id="list expression"),
        pytest.param(ARGPARSE, "rope-scaling", ["1.0", "2"], id="fixed arity"),
        pytest.param(YAML, "recompute_config.recompute", [1, 2], id="union"),
        pytest.param(YAML, "context.anything", 3, id="open section"),
        pytest.param(YAML, "model.rope_scaling.factor", 4.0, id="below a mapping"),
    ],
)
def test_good_values_pass(source: Catalogue, name: str, value: Any) -> None:
    assert source.check(name, value) is None


@pytest.mark.parametrize(
    "source, name, value, says",
    [
        pytest.param(HF, "train_iters", "ten", "train_iters must be a whole number, got 'ten'", id="int"),
        pytest.param(HF, "train_iters", ["1", "2"], "takes one value (a whole number), got 2", id="arity"),
        pytest.param(HF, "fusion", "maybe", "fusion must be true or false, got 'maybe'", id="bool word"),
        pytest.param(HF, "no_fusion", "true", "is a flag and takes no value, got 'true'", id="value after a negation"),
        pytest.param(HF, "bf16", True, None, id="a bool given as such"),
        pytest.param(HF, "lr_style", "cosin", "got 'cosin'; did you mean cosine?", id="choice"),
        pytest.param(HF, "extra", '{"a": ', "extra must be JSON text", id="json"),
        pytest.param(HF, "tensor_parallel_size", 2, "did you mean tensor_model_parallel_size?", id="unknown"),
        pytest.param(
            ARGPARSE, "tensor_model_parallel_size", 2, "did you mean tensor-model-parallel-size", id="spelling"
        ),
        pytest.param(ARGPARSE, "no-masked-softmax-fusion", "true", "takes no value", id="value after a flag"),
        pytest.param(ARGPARSE, "rope-scaling", ["1.0"], "takes 2 values, got 1", id="fixed arity"),
        pytest.param(
            YAML, "parallel_config.model_paralel", 2, "did you mean parallel_config.model_parallel?", id="yaml"
        ),
        pytest.param(YAML, "recompute_config.recompute", "full", "true or false or a list", id="union"),
    ],
)
def test_bad_values_are_reported_in_plain_english(source: Catalogue, name: str, value: Any, says: str | None) -> None:
    message = source.check(name, value)
    assert (message is None) if says is None else (message is not None and says in message)


def test_unknown_argument_names_backend_and_version() -> None:
    message = HF.check("nonsense_zzz", 1)
    assert message == "nonsense_zzz is not an argument of demo 1.2"


def test_defaults_depend_on_the_command() -> None:
    lr = HF.get("lr")
    assert lr is not None
    assert (lr.default_for(), lr.default_for("pt"), lr.default_for("sft")) == (1e-5, 1e-4, 1e-5)


def test_a_missing_version_names_those_that_exist(tmp_path: Path) -> None:
    for version in ("3.5.3", "3.12.6", "3.5-dev", "master"):
        (tmp_path / f"{version}.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"9\.9\.json .*3\.5-dev, 3\.5\.3, 3\.12\.6, master"):
        catalogue.load(tmp_path / "9.9.json")


def test_another_entry_point_is_no_version(tmp_path: Path) -> None:
    for stem in ("2.1.0", "2.1.0-pynative", "1.6.0"):
        (tmp_path / f"{stem}.json").write_text("{}")
    assert versions(tmp_path) == ["1.6.0", "2.1.0"]


def test_an_argument_of_another_command_is_reported() -> None:
    assert HF.check("lr", 1e-4, command="pt") is None
    assert HF.check("lr", 1e-4, command="export") == "lr is an argument of sft, pt, not of export"


@pytest.mark.parametrize(
    ("name", "refused"),
    [("parallel_config.foo", True), ("context.foo", False), ("foo", False), ("foo.bar", False)],
)
def test_an_unknown_key_is_refused_in_a_strict_section_only(name: str, refused: bool) -> None:
    assert YAML.refuses(name) == refused

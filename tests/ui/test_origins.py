"""What the page says of where a value comes from is true of every kind of origin."""

import pytest

from launcher.job import fields
from launcher.ui import answers

MODEL = ("model=qwen3_8b", "task=pretrain", "backend=megatron", "hardware=h100_80g")
RECIPE = ("+recipe=qwen3_8b", "backend=megatron")
# Overrides, field, and the value with its origin.
ORIGINS = {
    "the default cluster, without a recipe": (MODEL, "cluster.nodes", "1", "cluster preset, conf/cluster/local.yaml:"),
    "the same field in a recipe": (RECIPE, "cluster.nodes", "1", "recipe, recipes/qwen3_8b.yaml:"),
    "a chosen model": (MODEL, "model.num_hidden_layers", "36", "model preset, conf/model/qwen3_8b.yaml:"),
    "chosen hardware": (MODEL, "hardware.name", "H100-SXM5-80GB", "hardware preset, conf/hardware/h100_80g.yaml:"),
    "typed": ((*MODEL, "parallel.tp=2"), "parallel.tp", "2", "chosen by you"),
    "typed as it is by default": ((*MODEL, "parallel.tp=1"), "parallel.tp", "1", "chosen by you"),
    "default of the schema": (MODEL, "parallel.tp", "1", "schema default"),
    "default version of a backend": (MODEL, "backend.version", "4.6.0", "backend default"),
    "not set, with an argument of the backend": (MODEL, "parallel.vpp", "", "backend default"),
    "computed": (MODEL, "parallel.dp", "8", "computed"),
}


@pytest.mark.parametrize("words, path, value, origin", ORIGINS.values(), ids=ORIGINS)
def test_origin_of_a_field(words: tuple[str, ...], path: str, value: str, origin: str) -> None:
    shown = answers.plan(words)["values"][path]
    # The line of a file may move.
    assert (shown[0], shown[1].rstrip("0123456789") if ":" in origin else shown[1]) == (value, origin)


def test_without_a_backend_nothing_is_its_default() -> None:
    values = answers.plan(("model=qwen3_8b",))["values"]
    assert "parallel.vpp" not in values
    assert {origin for _, origin in values.values()} >= {"schema default"}
    assert "backend default" not in {origin for _, origin in values.values()}


def test_a_field_without_an_argument_is_not_the_backends_default() -> None:
    """No backend knows the name of the launcher's folder."""
    assert fields()["output_dir"].default is None
    assert "output_dir" not in answers.plan(RECIPE)["values"]


def test_an_argument_names_its_origin_as_the_field_does() -> None:
    args = {each["flag"]: each["origin"] for each in answers.plan((*MODEL, "parallel.tp=2"))["args"]}
    assert args["tensor_model_parallel_size"] == "chosen by you"
    assert args["seed"] == "schema default"

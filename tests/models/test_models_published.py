"""The published config.json files of real models are read as their presets say, as transformers 4 and 5 spell them."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.compose.places import shipped
from launcher.job import build
from launcher.job.model import Model
from launcher.models import config_from_model, determined_fields, model_from_config
from launcher.models.families import FAMILIES

PUBLISHED = sorted(Path(__file__).with_name("published").glob("*.json"))

# Parameters as stored on the hub (safetensors metadata); multi-token-prediction layers are not counted.
PARAMETERS = {
    "deepseek_v2": 235_741_434_880,
    "deepseek_v2_lite": 15_706_484_224,
    "deepseek_v3": 671_026_404_352,
    "llama2_7b": 6_738_415_616,
    "llama3_1_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_8b": 8_030_261_248,
    "mixtral_8x7b": 46_702_792_704,
    "qwen1_5_moe_a2_7b": 14_315_784_192,
    "qwen2_5_14b": 14_770_033_664,
    "qwen2_5_7b": 7_615_616_512,
    "qwen2_5_7b_instruct": 7_615_616_512,
    "qwen3_0_6b": 596_049_920,
    "qwen3_14b": 14_768_307_200,
    "qwen3_1_7b": 1_720_574_976,
    "qwen3_235b_a22b": 235_093_634_560,
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_32b": 32_762_123_264,
    "qwen3_4b": 4_022_468_096,
    "qwen3_8b": 8_190_735_360,
}


def _load(path: Path) -> dict[str, Any]:
    config = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(config, dict)
    return config


def _model(values: dict[str, Any]) -> Model:
    job, problems = build({"model": values})
    assert not problems
    return job.model


def as_transformers_5(config: dict[str, Any]) -> dict[str, Any]:
    """The same facts as transformers 5 writes them: theta inside rope_parameters, dtype, num_local_experts."""
    new = dict(config)
    scaling = new.pop("rope_scaling", None) or {"rope_type": "default"}
    new["rope_parameters"] = {**scaling, "rope_theta": new.pop("rope_theta", 10000.0)}
    new["dtype"] = new.pop("torch_dtype")
    if "num_experts" in new:
        new["num_local_experts"] = new.pop("num_experts")
    if new["model_type"] in ("qwen2", "qwen3", "qwen2_moe"):
        new["layer_types"] = ["full_attention"] * new["num_hidden_layers"]
        new["sliding_window"] = None
    if new["model_type"] == "llama":
        new["head_dim"] = new["hidden_size"] // new["num_attention_heads"]
    if new["model_type"] == "deepseek_v3":  # its class knows one routing only, and leaves it out
        new = {key: value for key, value in new.items() if key not in ("scoring_func", "topk_method", "moe_layer_freq")}
        new["head_dim"] = new["qk_rope_head_dim"]
        new["qk_head_dim"] = new["qk_rope_head_dim"] + new["qk_nope_head_dim"]
        new["rope_interleave"] = True
    return new


def test_there_is_a_published_file_for_every_preset_but_the_tiny_ones() -> None:
    presets = {path.stem for path in (shipped("conf") / "model").glob("*.yaml") if not path.stem.startswith("tiny_")}
    assert presets == {path.stem for path in PUBLISHED} == set(PARAMETERS)


def test_every_family_has_a_published_file() -> None:
    assert {_load(path)["model_type"] for path in PUBLISHED} == set(FAMILIES)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_preset_says_what_the_published_file_says(path: Path) -> None:
    preset = compose([f"model={path.stem}"]).model
    read = _model(model_from_config(_load(path), str(path)))
    for name in determined_fields():
        assert _at(preset, name) == _at(read, name), name


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_transformers_5_spelling_reads_the_same(path: Path) -> None:
    config = _load(path)
    assert model_from_config(as_transformers_5(config)) == model_from_config(config)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_written_and_read_again_is_the_same(path: Path) -> None:
    read = model_from_config(_load(path))
    assert model_from_config(config_from_model(_model(read))) == read


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_what_is_written_says_what_the_published_file_says(path: Path) -> None:
    published, written = _load(path), config_from_model(_model(model_from_config(_load(path))))
    common = set(published) & set(written) - {"torch_dtype", "sliding_window", "max_window_layers", "rope_scaling"}
    defaults = {"n_group": 1, "topk_group": 1}
    for key in common:
        assert (written[key] or defaults.get(key)) == (published[key] or defaults.get(key)), key


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_real_transformers_saves_a_file_that_reads_the_same(path: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = _load(path)
    expected = model_from_config(config)
    if config["model_type"] == "deepseek_v3":
        config["head_dim"] = config["qk_rope_head_dim"]
    loaded = transformers.AutoConfig.for_model(**config)
    loaded.save_pretrained(tmp_path)
    assert model_from_config(_load(tmp_path / "config.json")) == expected


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_real_transformers_builds_the_published_number_of_parameters(path: Path, tmp_path: Path) -> None:
    """What we write, loaded by transformers' AutoConfig and built without memory, has the size of the real model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    written = config_from_model(_model(model_from_config(_load(path))))
    (tmp_path / "config.json").write_text(json.dumps(written), encoding="utf-8")
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    assert sum(weight.numel() for weight in built.parameters()) == PARAMETERS[path.stem]


def _at(model: Model, path: str) -> Any:
    node: Any = model
    for part in path.split("."):
        node = getattr(node, part)
    return node

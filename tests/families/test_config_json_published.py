"""The published config.json files of real models are read as their presets say, as transformers 4 and 5 spell them."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.families.config_json import config_from_model, model_from_config
from launcher.families.registry import FAMILIES
from launcher.job import build
from launcher.job.determined import determined_fields
from launcher.job.model import Model
from launcher.job.shipped import shipped
from tests.convert.twins import TWINS

PUBLISHED = sorted(Path(__file__).with_name("published").glob("*.json"))

# Parameters as stored on the hub (safetensors metadata), those of families newer than transformers 5.0 as its classes
# build them from the published file; multi-token-prediction layers and vision towers are not counted.
PARAMETERS: dict[str, int] = json.loads(Path(__file__).with_name("parameters.json").read_text(encoding="utf-8"))
# Files of families that transformers has a class of.
KNOWN = [path for path in PUBLISHED if json.loads(path.read_text(encoding="utf-8"))["model_type"] not in TWINS]


def one_tie(saved: dict[str, Any]) -> dict[str, Any]:
    """The file without what transformers adds to Qwen3-VL-MoE's text_config: a default that contradicts the model's."""
    if saved["model_type"] == "qwen3_vl_moe":
        assert saved["text_config"].pop("tie_word_embeddings") is True
    return saved


FAMILY_OF_TEXT = {family.outer.text_type: name for name, family in FAMILIES.items() if family.outer is not None}


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
    if "text_config" in config:
        return {**config, "text_config": as_transformers_5(config["text_config"])}
    new = dict(config)
    scaling = new.pop("rope_scaling", None) or {"rope_type": "default"}
    if "rope_theta" in new or "rope_parameters" not in new:
        new["rope_parameters"] = {**scaling, "rope_theta": new.pop("rope_theta", 10000.0)}
    if "partial_rotary_factor" in new:
        new["rope_parameters"]["partial_rotary_factor"] = new.pop("partial_rotary_factor")
    new["dtype"] = new.pop("torch_dtype", "bfloat16")
    if "num_experts" in new:
        new["num_local_experts"] = new.pop("num_experts")
    layers = new["num_hidden_layers"]
    if new["model_type"] in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        interval = new.pop("full_attention_interval")
        kinds = ["linear_attention"] * (interval - 1) + ["full_attention"]
        new["layer_types"] = (kinds * layers)[:layers]
    if new["model_type"] in ("deepseek_v32", "glm_moe_dsa", "glm4_moe_lite"):
        dense = new["first_k_dense_replace"]
        new["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (layers - dense)
    if new["model_type"] in ("deepseek_v32", "glm_moe_dsa"):
        new["layer_types"] = ["indexed_attention"] * layers
    if new["model_type"] == "glm_moe_dsa":
        new["indexer_types"] = ["full"] * layers
    if new["model_type"] == "glm4_moe_lite":
        del new["first_k_dense_replace"]
    if new["model_type"] in ("qwen2", "qwen3", "qwen2_moe", "qwen2_5_vl"):
        new["layer_types"] = ["full_attention"] * new["num_hidden_layers"]
        new["sliding_window"] = None
    if new["model_type"] == "gemma3_text":
        theta = {"rope_type": "default", "rope_theta": new.pop("rope_local_base_freq")}
        new["rope_parameters"] = {"full_attention": new["rope_parameters"], "sliding_attention": theta}
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
    for kind, names in (
        ("published/NAME.json", {path.stem for path in PUBLISHED}),
        ("parameters.json", set(PARAMETERS)),
    ):
        missing, unknown = sorted(presets - names), sorted(names - presets)
        assert not missing, f"tests/families/{kind} is missing for conf/model: {', '.join(missing)}"
        assert not unknown, f"tests/families/{kind} without a preset in conf/model: {', '.join(unknown)}"


def test_every_family_has_a_published_file() -> None:
    missing = set(FAMILIES) - {model_from_config(_load(path))["model_type"] for path in PUBLISHED}
    assert not missing, f"tests/families/published has no config.json of {', '.join(sorted(missing))}"


@pytest.mark.sample(keep=15)
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
    if "vision_config" in published and "text_config" not in published:
        published.pop("vision_config")
    if "text_config" in published:
        beside = set(published) - {"text_config", "vision_config", "transformers_version"}
        assert {key: written[key] for key in beside} == {key: published[key] for key in beside}
        # Of the vision tower only the usual one can be written.
        tower, usual = published["vision_config"], written["vision_config"]
        assert {key: usual[key] for key in usual if key in tower} == {key: tower[key] for key in usual if key in tower}
        published, written = published["text_config"], {"model_type": published["model_type"], **written["text_config"]}
        published["model_type"] = written["model_type"] = FAMILY_OF_TEXT[published["model_type"]]
    common = set(published) & set(written) - {"torch_dtype", "max_window_layers", "rope_scaling", "use_cache"}
    common -= {"attn_temperature_tuning"}  # a number in the first files, which means true
    common -= {"sliding_window"} if published["model_type"].startswith("qwen") else set()
    if published["model_type"] in FAMILIES[written["model_type"]].aliases:
        common.remove("model_type")
    if FAMILIES[written["model_type"]].other_stems:
        common.remove("architectures")
    defaults = {"n_group": 1, "topk_group": 1}
    for key in common:
        assert (written[key] or defaults.get(key)) == (published[key] or defaults.get(key)), key


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.stem)
def test_real_transformers_saves_a_file_that_reads_the_same(path: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = _load(path)
    expected = model_from_config(config)
    config["model_type"] = expected["model_type"]
    if "attn_temperature_tuning" in config:  # a number in the first files, which the class of transformers 5 refuses
        config["attn_temperature_tuning"] = bool(config["attn_temperature_tuning"])
    if config["model_type"] == "deepseek_v3":
        config["head_dim"] = config["qk_rope_head_dim"]
    loaded = transformers.AutoConfig.for_model(**config)
    loaded.save_pretrained(tmp_path)
    assert model_from_config(one_tie(_load(tmp_path / "config.json"))) == expected


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_real_transformers_builds_the_published_number_of_parameters(path: Path, tmp_path: Path) -> None:
    """What we write, loaded by transformers' AutoConfig and built without memory, has the size of the real model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    written = config_from_model(_model(model_from_config(_load(path))))
    if written["model_type"] in TWINS:  # without biases, as published, both are Llama
        written |= {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(written), encoding="utf-8")
    seeing = "vision_config" in written
    auto = transformers.AutoModelForImageTextToText if seeing else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        built = auto.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    language = (weight for name, weight in built.named_parameters() if "visual." not in name)
    assert sum(weight.numel() for weight in language) == PARAMETERS[path.stem]


def _at(model: Model, path: str) -> Any:
    node: Any = model
    for part in path.split("."):
        node = getattr(node, part)
    return node

"""A script that only names a model imports with what the preset of that name knows, and comes out as it went in."""

from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.compose.presets import named_like
from launcher.importing.job_file import job_yaml
from launcher.importing.presets import preset_of, with_preset
from launcher.importing.read_argv import read_argv
from launcher.pipeline import judge

_SCRIPT = "megatron sft --dataset x --max_length 4096 --train_iters 10 --micro_batch_size 1 --global_batch_size 16"
NAMED = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct": ("qwen3_next_80b_a3b", "experimental_attention_variant", "gated_delta_net"),
    "Qwen/Qwen3.5-35B-A3B": ("qwen3_5_35b_a3b", "mrope_section", (11, 11, 10)),
    "deepseek-ai/DeepSeek-V3.2": ("deepseek_v3_2", "index_topk", 2048),
    "zai-org/GLM-4.5-Air": ("glm4_5_air", "partial_rotary_factor", 0.5),
    "openai/gpt-oss-20b": ("gpt_oss_20b", "softmax_type", "learnable"),
    "moonshotai/Kimi-K2-Instruct": ("kimi_k2", "num_experts", 384),
    "moonshotai/Kimi-K2-Instruct-0905": ("kimi_k2_0905", "max_position_embeddings", 262144),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_model_is_known(name: str) -> None:
    preset, field, value = NAMED[name]
    imported = read_argv(f"{_SCRIPT} --model {name}".split(), backend="megatron", version="4.6.0")
    found = preset_of(imported.job)
    assert found is not None
    assert found.name == preset
    assert getattr(with_preset(imported.job).model, field) == value


@pytest.mark.parametrize("name", NAMED)
def test_what_config_json_specifies_is_not_repeated(name: str, tmp_path: Path) -> None:
    """The imported job file knows the architecture; the command that it becomes is the one that was imported."""
    imported = read_argv(f"{_SCRIPT} --model {name}".split(), backend="megatron", version="4.6.0")
    file = tmp_path / "job.yaml"
    file.write_text(job_yaml(imported, "x", with_version=True), encoding="utf-8")
    outcome = judge(compose([f"+job={file}"]), fixes=False)
    assert not [finding.message for finding in outcome.findings if finding.rule == "MAP-UNSUPPORTED"]
    assert outcome.native.get("model") == name
    assert not outcome.native.has("megatron_extra_kwargs")
    assert not outcome.native.has("mtp_num_layers")


def test_names_of_the_same_sizes() -> None:
    found = {
        name: named_like(name)
        for name in ("Qwen/Qwen3-8B-Base", "/models/Llama-2-7b-hf/", "google/gemma-2-9b-it", "Qwen3-VL-2B", "base")
    }
    names = {name: preset.name if preset else None for name, preset in found.items()}
    assert list(names.values()) == ["qwen3_8b", "llama2_7b", "gemma_2_9b", None, None]

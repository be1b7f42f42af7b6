"""What is offered for a model.path without a model: a folder near it that has one, or the name on a hub."""

import json
import shlex
from pathlib import Path

import pytest

from launcher.compose import ComposeError, compose

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "tie_word_embeddings": False,
}
JOB = ("+recipe=tiny_qwen3", "backend=megatron", "model.pretrained=false")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("my llama", "cache/models--me--llama/snapshots/0a1b"):
        Path(folder).mkdir(parents=True)
        Path(folder, "config.json").write_text(json.dumps(CONFIG))
    Path("my llama", "model.safetensors").touch()
    Path("my broken").mkdir()
    Path("my broken", "config.json").write_text("{")


def offered(path: str) -> tuple[str, ...]:
    with pytest.raises(ComposeError) as refused:
        compose([*JOB, f"model.path={path}"])
    (mistake,) = refused.value.mistakes
    return mistake.fixes


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("my lama", "my llama"),
        ("my llama/model.safetensors", "my llama"),
        (".", "my llama"),
        ("cache/models--me--llama", "cache/models--me--llama/snapshots/0a1b"),
    ],
)
def test_a_folder_near_it_is_offered_and_composes(typed: str, found: str) -> None:
    (fix,) = offered(typed)
    (word,) = shlex.split(fix)
    assert compose([*JOB, word]).model.path == found


def test_a_name_on_a_hub_is_offered_as_one() -> None:
    assert offered("Qwen/Qwen3-8B") == ("model.hub_id=Qwen/Qwen3-8B",)


@pytest.mark.parametrize("typed", ["Qwen/no-such-model", "/etc", "my brokn"])
def test_nothing_is_offered_where_nothing_is_near(typed: str) -> None:
    assert offered(typed) == ()


def test_config_json_itself_is_its_folder() -> None:
    """A backend starts from the folder; the file's name reached its command line."""
    assert compose([*JOB, "model.path=my llama/config.json"]).model.path == "my llama"

"""Names of transformers 5 in a model's config.json reach the rules of backends that read the older ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.api import check
from launcher.compose import compose
from launcher.convert.offer import offered
from launcher.mapping.backend import get_backend

_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
_OLDER = {"num_experts": 8, "rope_theta": 1e6, "torch_dtype": "bfloat16"}
_NEWER = {
    "num_local_experts": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "dtype": "bfloat16",
}
_NAMES = ("rope_parameters", "num_local_experts", "dtype")
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "transformers 4": (_OLDER, ()),
    "transformers 4.57": ({**_OLDER, "dtype": "bfloat16"}, ()),
    "transformers 5": (_NEWER, _NAMES),
    "both names": ({**_OLDER, **_NEWER}, ()),
}


def folder_of(path: Path, names: dict[str, Any]) -> Path:
    """Write the folder of a model."""
    config = {name: value for name, value in {**_MOE, **names}.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", CASES)
def test_newer_names_are_read_from_the_folder(case: str, tmp_path: Path) -> None:
    names, expected = CASES[case]
    model = compose([f"model.path={folder_of(tmp_path, names)}"]).model
    assert (model.newer_names, model.num_experts, model.rope_theta) == (expected, 8, 1e6)


def test_a_name_that_a_family_always_had_is_not_newer(tmp_path: Path) -> None:
    names = {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 8,
        "rope_theta": 1e6,
        "moe_intermediate_size": None,
    }
    assert compose([f"model.path={folder_of(tmp_path, names)}"]).model.newer_names == ()


@pytest.mark.parametrize(
    ("backend", "version", "rule"),
    [
        ("mindspeed", "26.1.0", "MS-CONVERT-NAMES"),
        ("megatron", "3.12.6", "SW-CONFIG-NAMES"),
        ("megatron", "4.6.0", None),
        ("mindformers", "1.6.0", "MF-CONFIG-NAMES"),
        ("mindformers", "2.1.0", None),
    ],
)
def test_backends_that_read_the_older_names_say_so(
    backend: str, version: str, rule: str | None, tmp_path: Path
) -> None:
    words = [f"backend={backend}", f"backend.version={version}", "model.pretrained=true", "data.format=mock"]

    def found(names: dict[str, Any]) -> set[str]:
        job = compose([*words, f"model.path={folder_of(tmp_path, names)}"])
        return {each.rule for each in check(job) if each.rule.endswith(("-CONVERT-NAMES", "-CONFIG-NAMES"))}

    assert found(_NEWER) == ({rule} if rule else set())
    assert found(_OLDER) == set()


def test_mindspeed_is_offered_the_conversion_that_reads_both(tmp_path: Path) -> None:
    backend = get_backend("mindspeed")
    for names, is_needed in ((_NEWER, True), (_OLDER, False)):
        job = compose(["backend=mindspeed", "model.pretrained=true", f"model.path={folder_of(tmp_path, names)}"])
        assert (offered(job, backend, "26.1.0", exists=lambda _path: False) is not None) is is_needed

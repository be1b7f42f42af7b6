"""Published models with the architecture of a preset: other training, another date, or a longer context."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_HUB = "config.json on huggingface.co"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Models that have a preset's architecture.

    Attributes:
        preset: file of the group `model`.
        names: names on a hub, separated by blanks; of those without an owner, the owner is the first one's.
        differs: fields below `model` with other values than the preset's.
        source: where that is written.
    """

    preset: str
    names: str
    differs: Mapping[str, Any] = field(default_factory=dict)
    source: str = _HUB

    @property
    def hub_ids(self) -> tuple[str, ...]:
        """The full names."""
        first, *others = self.names.split()
        owner = first.partition("/")[0]
        return (first, *(name if "/" in name else f"{owner}/{name}" for name in others))


_BASE = {"max_position_embeddings": 32768}
_LONG = 262144
# The same sizes; the weights of linear layers are in blocks of FP8, which `quantization_config` says.
_QWEN3_FP8 = {
    "qwen3_0_6b": "Qwen/Qwen3-0.6B-FP8",
    "qwen3_1_7b": "Qwen/Qwen3-1.7B-FP8",
    "qwen3_4b": "Qwen/Qwen3-4B-FP8",
    "qwen3_8b": "Qwen/Qwen3-8B-FP8",
    "qwen3_14b": "Qwen/Qwen3-14B-FP8",
    "qwen3_32b": "Qwen/Qwen3-32B-FP8",
    "qwen3_30b_a3b": "Qwen/Qwen3-30B-A3B-FP8",
    "qwen3_235b_a22b": "Qwen/Qwen3-235B-A22B-FP8",
}
_BASE_SOURCE = "max_position_embeddings of config.json: 32768 of Qwen3-8B-Base, 40960 of Qwen3-8B"

VARIANTS = (
    *(Variant(preset=preset, names=name) for preset, name in _QWEN3_FP8.items()),
    Variant(preset="qwen3_0_6b", names="Qwen/Qwen3-0.6B-Base", differs=_BASE, source=_BASE_SOURCE),
    Variant(preset="qwen3_1_7b", names="Qwen/Qwen3-1.7B-Base", differs=_BASE, source=_BASE_SOURCE),
    Variant(preset="qwen3_4b", names="Qwen/Qwen3-4B-Base", differs=_BASE, source=_BASE_SOURCE),
    Variant(preset="qwen3_8b", names="Qwen/Qwen3-8B-Base", differs=_BASE, source=_BASE_SOURCE),
    Variant(preset="qwen3_14b", names="Qwen/Qwen3-14B-Base", differs=_BASE, source=_BASE_SOURCE),
    Variant(preset="qwen3_30b_a3b", names="Qwen/Qwen3-30B-A3B-Base", differs=_BASE, source=_BASE_SOURCE),
    Variant(
        preset="qwen3_4b",
        names="Qwen/Qwen3-4B-Instruct-2507 Qwen3-4B-Thinking-2507",
        differs={"max_position_embeddings": _LONG, "rope_theta": 5e6},
        source=f"{_HUB}; slime scripts/models/qwen3-4B-Instruct-2507.sh",
    ),
    Variant(
        preset="qwen3_30b_a3b",
        names="Qwen/Qwen3-30B-A3B-Instruct-2507 Qwen3-30B-A3B-Thinking-2507",
        differs={"max_position_embeddings": _LONG, "rope_theta": 1e7},
    ),
    Variant(
        preset="qwen3_235b_a22b",
        names="Qwen/Qwen3-235B-A22B-Instruct-2507 Qwen3-235B-A22B-Thinking-2507",
        differs={"max_position_embeddings": _LONG, "rope_theta": 5e6},
    ),
    Variant(preset="qwen3_next_80b_a3b", names="Qwen/Qwen3-Next-80B-A3B-Thinking"),
    Variant(
        preset="qwen2_5_14b",
        names="Qwen/Qwen2.5-14B-Instruct",
        differs={"max_position_embeddings": 32768, "rms_norm_eps": 1e-6},
        source=f"{_HUB}; no copy found on 2026-11-28 (its README.md confirms the sizes, not these two values)",
    ),
    Variant(preset="qwen1_5_moe_a2_7b", names="Qwen/Qwen1.5-MoE-A2.7B-Chat"),
    Variant(preset="llama2_7b", names="meta-llama/Llama-2-7b-chat-hf Llama-2-7b Llama-2-7b-chat"),
    Variant(preset="llama3_8b", names="meta-llama/Meta-Llama-3-8B-Instruct"),
    Variant(preset="llama3_70b", names="meta-llama/Meta-Llama-3-70B-Instruct"),
    Variant(
        preset="llama3_1_8b",
        names="meta-llama/Llama-3.1-8B-Instruct Meta-Llama-3.1-8B Meta-Llama-3.1-8B-Instruct",
    ),
    Variant(
        preset="deepseek_v3",
        names="deepseek-ai/DeepSeek-V3-Base DeepSeek-V3-0324 DeepSeek-R1 DeepSeek-R1-Zero DeepSeek-R1-0528 "
        "DeepSeek-V3.1-Base DeepSeek-V3.1 DeepSeek-V3.1-Terminus",
    ),
    Variant(preset="deepseek_v3_2", names="deepseek-ai/DeepSeek-V3.2-Exp"),
    Variant(preset="deepseek_v2", names="deepseek-ai/DeepSeek-V2-Chat DeepSeek-V2-Chat-0628"),
    Variant(preset="deepseek_v2_lite", names="deepseek-ai/DeepSeek-V2-Lite-Chat"),
    Variant(preset="kimi_k2", names="moonshotai/Kimi-K2-Base"),
    Variant(
        preset="kimi_k2_0905",
        names="moonshotai/Kimi-K2-Thinking",
        source="ai-dynamo/aiconfigurator 821eb9a Kimi-K2-Thinking",
    ),
    Variant(preset="glm4_5_air", names="zai-org/GLM-4.5-Air-Base GLM-4.5-Air-FP8"),
    Variant(preset="qwen3_coder_480b_a35b", names="Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"),
    Variant(preset="mistral_7b", names="mistralai/Mistral-7B-Instruct-v0.3"),
    Variant(preset="mixtral_8x7b", names="mistralai/Mixtral-8x7B-Instruct-v0.1"),
    Variant(preset="olmoe_1b_7b", names="allenai/OLMoE-1B-7B-0924-Instruct OLMoE-1B-7B-0924-SFT"),
)

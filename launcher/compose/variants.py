"""Published models with the architecture of a preset: other training, another date, or a longer context."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from launcher.records import dataclass

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


_LONG = 262144
_BASE_CONTEXT = {"max_position_embeddings": 32768}
_BASE_SOURCE = "max_position_embeddings of config.json: 32768 of Qwen3-8B-Base, 40960 of Qwen3-8B"
# Linear layers in blocks of FP8, by the names; the list has no sizes.
_FP8_SOURCE = "ms-swift 3602360a swift/model/models/qwen.py:550, 601; no config.json of them was read"
# Preset, and the published models of its sizes that are named NAME-Base and NAME-FP8 after Qwen/Qwen3-NAME.
_QWEN3 = (
    ("qwen3_0_6b", "0.6B", ("Base", "FP8")),
    ("qwen3_1_7b", "1.7B", ("Base", "FP8")),
    ("qwen3_4b", "4B", ("Base", "FP8")),
    ("qwen3_8b", "8B", ("Base", "FP8")),
    ("qwen3_14b", "14B", ("Base", "FP8")),
    ("qwen3_32b", "32B", ("FP8",)),
    ("qwen3_30b_a3b", "30B-A3B", ("Base", "FP8")),
    ("qwen3_235b_a22b", "235B-A22B", ("FP8",)),
)


def _qwen3(preset: str, size: str, kind: str) -> Variant:
    name = f"Qwen/Qwen3-{size}-{kind}"
    if kind == "FP8":
        return Variant(preset=preset, names=name, source=_FP8_SOURCE)
    return Variant(preset=preset, names=name, differs=_BASE_CONTEXT, source=_BASE_SOURCE)


VARIANTS = (
    *(_qwen3(preset, size, kind) for preset, size, kinds in _QWEN3 for kind in kinds),
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
        source=f"{_HUB}; no copy found on 2026-11-28 (its README.md has the sizes; these two values are unconfirmed)",
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

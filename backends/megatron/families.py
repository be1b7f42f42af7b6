"""Model families that Megatron-SWIFT can build, by version, and whether their checkpoints stack layers.

Up to 3.9 swift's own classes read config.json, from 3.10 on a bridge (swift/megatron/model, since 4.1 mcore-bridge).
"""

from collections.abc import Mapping

from launcher.catalogue.versions import in_range
from launcher.job.model import Model
from launcher.mapping.unbuildable_models import Unbuildable

# swift's model types: swift/model/constant.py @4.6.0; swift/llm/model/constant.py @3.x.
_IDS_46 = {
    name: name
    for name in (
        *("llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "qwen3_next", "deepseek_v2", "deepseek_v3"),
        *("deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss"),
    )
}
_IDS_4 = {**_IDS_46, "deepseek_v32": "deepseek_v3_2"}  # swift/model/constant.py @4.0.0
_IDS_36 = {
    "llama": "llama3_2",
    "qwen2": "qwen2_5",
    "qwen3": "qwen3",
    "qwen2_moe": "qwen2_moe",
    "qwen3_moe": "qwen3_moe",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v2_5",
}
_IDS_312 = {**_IDS_36, "qwen3_next": "qwen3_next", "gpt_oss": "gpt_oss", "glm4_moe": "glm4_5"}
_IDS_35 = {name: id_ for name, id_ in _IDS_36.items() if not name.startswith("deepseek")}
_RANGES: tuple[tuple[str | None, str | None, Mapping[str, str]], ...] = (
    ("4.6", None, _IDS_46),
    ("4.0", "4.5.99", _IDS_4),
    ("3.12", "3.99", _IDS_312),
    ("3.6", "3.11.99", _IDS_36),
    (None, "3.5.99", _IDS_35),
)
# Families whose dense layers among MoE layers the bridge does not read from config.json: it reads
# first_k_dense_replace, but neither mlp_only_layers nor decoder_sparse_step.
_NO_DENSE_LAYERS = ("qwen2_moe", "qwen3_moe")
# Families whose config.json has first_k_dense_replace, whatever its value.
_LISTS_LAYERS = ("deepseek_v2", "deepseek_v3")
_PARSER = (
    "mcore-bridge 1.6.5 config/parser.py:431; ms-swift 3.12.6 megatron/utils/config.py:201, 3.6.4 megatron/model/gpt"
)


def ids(version: str) -> Mapping[str, str]:
    """Return the model families that a version supports, mapped to swift's model types."""
    return next(found for since, until, found in _RANGES if in_range(version, since, until))


def _unknown(since: str | None, until: str | None, known: Mapping[str, str]) -> Unbuildable:
    return Unbuildable(
        doc="Families without a Megatron model.",
        when=lambda model: model.model_type is not None and model.model_type not in known,
        say=lambda model: f"no Megatron model of {model.model_type} (it has {', '.join(known)})",
        fields=("model.model_type",),
        source="mcore-bridge 1.6.5 model/gpts/llm.py; ms-swift 3.12.6, 3.6.4 megatron/model/gpt/__init__.py",
        since=since,
        until=until,
    )


ROWS: tuple[Unbuildable, ...] = (
    *(_unknown(*row) for row in _RANGES),
    Unbuildable(
        id="SW-BUILD-BIAS",
        doc="Dense layers with biases are built and then cannot be filled with weights, or are filled without biases.",
        when=lambda model: model.linear_bias and not model.is_moe,
        say=lambda model: (
            "linear_bias (mlp_bias of config.json): loading weights of a dense layer with biases ends in an assertion"
        ),
        fields=("model.linear_bias",),
        source=(
            "mcore-bridge 1.6.5 bridge/gpt_bridge.py:963; ms-swift 3.12.6 megatron/model/gpt_bridge.py:782,"
            " 3.6.4 megatron/model/gpt/hf2mcore.py:32"
        ),
    ),
    Unbuildable(
        id="SW-BUILD-DENSE-LAYERS",
        doc="Qwen's dense layers among sparse ones (mlp_only_layers) are not read: every layer gets experts.",
        when=lambda model: (
            model.model_type in _NO_DENSE_LAYERS
            and model.is_moe
            and model.first_k_dense_replace > 0
            and "first_k_dense_replace" not in model.overridden
        ),
        say=lambda model: (
            f"{model.model_type} with {model.first_k_dense_replace} dense layers (mlp_only_layers of config.json):"
            " the key is not read, and every layer is built with experts"
        ),
        fields=("model.first_k_dense_replace",),
        source=_PARSER,
    ),
)
"""Models that Megatron-SWIFT cannot build."""


def rows() -> tuple[Unbuildable, ...]:
    """Return the models that Megatron-SWIFT cannot build."""
    return ROWS


def stacks_layers(model: Model) -> bool:
    """Return whether a torch_dist checkpoint has all layers of a model as one tensor.

    False where `moe_layer_freq` is a list (megatron-core 0.16.1 transformer/transformer_block.py:833). The bridge
    builds such a list wherever config.json has first_k_dense_replace, even if it is 0.
    """
    if model.is_moe and model.model_type in _LISTS_LAYERS:
        return False
    return not model.is_moe or (model.first_k_dense_replace == 0 and model.moe_layer_freq == 1)

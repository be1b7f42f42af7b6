"""Model families that Megatron-SWIFT can build, by version, and whether their checkpoints stack layers.

Up to 3.9 swift's own classes read config.json, from 3.10 on a bridge (swift/megatron/model, since 4.1 mcore-bridge).
"""

from collections.abc import Mapping
from dataclasses import field

from backends.megatron.mapping.attention_variants import linear_pattern_is_lost
from launcher.families.registry import FAMILIES as RECORDS
from launcher.job import Job
from launcher.job.model import Model
from launcher.mapping.family_row import FamilyRow, by_family
from launcher.mapping.unbuildable_models import Unbuildable
from launcher.records import dataclass

THREE, FOUR = "3.99", "4.0"
# Version whose bridge the tests compare with; its modules of linear and of sparse attention are recent.
_COMPARED = "4.6"
# swift's model types: swift/model/constant.py @4.6.0, @4.1.3, @4.0.0; swift/llm/model/constant.py @3.x.
# Templates: that of most models of a family, swift/model/models/{qwen,llama,deepseek,glm,llm}.py @4.6.0.
_SOURCE = "mcore-bridge 1.6.5 model/gpts/llm.py; ms-swift 3.12.6, 3.6.4 megatron/model/gpt/__init__.py"
_NO_MODEL = "no Megatron model of this family"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwiftFamily(FamilyRow):
    """What ms-swift says of a family; `names` are its model types.

    Attributes:
        template: chat template of most of its models.
        templates: chat template by the size of the vocabulary and whether the rotary embedding is scaled, where a model
            has another.
        hub_names: pattern of its names on a hub, for families with experts.
        reads_dense_layers: its dense layers among MoE layers are read from config.json. The bridge reads
            first_k_dense_replace, but neither mlp_only_layers nor decoder_sparse_step.
        lists_layers: its config.json has first_k_dense_replace, whatever the value.
    """

    source: str = _SOURCE
    cannot: str = _NO_MODEL
    template: str | None = None
    hub_names: str = ""
    reads_dense_layers: bool = True
    lists_layers: bool = False
    templates: Mapping[tuple[int, bool], str] = field(default_factory=dict)

    def template_of(self, model: Model) -> str | None:
        """Return the chat template of a model."""
        return self.templates.get((model.vocab_size or 0, model.rope_scaling.type is not None), self.template)


FAMILIES = by_family(
    SwiftFamily(
        model_type="llama",
        names=((FOUR, None, "llama"), (None, THREE, "llama3_2")),
        template="llama3_2",
        # Llama 2 and 3. That of 3.1 and later, llama3_2, begins every sample with the date of the training.
        templates={(32000, False): "llama", (128256, False): "llama3"},
    ),
    SwiftFamily(model_type="qwen2", names=((FOUR, None, "qwen2"), (None, THREE, "qwen2_5")), template="qwen2_5"),
    SwiftFamily(model_type="qwen3", names=((None, None, "qwen3"),), template="qwen3"),
    SwiftFamily(
        model_type="qwen2_moe",
        names=((None, None, "qwen2_moe"),),
        template="qwen",
        hub_names=r"Qwen1\.5-MoE|Qwen2-57B-A14B",
        reads_dense_layers=False,
    ),
    SwiftFamily(
        model_type="qwen3_moe",
        names=((None, None, "qwen3_moe"),),
        template="qwen3",
        hub_names=r"Qwen3-(?!Next|VL|Omni).*\d+B-A\d+B",
        reads_dense_layers=False,
    ),
    SwiftFamily(
        model_type="qwen3_next",
        names=(("3.12", None, "qwen3_next"),),
        template="qwen3_nothinking",
        hub_names=r"Qwen3-Next-",
        weights_since=_COMPARED,
    ),
    *(
        SwiftFamily(
            model_type=name,
            names=((FOUR, None, name),),
            cannot="it came with 4.0",
            template="qwen3_5",
            hub_names=hub_names,
            weights_since=_COMPARED,
            source="ms-swift 4.0.0 megatron/model/mm_gpts/qwen3_5.py; mcore-bridge 1.6.5 model/mm_gpts/qwen3_5_gdn.py",
        )
        for name, hub_names in (("qwen3_5", ""), ("qwen3_5_moe", r"Qwen3\.[56]-\d+B-A\d+B"))
    ),
    SwiftFamily(
        model_type="qwen2_5_vl",
        names=(("3.10", None, "qwen2_5_vl"),),
        cannot="that earlier versions train it is not known here",
        template="qwen2_5_vl",
        weights_since=_COMPARED,
        source="ms-swift 3.10.0 megatron/model/mm_gpt/qwen.py; mcore-bridge 1.6.5 model/mm_gpts/qwen.py",
    ),
    *(
        SwiftFamily(
            model_type=name,
            names=(("3.10", None, name),),
            cannot="that earlier versions train it is not known here",
            template="qwen3_vl",
            hub_names=hub_names,
            reads_dense_layers=False,
            weights_since=_COMPARED,
            source="ms-swift 3.10.0 megatron/model/mm_gpt/qwen3_vl.py; mcore-bridge 1.6.5 model/mm_gpts/qwen3_vl.py",
        )
        for name, hub_names in (("qwen3_vl", ""), ("qwen3_vl_moe", r"Qwen3-VL-\d+B-A\d+B"))
    ),
    SwiftFamily(
        model_type="deepseek_v2",
        names=(("3.6", None, "deepseek_v2"),),
        template="deepseek_v2_5",
        hub_names=r"DeepSeek-(Coder-)?V2",
        lists_layers=True,
    ),
    SwiftFamily(
        model_type="deepseek_v3",
        names=((FOUR, None, "deepseek_v3"), ("3.6", THREE, "deepseek_v2_5")),
        template="deepseek_v2_5",
        hub_names=r"DeepSeek-(V3|R1)(-\d|-Base|$)|Kimi-K2",
        lists_layers=True,
    ),
    SwiftFamily(
        model_type="deepseek_v32",
        names=(("4.1", None, "deepseek_v32"), (FOUR, "4.0.99", "deepseek_v3_2")),
        template="deepseek_v3_1",
        hub_names=r"DeepSeek-V3\.2",
        lists_layers=True,
        weights_since=_COMPARED,
    ),
    SwiftFamily(
        model_type="deepseek_v4",
        names=(("4.3", None, "deepseek_v4"),),
        cannot="it came with 4.3",
        template="deepseek_v4",
        hub_names=r"DeepSeek-V4(?!\.)",
        source="mcore-bridge 1.5.0 (none in 1.4.0), 1.6.5 model/gpts/deepseek_v4.py; ms-swift 4.3.2 megatron/init.py",
    ),
    SwiftFamily(
        model_type="glm4_moe",
        names=((FOUR, None, "glm4_moe"), ("3.12", THREE, "glm4_5")),
        template="glm4_5",
        hub_names=r"GLM-4\.[567](-Air|-Base|-FP8|$)",
        lists_layers=True,
    ),
    SwiftFamily(
        model_type="glm4_moe_lite",
        names=((FOUR, None, "glm4_moe_lite"),),
        template="glm4_7",
        hub_names=r"GLM-4\.7-Flash",
        lists_layers=True,
    ),
    SwiftFamily(
        model_type="glm_moe_dsa",
        names=((FOUR, None, "glm_moe_dsa"),),
        template="glm4_7",
        hub_names=r"GLM-5",
        lists_layers=True,
    ),
    SwiftFamily(model_type="gpt_oss", names=(("3.12", None, "gpt_oss"),), template="gpt_oss", hub_names=r"gpt-oss-\d"),
    SwiftFamily(model_type="mistral"),
    SwiftFamily(model_type="phi3"),
    SwiftFamily(model_type="internlm2"),
    SwiftFamily(
        model_type="internlm3",
        names=(("3.12", None, "internlm3"),),
        cannot="that earlier versions train it is not known here",
        template="internlm2",
        source="ms-swift 4.0.0 megatron/model/gpts/__init__.py; mcore-bridge 1.6.5 model/gpts/llm.py:9",
    ),
    SwiftFamily(
        model_type="ernie4_5",
        names=((FOUR, None, "ernie4_5"), ("3.6", THREE, "ernie")),
        cannot="it came with 3.6",
        template="ernie",
        source="ms-swift 3.6.4 megatron/model/gpt/__init__.py:50; mcore-bridge 1.6.5 model/gpts/llm.py:11",
    ),
    SwiftFamily(model_type="seed_oss"),
    SwiftFamily(model_type="gemma2"),
    SwiftFamily(model_type="gemma3_text"),
    SwiftFamily(
        model_type="minimax_m2",
        names=(("3.12", None, "minimax_m2"),),
        template="minimax_m2",
        hub_names=r"MiniMax-M2",
        source="ms-swift 3.12.6 megatron/model/gpt/minimax_m2.py:119; mcore-bridge 1.6.5 model/gpts/minimax_m2.py",
    ),
    SwiftFamily(
        model_type="olmoe",
        names=((FOUR, None, "olmoe"),),
        cannot="it came with 4.0",
        template="olmoe",
        hub_names=r"OLMoE-",
        source="ms-swift 4.0.0 megatron/model/gpts/olmoe.py:227; mcore-bridge 1.6.5 model/gpts/olmoe.py:105",
    ),
    SwiftFamily(model_type="mixtral"),
    SwiftFamily(
        model_type="llama4_text",
        cannot="only the model with the vision tower (model_type llama4), not the language model alone",
        source="mcore-bridge 1.6.5 model/mm_gpts/llama4.py:100; ms-swift 3.12.6 megatron/model/mm_gpt/llama4.py",
    ),
)
# Ranges of versions with the same families.
_RANGES = (("4.3", None), ("4.1", "4.2.99"), (FOUR, "4.0.99"), ("3.12", THREE), ("3.6", "3.11.99"), (None, "3.5.99"))
_PARSER = (
    "mcore-bridge 1.6.5 config/parser.py:431; ms-swift 3.12.6 megatron/utils/config.py:201, 3.6.4 megatron/model/gpt"
)


def ids(version: str) -> Mapping[str, str]:
    """Return the model families that a version supports, mapped to swift's model types."""
    return {row.model_type: name for row in FAMILIES.values() if (name := row.name(version)) is not None}


def _unknown(since: str | None, until: str | None) -> Unbuildable:
    known = ids(since or "3.5")
    return Unbuildable(
        doc="Families without a Megatron model.",
        when=lambda model: model.model_type is not None and model.model_type not in known,
        describe=lambda model: f"no Megatron model of {model.model_type} (it has {', '.join(known)})",
        fields=("model.model_type",),
        source=_SOURCE,
        since=since,
        until=until,
    )


def _row(model: Model) -> SwiftFamily:
    return FAMILIES.get(model.model_type or "") or SwiftFamily(model_type="")


def _dense_layers(model: Model) -> int:
    return sum(not model.has_experts_at(layer) for layer in range(model.num_hidden_layers or 0))


ROWS: tuple[Unbuildable, ...] = (
    *(_unknown(*row) for row in _RANGES),
    Unbuildable(
        id="SW-BUILD-BIAS",
        doc="Dense layers with biases are built and then cannot be filled with weights, or are filled without biases.",
        when=lambda model: model.linear_bias and not model.is_moe,
        describe=lambda model: (
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
            not _row(model).reads_dense_layers
            and model.mixes_dense_layers
            and model.moe_layer_freq == 1
            and not {"first_k_dense_replace", "mlp_only_layers"} & set(model.overridden)
        ),
        describe=lambda model: (
            f"{model.model_type} with {_dense_layers(model)} dense layers (mlp_only_layers, decoder_sparse_step of"
            " config.json): the keys are not read, and every layer is built with experts"
        ),
        fields=("model.first_k_dense_replace", "model.mlp_only_layers"),
        source=_PARSER,
    ),
    Unbuildable(
        id="SW-BUILD-OUTPUT-BIAS",
        doc="A bias on the output projection of attention is not built without biases on all linear layers.",
        when=lambda model: model.has_attention_output_bias != model.linear_bias,
        describe=lambda model: (
            "attention_output_bias (attention_bias of config.json): it is read as biases of query, key and value, and"
            " the output projection gets none"
        ),
        fields=("model.attention_output_bias", "model.linear_bias"),
        source="mcore-bridge 1.6.5 config/parser.py:22; megatron-core 0.16.1 transformer/attention.py:355",
        works=("model.attention_output_bias=null",),
        covers=("model.attention_output_bias",),
    ),
    Unbuildable(
        id="SW-BUILD-LINEAR-LAYERS",
        doc="Linear attention in another pattern than three of four layers: every fourth layer attends fully anyway.",
        when=linear_pattern_is_lost,
        describe=lambda model: (
            f"full_attention_interval {model.full_attention_interval}: transformers since 5.4 keeps it as layer_types,"
            " which is not read, and every fourth layer attends fully; with transformers before 5.4 it is read:"
            " rules.disable=[SW-BUILD-LINEAR-LAYERS]"
        ),
        fields=("model.full_attention_interval", "model.experimental_attention_variant"),
        # transformers 4.57.3 and 5.3.0 hand the key on (kwargs.get); mcore-bridge 1.0.2 and 1.2.3 read as 1.6.5 does.
        source="mcore-bridge 1.6.5 config/parser.py:50; transformers 5.4.0 configuration_qwen3_next.py (kwargs.pop)",
        since="4.1",
        until="4.2.99",
    ),
    Unbuildable(
        id="SW-BUILD-DENSE-COUNT",
        doc="More dense layers than layers: the pattern that is made of config.json has a negative number in it.",
        when=lambda model: (
            model.is_moe
            and _row(model).reads_dense_layers
            and model.first_k_dense_replace > (model.num_hidden_layers or 0)
            and not {"first_k_dense_replace", "num_hidden_layers", "moe_layer_freq"} & set(model.overridden)
        ),
        describe=lambda model: (
            f"first_k_dense_replace {model.first_k_dense_replace} of config.json with {model.num_hidden_layers} layers:"
            f" at most {model.num_hidden_layers}"
        ),
        fields=("model.first_k_dense_replace", "model.num_hidden_layers"),
        source=f"{_PARSER}; mcore-bridge 1.6.5 config/model_config.py:26 (invalid pattern)",
    ),
)
"""Models that Megatron-SWIFT cannot build."""


def rows() -> tuple[Unbuildable, ...]:
    """Return the models that Megatron-SWIFT cannot build."""
    return ROWS


def stacks_layers(model: Model) -> bool:
    """Return whether a torch_dist checkpoint has all layers of a model as one tensor.

    False where `moe_layer_freq` is a list (megatron-core 0.16.1 transformer/transformer_block.py:833), or layers have
    linear or compressed attention (dev d48bd6be transformer/transformer_config.py:1764). The bridge
    builds such a list wherever config.json has first_k_dense_replace, even if it is 0.
    """
    own = model.experimental_attention_variant in ("gated_delta_net", "dsv4_hybrid")
    if own or (model.is_moe and _row(model).lists_layers):
        return False
    return not model.mixes_dense_layers


def families() -> Mapping[str, SwiftFamily]:
    """Return the rows of all families."""
    return FAMILIES


def is_multimodal(job: Job) -> bool:
    """Return whether a model is of a family, or has a name, that also reads images, audio or video."""
    record = RECORDS.get(job.model.model_type or "")
    if record is not None and record.outer is not None:
        return True
    words = f"{job.model.hub_id or ''} {job.model.path or ''} {job.model.model_type or ''}".lower()
    return any(
        sign in words for sign in ("vl", "omni", "ovis", "glm4v", "4.5v", "4.6v", "vision", "llava", "kimi-k2.5")
    )

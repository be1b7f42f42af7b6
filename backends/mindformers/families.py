"""Which of MindFormers' classes train a model family, per version, and the defaults of these classes."""

from collections.abc import Mapping
from dataclasses import field

from launcher.catalogue.versions import in_range
from launcher.job import Value
from launcher.mapping.family_row import FamilyRow, Named, by_family, name_in
from launcher.mapping.unbuildable_models import Unbuildable
from launcher.records import dataclass

# Defaults of each config class for keys that a file omits: its signature and registered parameters.
# A file with a directory of weights uses that directory's config.json instead.
_DEEPSEEK: Mapping[str, Value] = {
    "model.vocab_size": 129280,
    "model.hidden_size": 7168,
    "model.intermediate_size": 18432,
    "model.moe_intermediate_size": 2048,
    "model.num_hidden_layers": 61,
    "model.num_nextn_predict_layers": 1,
    "model.num_attention_heads": 128,
    "model.num_key_value_heads": 128,
    "model.num_experts": 256,
    "model.num_experts_per_tok": 8,
    "model.routed_scaling_factor": 2.5,
    "model.kv_lora_rank": 512,
    "model.qk_rope_head_dim": 64,
    "model.qk_nope_head_dim": 128,
    "model.v_head_dim": 128,
    "model.n_group": 8,
    "model.topk_group": 4,
    "model.first_k_dense_replace": 3,
    "model.norm_topk_prob": True,
    "model.scoring_func": "sigmoid",
    "model.router_expert_bias": True,
    "model.max_position_embeddings": 4096,
}
_QWEN3: Mapping[str, Value] = {
    "model.vocab_size": 151936,
    "model.hidden_size": 4096,
    "model.intermediate_size": 22016,
    "model.num_hidden_layers": 32,
    "model.num_attention_heads": 32,
    "model.num_key_value_heads": 32,
    "model.head_dim": 128,
    "model.max_position_embeddings": 32768,
    "model.qk_layernorm": True,
}
_QWEN3_MOE: Mapping[str, Value] = {
    **{path: value for path, value in _QWEN3.items() if path != "model.head_dim"},
    "model.hidden_size": 2048,
    "model.intermediate_size": 6144,
    "model.num_hidden_layers": 24,
    "model.num_key_value_heads": 4,
    "model.num_experts": 128,
    "model.num_experts_per_tok": 8,
    "model.moe_intermediate_size": 768,
    "model.norm_topk_prob": False,
}
_PYNATIVE = "only its pynative trainer builds it, not the static graph"
# The classes of the mcore static graph (use_legacy: False) that are not named here build for inference only and raise
# NotImplementedError "Train mode is not supported" when they are trained (models/qwen2/modeling_qwen2.py:54 @2.1.0,
# models/qwen3/modeling_qwen3.py:54 @1.6.0); Llama and Mixtral have no mcore class at all.
_SOURCE = "MindFormers 2.1.0 and 1.6.0, models/*/modeling_*.py"
_INFERENCE = "its mcore class builds for inference only"
_LEGACY = "only with model.legacy=true: it has no mcore class that trains"
_NONE = "it has no class of this family"
# LlamaForCausalLM (models/llama) is in both packages; research/deepseek3 (deepseek2_model.py, deepseek3.py) is only in
# 1.6's repository.
_LLAMA: tuple[Named, ...] = ((None, None, "LlamaForCausalLM"),)
_V2: tuple[Named, ...] = ((None, "1.99", "DeepseekV2ForCausalLM (research/deepseek3)"),)
_V3: tuple[Named, ...] = ((None, "1.99", "DeepseekV3ForCausalLM (research/deepseek3)"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class MindFormersFamily(FamilyRow):
    """What MindFormers says of a family; `names` are its trainable classes of the mcore graph.

    Attributes:
        older: trainable classes of use_legacy: True, by version.
        older_config: class of the section in a file of use_legacy: True; None: no such file is written.
        registered: whether the package registers the older class; False: `register_path` must name its folder.
        defaults: by first version, newest first: fields that the mcore class sets where a file omits them.
    """

    source: str = _SOURCE
    cannot: str = _INFERENCE
    older: tuple[Named, ...] = ()
    older_config: str | None = None
    registered: bool = True
    defaults: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    def trains(self, version: str) -> bool:
        """Return whether a class of either graph trains the family."""
        return self.name(version) is not None or name_in(self.older, version) is not None

    def class_defaults(self, version: str) -> Mapping[str, Value]:
        """Return the fields that the mcore class of a version sets where a file omits them."""
        return next(found for first, found in self.defaults.items() if in_range(version, first, None))


FAMILIES = by_family(
    MindFormersFamily(model_type="llama", older=_LLAMA, cannot=_LEGACY, older_config="LlamaConfig"),
    MindFormersFamily(model_type="qwen2", older=_LLAMA, cannot=_LEGACY, older_config="LlamaConfig"),
    MindFormersFamily(model_type="qwen3", names=(("1.7", None, "Qwen3ForCausalLM"),), defaults={"1.7": _QWEN3}),
    MindFormersFamily(model_type="qwen2_moe", older=_LLAMA, cannot=_LEGACY),
    MindFormersFamily(
        model_type="qwen3_moe", names=(("1.7", None, "Qwen3MoeForCausalLM"),), defaults={"1.7": _QWEN3_MOE}
    ),
    MindFormersFamily(model_type="mixtral", older=_LLAMA, cannot=_LEGACY, older_config="LlamaConfig"),
    MindFormersFamily(model_type="deepseek_v2", older=_V2, cannot=_LEGACY),
    MindFormersFamily(
        model_type="deepseek_v3",
        names=((None, None, "DeepseekV3ForCausalLM"),),
        older=_V3,
        older_config="DeepseekV3Config",
        registered=False,
        defaults={
            "1.7": _DEEPSEEK,
            "1.6.0": {**_DEEPSEEK, "model.qk_layernorm": True, "moe.aux_loss_coeff": 0.0001},
        },
    ),
    MindFormersFamily(
        model_type="deepseek_v4",
        cannot=_PYNATIVE,
        no_weights=_PYNATIVE,
        source="MindFormers 2.1.0 models/deepseek4",
    ),
    *(
        MindFormersFamily(model_type=name, cannot=_NONE)
        for name in (
            "gemma2",
            "gemma3_text",
            "internlm2",
            "internlm3",
            "ernie4_5",
            "seed_oss",
            "mistral",
            "phi3",
            "olmoe",
            "minimax_m2",
            "deepseek_v32",
            "glm_moe_dsa",
            "glm4_moe",
            "glm4_moe_lite",
            "qwen3_next",
            "qwen2_5_vl",
            "qwen3_vl",
            "qwen3_vl_moe",
            "qwen3_5",
            "qwen3_5_moe",
            "gpt_oss",
            "llama4_text",
        )
    ),
)


OUTPUT_BIAS = Unbuildable(
    doc="A bias on the output projection of attention, but not on the MLP.",
    when=lambda model: model.has_attention_output_bias != model.linear_bias,
    describe=lambda model: (
        "attention_output_bias: the output projection of attention has a bias if the MLP has (add_bias_linear)"
    ),
    fields=("model.attention_output_bias", "model.linear_bias"),
    source="MindFormers 2.1.0 parallel_core/training_graph/transformer/attention.py:523",
)
DENSE_PLACES = Unbuildable(
    doc="Dense layers in between layers with experts.",
    when=lambda model: model.is_moe and bool(model.mlp_only_layers),
    describe=lambda model: "mlp_only_layers: its Qwen3-MoE class makes every layer an MoE layer",
    fields=("model.mlp_only_layers",),
    source="MindFormers 2.1.0 models/qwen3_moe/modeling_qwen3_moe_train.py:49",
)


NORMS_OF_OUTPUTS = Unbuildable(
    doc="Norms of the outputs of attention and feed-forward network.",
    when=lambda model: bool(model.norms_of_outputs),
    describe=lambda model: "norms_of_outputs: the outputs of its layers are not normalised",
    fields=("model.norms_of_outputs",),
    source="MindFormers 2.1.0 parallel_core/training_graph/transformer/transformer_layer.py",
)
WIDE_NORM = Unbuildable(
    doc="Queries and keys normalised over all heads together.",
    when=lambda model: model.normalises_all_heads,
    describe=lambda model: "qk_norm_type per_layer: query and key heads are normalised one by one",
    fields=("model.qk_norm_type",),
    source="MindFormers 2.1.0 models/qwen3/modeling_qwen3_train.py:46",
)


def rows() -> tuple[Unbuildable, ...]:
    """Return the models that MindFormers cannot build."""
    return OUTPUT_BIAS, DENSE_PLACES, NORMS_OF_OUTPUTS, WIDE_NORM


def trainable(version: str) -> Mapping[str, str]:
    """Return the families that the mcore graph of a version trains, with their classes."""
    return {family: name for family, row in FAMILIES.items() if (name := row.name(version)) is not None}


def older(version: str) -> Mapping[str, str]:
    """Return the families that the classes of use_legacy: True train, with these classes."""
    return {family: name for family, row in FAMILIES.items() if (name := name_in(row.older, version)) is not None}


def families() -> Mapping[str, MindFormersFamily]:
    """Return the rows of all families."""
    return FAMILIES

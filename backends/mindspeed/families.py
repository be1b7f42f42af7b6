"""What MindSpeed-LLM calls model families: in its weight converter, its layer specifications and its templates."""

from collections.abc import Mapping
from dataclasses import replace

from backends.megatron_lm.families import OUTPUT_BIAS, WIDE_NORM
from launcher.catalogue.versions import in_range
from launcher.job.model import Model
from launcher.mapping.family_row import FamilyRow, by_family
from launcher.mapping.unbuildable_models import Unbuildable
from launcher.records import dataclass

# Names of --model-type-hf: mindspeed_llm/features_manager/convert_checkpoint/convert_checkpoint.py:27 @26.1.0; Llama of
# any generation goes through llama2 (docs/zh/pytorch/solutions/checkpoint). Templates: --prompt-type of upstream
# examples.
_SOURCE = "MindSpeed-LLM 26.1.0 features_manager/convert_checkpoint/convert_checkpoint.py:27, examples/mcore"
_LINEAR = "how its own linear attention stores its weights is not known here"
_PLAIN = "GPTModel"
_LATER = "it came after 2.1.0"
_INDEXER = "how its own indexer (DSA) stores its weights is not known here"
_MASTER = ("master", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MindSpeedFamily(FamilyRow):
    """What MindSpeed-LLM says of a family; `names` are modules of layer specifications, or Megatron's own model.

    Attributes:
        converter: name of --model-type-hf; None: its weight converter does not know the family.
        at_start: first and last version whose start of training converts the weights; None: no version is known to
            (mindspeed_llm/training/initialize.py:231 @2.3.0 and @26.0.0, :245 @26.1.0, :251 @master).
        template: chat template of raw chats, which are read since 2.3; None: depends on the model, or none is known.
    """

    source: str = _SOURCE
    names: tuple[tuple[str | None, str | None, str], ...] = ((None, None, _PLAIN),)
    converter: str | None = None
    at_start: tuple[str | None, str | None] | None = ("2.3", None)
    template: str | None = None

    def converts_at_start(self, version: str) -> bool:
        """Return whether the start of training converts the family's weights."""
        return self.converter is not None and self.at_start is not None and in_range(version, *self.at_start)


QWEN2_MOE, QWEN3, DEEPSEEK, GEMMA2 = "qwen2_moe_spec", "qwen3_spec", "deepseek_spec", "gemma2_spec"
COMPRESSED = "deepseek4_spec"
MINIMAX, MINIMAX_SINCE = "minimax_spec", "master"
_ALL_QWEN3 = ((None, None, QWEN3),)
_ALL_DEEPSEEK = ((None, None, DEEPSEEK),)

FAMILIES = by_family(
    MindSpeedFamily(model_type="llama", converter="llama2"),
    # `qwen` has another system prompt than Qwen2.5's own chat template and does not learn the line end after an answer;
    # `qwen_lf` is ms-swift's `qwen2_5` (configs/finetune/templates.json @26.1.0).
    MindSpeedFamily(model_type="qwen2", converter="qwen25", at_start=_MASTER, template="qwen_lf"),
    MindSpeedFamily(model_type="qwen3", names=_ALL_QWEN3, converter="qwen3", template="qwen3"),
    MindSpeedFamily(
        model_type="qwen2_moe",
        names=((None, None, QWEN2_MOE),),
        converter="qwen2-moe",
        at_start=_MASTER,
        template="qwen",
    ),
    MindSpeedFamily(model_type="qwen3_moe", names=_ALL_QWEN3, converter="qwen3-moe", template="qwen3"),
    MindSpeedFamily(model_type="mistral", template="mistral"),
    MindSpeedFamily(model_type="mixtral", converter="mixtral", at_start=_MASTER, template="mixtral"),
    MindSpeedFamily(model_type="phi3"),
    MindSpeedFamily(model_type="seed_oss", converter="seed-oss"),
    MindSpeedFamily(model_type="internlm2", template="intern2"),
    MindSpeedFamily(model_type="internlm3", template="intern2"),
    MindSpeedFamily(
        model_type="ernie4_5",
        source="MindSpeed-LLM 2.1.0 and 26.1.0 core/models/common/embeddings/rotary_pos_embedding.py (interleaved)",
    ),
    MindSpeedFamily(
        model_type="gemma2",
        names=((None, None, GEMMA2),),
        converter="gemma2",
        at_start=_MASTER,
        template="gemma",
        source="MindSpeed-LLM 26.1.0 tasks/models/spec/gemma2_spec.py, examples/mcore/gemma2",
    ),
    MindSpeedFamily(
        model_type="gemma3_text",
        names=(),
        cannot="its layers have one kind of positions, and a window in every second layer only",
        source="MindSpeed-LLM 26.1.0 tasks/models/transformer/transformer_layer.py:60 (it has Gemma 1 and 2 only)",
    ),
    MindSpeedFamily(
        model_type="deepseek_v2",
        names=_ALL_DEEPSEEK,
        converter="deepseek2",
        at_start=_MASTER,
        template="deepseek2",
    ),
    MindSpeedFamily(
        model_type="deepseek_v3",
        names=_ALL_DEEPSEEK,
        converter="deepseek3",
        at_start=("2.3", "26.1.0"),
        template="deepseek3",
    ),
    MindSpeedFamily(model_type="deepseek_v32", names=(("2.3", None, DEEPSEEK),), cannot=_LATER, no_weights=_INDEXER),
    MindSpeedFamily(model_type="glm_moe_dsa", names=(("2.3", None, DEEPSEEK),), cannot=_LATER, no_weights=_INDEXER),
    MindSpeedFamily(
        model_type="deepseek_v4",
        names=(("26.1", None, COMPRESSED),),
        cannot="it came with 26.1",
        weights_since="26.1",
        source="MindSpeed-LLM 26.1.0 tasks/models/spec/deepseek4_spec.py, examples/mcore/deepseek4_flash",
    ),
    MindSpeedFamily(model_type="glm4_moe"),
    MindSpeedFamily(model_type="glm4_moe_lite", names=_ALL_DEEPSEEK),
    MindSpeedFamily(
        model_type="qwen3_next", names=(("2.2", None, "qwen3_next_spec"),), cannot=_LATER, no_weights=_LINEAR
    ),
    *(
        MindSpeedFamily(
            model_type=name,
            names=((MINIMAX_SINCE, None, MINIMAX),),
            cannot="query and key heads are normalised one by one",
            converter=converter,
            at_start=_MASTER,
            source="MindSpeed-LLM master tasks/models/spec/minimax_spec.py, examples/mcore/minimax27",
        )
        for name, converter in (("olmoe", None), ("minimax_m2", "minimax_m2"))
    ),
    MindSpeedFamily(model_type="llama4_text", names=(), cannot="all of its layers have the same positions"),
    *(
        MindSpeedFamily(
            model_type=name,
            names=(),
            cannot="no layer specification of it, and no multimodal model: MindSpeed-MM trains those",
            source="MindSpeed-LLM 26.1.0, master c77308a1 mindspeed_llm/tasks/models/spec; MindSpeed-MM mindspeed_mm",
        )
        for name in ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
    ),
    MindSpeedFamily(model_type="gpt_oss", names=(), cannot="it has no argument for the offset of its activation"),
)


DENSE_PLACES = Unbuildable(
    doc="Dense layers in between layers with experts.",
    when=lambda model: model.is_moe and bool(model.mlp_only_layers),
    describe=lambda model: "mlp_only_layers: only the first layers can be dense (--first-k-dense-replace)",
    fields=("model.mlp_only_layers",),
    source="MindSpeed-LLM 26.1.0 core/transformer/transformer_block.py:163",
)
SOME_WINDOWS = Unbuildable(
    doc="An attention window in some layers only.",
    when=lambda model: model.sliding_window is not None and bool(model.full_attention_layers) and not alternates(model),
    describe=lambda model: (
        "full_attention_layers: a window holds in all layers (--sliding-window), or in every second one of Gemma 2's"
    ),
    fields=("model.full_attention_layers",),
    source="MindSpeed-LLM 26.1.0 core/transformer/custom_dot_product_attention.py:280",
)


def alternates(model: Model) -> bool:
    """Return whether the layers with a window are the first, third, fifth …, as those of gemma2_spec."""
    layers = model.num_hidden_layers or 0
    return bool(model.norms_of_outputs) and set(model.full_attention_layers) == set(range(1, layers, 2))


def is_named(model_type: str | None, spec: str) -> bool:
    """Return whether a layer specification is that of a family."""
    row = FAMILIES.get(model_type or "")
    return row is not None and any(name == spec for _, _, name in row.names)


def rows() -> tuple[Unbuildable, ...]:
    """Return the models that MindSpeed-LLM cannot build in any version; the mapping table reports them."""
    families = (_unbuildable(row) for row in FAMILIES.values() if not row.names)
    wide = replace(WIDE_NORM, until="26.1.0", source=f"MindSpeed-LLM {MINIMAX_SINCE} tasks/models/spec/minimax_spec.py")
    return DENSE_PLACES, SOME_WINDOWS, OUTPUT_BIAS, wide, *families


def _unbuildable(row: MindSpeedFamily) -> Unbuildable:
    return Unbuildable(
        doc=f"The family {row.model_type}.",
        when=lambda model: model.model_type == row.model_type,
        describe=lambda model: row.cannot,
        fields=("model.model_type",),
        source=row.source,
    )


def families() -> Mapping[str, MindSpeedFamily]:
    """Return the rows of all families."""
    return FAMILIES

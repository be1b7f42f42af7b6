"""Models that Megatron-LM cannot build; its mapping table uses the same conditions to reject them."""

from launcher.mapping.unbuildable_models import Unbuildable

ALL_DENSE = Unbuildable(
    doc="A mixture of experts all of whose layers are dense.",
    when=lambda model: model.is_moe and model.first_k_dense_replace >= (model.num_hidden_layers or 0),
    say=lambda model: "the pattern of layers needs more layers than dense ones",
    fields=("model.first_k_dense_replace",),
    source="Megatron-LM core_v0.16.1 training/arguments.py:231 moe_freq_type",
)
SHARED_GATE = Unbuildable(
    doc="Shared experts with a gate.",
    when=lambda model: model.is_moe and bool(model.shared_expert_gate),
    say=lambda model: "the shared expert has no gate before core 0.16",
    fields=("model.shared_expert_gate",),
    source="Megatron-LM core_v0.12.1 core/transformer/moe/shared_experts.py",
    until="0.15.9",
)


def rows() -> tuple[Unbuildable, ...]:
    """Return the models that Megatron-LM cannot build."""
    return ALL_DENSE, SHARED_GATE

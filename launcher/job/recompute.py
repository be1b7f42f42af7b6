"""Activation recomputation."""

from launcher.job.option import option
from launcher.job.sources import TRANSFORMER_CONFIG
from launcher.records import dataclass

_ASCEND = "Ascend MindSpeed features"
# What `selective` recomputes where `modules` lists nothing, on every backend.
SELECTIVE_MODULES = ("core_attn",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Activations recomputed in the backward pass instead of being stored."""

    granularity: str | None = option(
        None,
        "What is recomputed: whole layers or chosen modules.",
        source=f"{TRANSFORMER_CONFIG}.recompute_granularity",
        choices=("full", "selective"),
    )
    method: str | None = option(
        None,
        "full: in uniform groups of num_layers, or the first num_layers of each stage (block).",
        source=f"{TRANSFORMER_CONFIG}.recompute_method",
        choices=("uniform", "block"),
    )
    num_layers: int | None = option(
        None,
        "full: layers per group (uniform) or per stage (block).",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.recompute_num_layers",
        minimum=1,
    )
    layers_per_chunk: tuple[int, ...] = option(
        (),
        "full, block: layers of each chunk, in the model's order, at most num_layers; none: num_layers in all.",
        unit="layers",
        source="MindFormers recompute_config.recompute",
    )
    selective_layers_per_chunk: tuple[int, ...] = option(
        (),
        "modules, activation, norm: layers of each chunk, after those recomputed in full; none: all the rest.",
        unit="layers",
        source="MindFormers recompute_config.select_recompute",
    )
    modules: tuple[str, ...] = option(
        (),
        "selective: what to recompute.",
        source=f"{TRANSFORMER_CONFIG}.recompute_modules",
        choices=("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"),
    )
    activation: bool | None = option(
        None, "Recompute the activation function.", source=f"{_ASCEND} --recompute-activation-function"
    )
    activation_num_layers: int | None = option(
        None, "Layers whose activation function is recomputed.", unit="layers", source=_ASCEND, minimum=0
    )
    norm: bool | None = option(None, "Recompute normalisations.", source=f"{_ASCEND} --recompute-norm")
    norm_num_layers: int | None = option(
        None, "Layers whose normalisations are recomputed.", unit="layers", source=_ASCEND, minimum=0
    )
    per_pp_rank: bool | None = option(
        None, "num_layers counts per stage, not per chunk.", source=f"{_ASCEND} --enable-recompute-layers-per-pp-rank"
    )
    in_bubble: bool | None = option(None, "Recompute inside pipeline bubbles.", source=_ASCEND)
    in_advance: bool | None = option(None, "Recompute before the gradient is received.", source=_ASCEND)
    distribute_saved_activations: bool | None = option(
        None, "Distribute saved activations over tp.", source=f"{TRANSFORMER_CONFIG}.distribute_saved_activations"
    )
    communication: bool | None = option(
        None, "Repeat tensor-parallel communication while recomputing.", source="MindFormers mp_comm_recompute"
    )
    optimizer_communication: bool | None = option(
        None,
        "Repeat the gathering of sharded weights while recomputing.",
        source="MindFormers parallel_optimizer_comm_recompute",
    )

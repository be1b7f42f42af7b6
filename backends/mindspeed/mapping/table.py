"""Mapping table of MindSpeed-LLM: its own rows, and Megatron-LM's for all other fields."""

from dataclasses import replace
from functools import cache

from backends.megatron_lm.mapping import details, services
from backends.megatron_lm.mapping import table as megatron
from backends.megatron_lm.mapping.sharding import CUDA_GRAPHS
from backends.mindspeed.mapping import attention_variants as variants
from backends.mindspeed.mapping import checkpoints as start
from backends.mindspeed.mapping import data, model, parallel, training
from backends.mindspeed.mapping import services as beside
from backends.mindspeed.mapping import version_2_1 as old_names
from backends.mindspeed.versions import CORE, catalogue
from launcher.mapping.inherit import extend
from launcher.mapping.rows import Gap, Row, Table, switch, switch_off


@cache
def table(version: str) -> Table:
    """Return the whole mapping of one version."""
    is_old = version == "2.1.0"
    rows = (*_first(is_old), *_extended(version, is_old), *_added(is_old))
    gaps = {path: _without_versions(gap) for path, gap in megatron.table("0.12.1").unsupported.items()}
    gaps.update({**_GAPS, **beside.GAPS, **variants.GAPS})
    if is_old:
        gaps.update(old_names.GAPS)
        gaps.update({**services.BEFORE_0_12, **beside.OLD_GAPS, **variants.GAPS_2_1, **beside.UNREAD})
    mapped = {path for row in rows for path in row.fields}
    unsupported = {path: gap for path, gap in gaps.items() if path not in mapped}
    beside_graphs = dict.fromkeys(CUDA_GRAPHS[1:], f"only with {CUDA_GRAPHS[0]}, which it cannot express")
    aside = {**megatron.irrelevant(), **beside_graphs}
    irrelevant = {path: why for path, why in aside.items() if path not in mapped}
    return Table(rows=rows, unsupported=unsupported, irrelevant=irrelevant)


def _without_versions(gap: Gap) -> Gap:
    """Return a Megatron-LM gap without version hints, as MindSpeed-LLM numbers its versions differently."""
    return replace(gap, works=tuple(each for each in gap.works if not each.startswith("backend.version=")))


def _extended(version: str, is_old: bool) -> tuple[Row, ...]:
    """Return Megatron-LM's rows with those that MindSpeed-LLM replaces."""
    known = catalogue(version)
    return extend(
        megatron.rows(),
        CORE[version],
        replace=_replaced(is_old),
        drop=_DROPPED if is_old else (*_DROPPED, *_OF_CONVERSION),
        rename=old_names.NAMES if is_old else {"deterministic-mode": "npu-deterministic"},
        respell=lambda row: row if all(known.get(flag) is not None for flag in row.flags) else None,
    )


def _first(is_old: bool) -> tuple[Row, ...]:
    """Return the rows at the head of a command line: layer specification and renamed arguments."""
    if is_old:
        return (old_names.use_mcore(), old_names.aliases(), model.layer_spec(("deepseek_spec", "qwen3_spec")))
    return (training.aliases(), model.layer_spec())


def _replaced(is_old: bool) -> dict[str, tuple[Row, ...]]:
    """Return MindSpeed-LLM's rows by the canonical field whose Megatron-LM rows they replace."""
    rows: dict[str, tuple[Row, ...]] = {
        "task.type": (training.task(is_old), *training.preference(is_old), *training.lora()),
        "model.num_hidden_layers": (model.layer_count(), model.noop_layers()),
        "model.first_k_dense_replace": (model.expert_places(),),
        "model.sliding_window": (model.sliding_window(),),
        "model.rope_scaling.type": (model.rope_scaling(),),
        "tokenizer.type": (data.tokenizer(),),
        "tokenizer.padded_vocab_size": (data.vocabulary(),),
        "data.template": (data.template(is_old),),
        "data.paths": (data.data_paths(is_old), data.shuffle(), *(() if is_old else (data.workers(),))),
        "batch.packing": data.packing(is_old),
        "data.reset_attention_mask": (data.attention_mask(),),
        **_parallel(is_old),
        "profiler.enabled": start.logging(),
    }
    if is_old:
        return {**rows, **old_names.own(), **variants.of_2_1()}
    return {
        **rows,
        **variants.own(),
        "model.norm_topk_prob": (model.routing_scores(),),
        "moe.load_balancing_type": (model.balancing(),),
        "model.shared_expert_intermediate_size": (model.shared_experts()[0],),
        "model.shared_expert_gate": (model.shared_experts()[1],),
        "precision.fp8_recipe": (training.fp8_recipe(),),
        "optimizer.type": (training.optimizer(),),
        "optimizer.muon_momentum": details.muon(0.95, "muon-nesterov"),
        "logging.wandb_name": (start.wandb(),),
        "checkpoint.load": start.weights(),
    }


def _parallel(is_old: bool) -> dict[str, tuple[Row, ...]]:
    listed = parallel.stage_list(is_old)
    return {
        "parallel.vpp": (parallel.virtual_stages(),),
        "parallel.cp_algorithm": parallel.context_parallel(is_old),
        "parallel.first_stage_layers": (parallel.uneven_stages(),),
        "parallel.gloo": (switch_off("parallel.gloo", "disable-gloo-group"),),
        "moe.force_load_balancing": (switch("moe.force_load_balancing", "fix-router"),),
        "parallel.layout": (listed,) if is_old else (megatron_layout(), listed),
        "offload.optimizer": parallel.swap(),
        "moe.permute_fusion": (parallel.permutation(is_old), *parallel.overlap()),
        "kernels.attention_backend": (parallel.flash_attention(),),
        "kernels.transformer_impl": (parallel.layer_library(is_old),),
        **parallel.fusions(),
    }


# Megatron-LM's rows that do not apply: a reason in the gaps, or the row of another field that writes the argument.
_DROPPED = (
    "parallel.last_stage_layers",
    "offload.optimizer_fraction",
    "moe.deepep",
    *CUDA_GRAPHS,
    *beside.UNREAD,
)
# Written where Hugging Face weights are converted at start (`checkpoints.weights`).
_OF_CONVERSION = (
    "model.pretrained",
    *(f"checkpoint.{name}" for name in ("format", "finetune", "no_load_optim", "no_load_rng")),
)


def _added(is_old: bool) -> tuple[Row, ...]:
    """Return the rows of fields that Megatron-LM does not have."""
    later = () if is_old else (parallel.in_bubble(), beside.thinking(), *variants.added())
    return (
        parallel.two_dimensional(),
        *parallel.recompute(),
        parallel.rmsnorm_fusion(),
        beside.profiler(),
        beside.sparse_mode(),
        *beside.generation(is_old),
        *(old_names.added() if is_old else ()),
        *later,
    )


def megatron_layout() -> Row:
    """Return the row of an explicit pipeline layout, which MindSpeed supports before Megatron does."""
    found = next(row for row in megatron.rows() if row.fields == ("parallel.layout",))
    return replace(found, since=None, until=None)


_GAPS = {
    "lora.dropout": Gap(
        why="adapters have no dropout (training/training.py:186)", neutral=(0.0,), works=("lora.dropout=0",)
    ),
    "lora.rslora": Gap(why="the scale is alpha / rank", neutral=(False,), works=("lora.rslora=false",)),
    "lora.merge": Gap(why="merged weights are made by the converter", neutral=(False,), severity="warning"),
    "lora.quantization": Gap(why="quantised base weights were removed after 2.1.0", works=("lora.quantization=null",)),
    "task.simpo_gamma": Gap(why="SimPO was removed after 2.1.0", works=("backend.version=2.1.0",)),
    "task.desirable_weight": Gap(why="there is no KTO trainer"),
    "task.undesirable_weight": Gap(why="there is no KTO trainer"),
    CUDA_GRAPHS[0]: Gap(why="CUDA graphs are NVIDIA's", neutral=("none",), severity="warning"),
    "moe.deepep": Gap(why="DeepEP is an NVIDIA library", neutral=(False,), severity="warning"),
    "offload.optimizer_fraction": Gap(
        why="the optimizer is swapped as a whole, in pieces",
        neutral=(1.0,),
        severity="warning",
        works=("offload.optimizer_times=16",),
    ),
    "recompute.in_bubble": Gap(why="it came after 2.1.0", neutral=(False,), severity="warning"),
}

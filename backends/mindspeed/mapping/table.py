"""Mapping table of MindSpeed-LLM: its own rows, and Megatron-LM's for all other fields."""

from collections.abc import Iterable, Mapping
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
from launcher.catalogue.versions import in_range
from launcher.mapping.rows import Gap, Row, Table, switch, switch_off

# Megatron-LM that each version is built on. Source: docs/zh/release_notes_llm.md, table 1.
BASE = {"2.1.0": "0.8.0", "26.1.0": "0.12.1", "master": "0.12.1"}


@cache
def table(version: str) -> Table:
    """Return the whole mapping of one version."""
    is_old = version == "2.1.0"
    own = _own(is_old)
    rows = [*_first(is_old), *_merged(own, version)]
    gaps = {path: _without_versions(gap) for path, gap in megatron.table("0.12.1").unsupported.items()}
    gaps.update({**_GAPS, **beside.GAPS, **variants.GAPS})
    if is_old:
        gaps.update(old_names.GAPS)
        gaps.update({**services.BEFORE_0_12, **beside.OLD_GAPS, **variants.GAPS_2_1, **beside.UNREAD})
        rows = [row for row in rows if not set(row.flags) & old_names.ABSENT]
    mapped = {path for row in rows for path in row.fields}
    unsupported = {path: gap for path, gap in gaps.items() if path not in mapped}
    beside_graphs = dict.fromkeys(CUDA_GRAPHS[1:], f"only with {CUDA_GRAPHS[0]}, which it cannot express")
    aside = {**megatron.irrelevant(), **beside_graphs}
    irrelevant = {path: why for path, why in aside.items() if path not in mapped}
    return Table(rows=tuple(rows), unsupported=unsupported, irrelevant=irrelevant)


def _without_versions(gap: Gap) -> Gap:
    """Return a Megatron-LM gap without version hints, as MindSpeed-LLM numbers its versions differently."""
    return replace(gap, works=tuple(each for each in gap.works if not each.startswith("backend.version=")))


def _merged(own: Mapping[str, tuple[Row, ...]], version: str) -> Iterable[Row]:
    """Yield the rows of the underlying Megatron-LM version, replaced by MindSpeed-LLM's rows where it has any."""
    done: set[str] = set()
    for row in megatron.rows():
        if not in_range(BASE[version], row.since, row.until):
            continue
        key = row.fields[0] if row.fields else ""
        if key not in own:
            yield replace(row, since=None, until=None)
        elif key not in done:
            done.add(key)
            yield from own[key]
    yield from (row for key, rows in own.items() if key not in done for row in rows)


def _first(is_old: bool) -> tuple[Row, ...]:
    """Return the rows at the head of a command line: layer specification and renamed arguments."""
    if is_old:
        return (old_names.use_mcore(), old_names.aliases(), model.layer_spec(("deepseek_spec", "qwen3_spec")))
    return (training.aliases(), model.layer_spec())


def _own(is_old: bool) -> dict[str, tuple[Row, ...]]:
    """Return MindSpeed-LLM's rows by the canonical field whose Megatron rows they replace."""
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
        **_surroundings(is_old),
        "profiler.level": (beside.profiler(),),
        "kernels.sparse_mode": (beside.sparse_mode(),),
        "generation.temperature": beside.generation(is_old),
        **dict.fromkeys(beside.UNREAD, ()),
        "data.enable_thinking": () if is_old else (beside.thinking(),),
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
    }


def _parallel(is_old: bool) -> dict[str, tuple[Row, ...]]:
    in_bubble = () if is_old else (parallel.in_bubble(),)
    listed = parallel.stage_list(is_old)
    return {
        "parallel.vpp": (parallel.virtual_stages(),),
        "parallel.cp_algorithm": parallel.context_parallel(is_old),
        "parallel.first_stage_layers": (parallel.uneven_stages(),),
        "parallel.last_stage_layers": (),
        "parallel.tp_2d_x": (parallel.two_dimensional(),),
        "parallel.gloo": (switch_off("parallel.gloo", "disable-gloo-group"),),
        "moe.force_load_balancing": (switch("moe.force_load_balancing", "fix-router"),),
        "parallel.layout": (listed,) if is_old else (megatron_layout(), listed),
        "recompute.activation": (*parallel.recompute(), *in_bubble),
        "offload.optimizer": parallel.swap(),
        "offload.optimizer_fraction": (),
        "moe.permute_fusion": (parallel.permutation(is_old), *parallel.overlap()),
        "moe.deepep": (),
        **dict.fromkeys(CUDA_GRAPHS, ()),
        "kernels.attention_backend": (parallel.flash_attention(),),
        "kernels.transformer_impl": (parallel.layer_library(is_old),),
        **parallel.fusions(),
        "kernels.rmsnorm_fusion": (parallel.rmsnorm_fusion(),),
        "kernels.deterministic": (parallel.deterministic(is_old),),
    }


def megatron_layout() -> Row:
    """Return the row of an explicit pipeline layout, which MindSpeed supports before Megatron does."""
    found = next(row for row in megatron.rows() if row.fields == ("parallel.layout",))
    return replace(found, since=None, until=None)


def _surroundings(is_old: bool) -> dict[str, tuple[Row, ...]]:
    profiler = {"profiler.enabled": start.logging()}
    if is_old:
        return profiler
    weights = start.weights()
    return {
        **profiler,
        "checkpoint.load": weights,
        "model.pretrained": (),
        "checkpoint.format": (),
        "checkpoint.finetune": (),
        "checkpoint.no_load_optim": (),
        "checkpoint.no_load_rng": (),
    }


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

"""Mapping table of MindSpeed-LLM: its own rows, and Megatron-LM's for all other fields."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from backends.megatron_lm.mapping.kernels import CUDA_GRAPHS
from backends.megatron_lm.mapping.model import OLDER_ACTIVATIONS, activation_of
from backends.megatron_lm.mapping.optimizer import muon
from backends.megatron_lm.mapping.positions import refused_mscale
from backends.megatron_lm.mapping.table import irrelevant as megatron_irrelevant
from backends.megatron_lm.mapping.table import rows as megatron_rows
from backends.megatron_lm.mapping.table import table as megatron_table
from backends.megatron_lm.mapping.tokenizer import padding
from backends.mindspeed.families import DEEPSEEK, FAMILIES, GEMMA2, MINIMAX, MINIMAX_SINCE, QWEN2_MOE, QWEN3
from backends.mindspeed.mapping import (
    attention_variants,
    checkpoint,
    compressed,
    data,
    gemma,
    generation,
    kernels,
    logging,
    lora,
    memory,
    model,
    parallel,
    profiler,
    task,
    unsupported,
    version_2_1,
)
from backends.mindspeed.versions import CORE, REGISTERED, accepts, came_with, catalogue, choices
from launcher.catalogue.versions import in_range
from launcher.mapping.family_row import refusal
from launcher.mapping.inherit import extend
from launcher.mapping.rows import Gap, Row, Table, switch, switch_off, without


@cache
def table(version: str) -> Table:
    """Return the whole mapping of one version."""
    is_old = version == "2.1.0"
    declared = (
        *_first(version, is_old),
        *_extended(version, is_old),
        *_added(version, is_old),
        refusal(FAMILIES, version, REGISTERED.names),
    )
    rows = tuple(row for row in declared if accepts(version, *row.flags))
    mapped = {path for row in rows for path in row.fields}
    gaps = {path: _without_versions(gap) for path, gap in megatron_table("0.12.1").unsupported.items()}
    gaps.update(unsupported.UNSUPPORTED)
    if is_old:
        gaps.update({**unsupported.BEFORE_26_1, **unsupported.IGNORED_FIELDS})
    elif len(rows) < len(declared):
        gaps.update(_later(version, (row for row in declared if row.fields[:1] and row.fields[0] not in mapped)))
    graphs = dict.fromkeys(CUDA_GRAPHS[1:], without(CUDA_GRAPHS[0]))
    return Table(
        rows=rows,
        unsupported={path: gap for path, gap in gaps.items() if path not in mapped},
        irrelevant={path: why for path, why in {**megatron_irrelevant(), **graphs}.items() if path not in mapped},
    )


def _later(version: str, lacking: Iterable[Row]) -> Iterator[tuple[str, Gap]]:
    """Yield the gaps of fields whose arguments came after a version, by the catalogues of later ones."""
    for row in lacking:
        first, path = came_with(version, row.flags), row.fields[0]
        if first is not None:
            gap = unsupported.BEFORE_26_1.get(path, Gap(why=""))
            yield path, replace(gap, why=f"it came with {first}", works=(f"backend.version={first}",))


def _without_versions(gap: Gap) -> Gap:
    """Return a Megatron-LM gap without version hints, as MindSpeed-LLM numbers its versions differently."""
    return replace(gap, works=tuple(each for each in gap.works if not str(each).startswith("backend.version=")))


def _extended(version: str, is_old: bool) -> tuple[Row, ...]:
    """Return Megatron-LM's rows with those that MindSpeed-LLM replaces."""
    known = catalogue(version)
    return extend(
        megatron_rows(),
        CORE[version],
        replace=_replaced(version, is_old),
        drop=(*_DROPPED, *_OF_CONVERSION) if _converts(version) else _DROPPED,
        rename=version_2_1.NAMES if is_old else {"deterministic-mode": "npu-deterministic"},
        respell=lambda row: row if all(known.get(flag) is not None for flag in row.flags) else None,
    )


def _converts(version: str) -> bool:
    """Return whether Hugging Face weights are converted at the start of training."""
    return accepts(version, "enable-hf2mg-convert")


def _first(version: str, is_old: bool) -> tuple[Row, ...]:
    """Return the rows at the head of a command line: layer specification and renamed arguments."""
    if is_old:
        return (
            version_2_1.use_mcore(),
            version_2_1.aliases(),
            model.layer_spec((DEEPSEEK, QWEN3, GEMMA2)),
        )
    minimax = (MINIMAX,) if in_range(version, MINIMAX_SINCE, None) else ()
    return (task.aliases(version), model.layer_spec((DEEPSEEK, QWEN2_MOE, QWEN3, GEMMA2, *minimax)))


def _replaced(version: str, is_old: bool) -> dict[str, tuple[Row, ...]]:
    """Return MindSpeed-LLM's rows by the canonical field whose Megatron-LM rows they replace."""
    raw = accepts(version, "handler-name")
    unpadded = "no-pad-to-seq-lengths" if accepts(version, "no-pad-to-seq-lengths") else "variable-seq-lengths"
    rows: dict[str, tuple[Row, ...]] = {
        "task.type": (task.task(version), *task.preference(version), *lora.lora(is_old)),
        "model.num_hidden_layers": (model.layer_count(), model.noop_layers()),
        "model.first_k_dense_replace": (model.expert_places(),),
        "model.sliding_window": (gemma.sliding_window(),),
        "model.hidden_act": (activation_of({"geglu_tanh": "gelu-tanh", **OLDER_ACTIVATIONS}),),
        "model.rope_scaling.type": (model.rope_scaling(),),
        "tokenizer.type": (data.tokenizer(is_old),),
        "tokenizer.padded_vocab_size": (padding(),),
        "data.template": (data.template(version, raw),),
        "data.paths": (data.data_paths(raw), data.shuffle(), *((data.workers(),) if raw else ())),
        "batch.packing": (data.packing(raw), data.unpadded(unpadded, task.stages(version))),
        "data.reset_attention_mask": (data.attention_mask(),),
        **_parallel(version, is_old),
        "profiler.enabled": profiler.profiler(),
    }
    if is_old:
        return {**rows, **version_2_1.replaced_rows(), **attention_variants.replaced_rows_2_1()}
    if "blockwise" in choices(version, "fp8-recipe"):
        rows["precision.fp8_recipe"] = (_of_newer_core("precision.fp8_recipe"),)
    if "muon" in choices(version, "optimizer"):
        rows["optimizer.type"] = (_of_newer_core("optimizer.type"),)
    if _converts(version):
        rows["checkpoint.load"] = checkpoint.weights()
    return {
        **rows,
        **attention_variants.replaced_rows(version),
        "model.rope_scaling.type": (compressed.unless_compressed(model.rope_scaling()), compressed.positions()),
        "model.rope_scaling.mscale_all_dim": (compressed.unless_compressed(refused_mscale()),),
        "model.qk_nope_head_dim": compressed.head_size(),
        "model.norm_topk_prob": (model.routing_scores(choices(version, "moe-router-score-function")),),
        "moe.load_balancing_type": (model.balancing(),),
        "model.shared_expert_intermediate_size": (model.shared_experts()[0],),
        "model.shared_expert_gate": (model.shared_experts()[1],),
        "optimizer.muon_momentum": muon(0.95, "muon-nesterov"),
        "logging.wandb_name": (logging.wandb(),),
    }


def _parallel(version: str, is_old: bool) -> dict[str, tuple[Row, ...]]:
    has_layouts = accepts(version, "pipeline-model-parallel-layout")
    listed = parallel.stage_list(has_layouts)
    return {
        "parallel.vpp": (parallel.virtual_stages(),),
        "parallel.cp_algorithm": parallel.context_parallel(is_old, choices(version, "context-parallel-algo")),
        "parallel.first_stage_layers": (parallel.uneven_stages(),),
        "parallel.gloo": (switch_off("parallel.gloo", "disable-gloo-group"),),
        "moe.force_load_balancing": (switch("moe.force_load_balancing", "fix-router"),),
        "parallel.layout": (_of_newer_core("parallel.layout"), listed) if has_layouts else (listed,),
        "offload.optimizer": memory.swap(),
        "moe.permute_fusion": (parallel.permutation(is_old), *parallel.overlap()),
        "kernels.attention_backend": (kernels.flash_attention(),),
        "kernels.transformer_impl": (kernels.layer_library(is_old),),
        **kernels.fusions(),
    }


# Megatron-LM's rows that do not apply: a reason in the gaps, or the row of another field that writes the argument.
_DROPPED = (
    "parallel.last_stage_layers",
    "offload.optimizer_fraction",
    "moe.deepep",
    *CUDA_GRAPHS,
    *unsupported.IGNORED_FIELDS,
)
# Written where Hugging Face weights are converted at start (`checkpoint.weights`).
_OF_CONVERSION = (
    "model.pretrained",
    *(f"checkpoint.{name}" for name in ("format", "finetune", "no_load_optim", "no_load_rng")),
)


def _added(version: str, is_old: bool) -> tuple[Row, ...]:
    """Return the rows of fields that Megatron-LM does not have."""
    later = () if is_old else (memory.in_bubble(), data.thinking(), *attention_variants.added_rows())
    quantized = (lora.quantization(),) if accepts(version, "qlora") else ()
    return (
        *parallel.schedule(),
        parallel.two_dimensional(),
        *memory.recompute(),
        kernels.rmsnorm_fusion(),
        profiler.profiler_level(),
        kernels.sparse_mode(),
        *generation.generation(is_old),
        *gemma.rows(is_old),
        *quantized,
        *later,
    )


def _of_newer_core(path: str) -> Row:
    """Return Megatron-LM's newest row of a field that MindSpeed supports before the core that it is built on does."""
    found = next(row for row in megatron_rows() if row.fields == (path,))
    return replace(found, since=None, until=None)

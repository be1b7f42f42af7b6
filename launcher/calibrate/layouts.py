"""The short trainings of a calibration: which sizes and layouts of a job are measured, and which of them are fitted."""

from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod

from launcher.job import Job, Value, with_values
from launcher.job.schema import override_text
from launcher.job.transformer import within
from launcher.records import dataclass
from launcher.rehearse.shrink import shrink
from launcher.runtime import is_tiny

# A model that is too large for a processor is scaled down to twice these widths by the shrinking, times this factor.
_WIDER = 4
_BETWEEN = 3
_WARM_UP = 2
"""First iterations of a process, left out: kernels load, libraries choose algorithms, memory is mapped."""
# Sequence and micro-batch of the base layout: a step of about a tenth of a second on one core, and of a GPU.
_LENGTH = {"cpu": 128, "cuda": 4096}
_LAYERS = {"cpu": 4, "cuda": 4}
_WIDTHS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "q_lora_rank",
    "kv_lora_rank",
)


# What a recipe may say about its own layout and length.
_UNSET: Mapping[str, Value] = {
    "parallel.dp": None,
    "parallel.first_stage_layers": None,
    "parallel.last_stage_layers": None,
    "parallel.layout": None,
    "parallel.microbatch_group_size": None,
    "parallel.ulysses_degree": None,
    "schedule.epochs": None,
    "schedule.train_samples": None,
    "schedule.lr_decay_iters": None,
    "schedule.lr_warmup_fraction": None,
    "tokenizer.padded_vocab_size": None,
    "evaluation.iters": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What a layout changes of the base: factors of sizes, and degrees of parallelism.

    Attributes:
        held_out: measured to judge the fit, and not used for it.
        count: micro-batches of a step on each replica.
    """

    held_out: bool = False
    width: float = 1
    layers: float = 1
    length: float = 1
    micro_batch: int = 1
    count: int = 4
    vocabulary: int = 1
    recompute: bool = False
    tp: int = 1
    pp: int = 1
    dp: int = 1
    sequence_parallel: bool = False

    @property
    def ranks(self) -> int:
        """Processes that train together."""
        return prod((self.tp, self.pp, self.dp))


# Each value of a hardware file is identified by what differs between some of these: time of a kernel by layers and
# micro-batches, of products by width, of attention by length, of the update by their ratio, of links by degrees.
_SMALL: tuple[Variant, ...] = (
    Variant(),
    Variant(layers=2, count=2),
    Variant(length=4, count=2),
    Variant(micro_batch=4, width=2, count=2),
    Variant(width=2, length=2, recompute=True),
    Variant(width=4, layers=0.5, count=2),
    Variant(width=4, count=1),
    Variant(width=4, length=2, micro_batch=2, count=2),
    Variant(width=2, vocabulary=8),
    Variant(width=2, tp=2),
    Variant(width=4, length=2, count=2, tp=2),
    Variant(layers=2, width=2, count=2, tp=2, sequence_parallel=True),
    Variant(width=2, dp=2, count=2),
    Variant(width=4, dp=2, count=1),
    Variant(width=2, length=2, pp=2),
    Variant(held_out=True, width=2, layers=1.5, length=2, count=3),
    Variant(held_out=True, width=4, micro_batch=2, count=3),
    Variant(held_out=True, width=2, layers=2, length=4, count=2, recompute=True),
    Variant(held_out=True, width=3, length=2, vocabulary=4),
    Variant(held_out=True, width=4, micro_batch=2, count=2, tp=2),
    Variant(held_out=True, width=2, length=2, tp=2, sequence_parallel=True),
    Variant(held_out=True, width=4, layers=0.5, length=2, dp=2, count=2),
    Variant(held_out=True, width=2, layers=2, length=2, pp=2, count=6),
)
# On an accelerator the sizes are the job's: smaller ones beside them.
_LARGE: tuple[Variant, ...] = (
    Variant(),
    Variant(layers=0.5, count=2),
    Variant(length=0.25, micro_batch=2),
    Variant(width=0.5, length=0.5),
    Variant(recompute=True, count=2),
    Variant(length=0.5, micro_batch=2, count=2),
    Variant(layers=0.5, count=1),
    Variant(width=0.5, layers=2, length=0.125, micro_batch=1),
    Variant(tp=2, count=2),
    Variant(width=0.5, tp=2, sequence_parallel=True),
    Variant(dp=2, layers=0.5, count=1),
    Variant(width=0.5, dp=2),
    Variant(pp=2),
    Variant(held_out=True, length=0.5),
    Variant(held_out=True, width=0.5, micro_batch=2, count=2),
    Variant(held_out=True, layers=0.5, length=0.5, recompute=True),
    Variant(held_out=True, tp=2, length=0.5),
    Variant(held_out=True, dp=2, length=0.5, count=2),
    Variant(held_out=True, pp=2, length=0.5, count=6),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One training of a calibration.

    Attributes:
        name: what it is, in sizes.
        words: overrides after the user's.
        ranks: processes.
        held_out: not used for the fit.
    """

    name: str
    words: tuple[str, ...]
    ranks: int
    held_out: bool


def layouts(job: Job, *, kind: str, devices: int, iterations: int, stages: bool = True) -> list[Layout]:
    """Return the trainings of a job's calibration, each with other sizes.

    Args:
        kind: `cpu` or `cuda`.
        devices: devices of this machine (cores of a CPU); collectives are measured on two of them.
        iterations: iterations of each, warm-up included.
        stages: also layouts with pipeline parallelism.
    """
    base = _base(job, kind)
    variants = _SMALL if kind == "cpu" else _LARGE
    made = []
    for variant in variants:
        if variant.ranks <= devices and (stages or variant.pp == 1) and _divides(base, variant):
            values = _values(base, variant, iterations)
            made.append(
                Layout(
                    name=_name(values, variant),
                    words=tuple(f"{path}={override_text(value)}" for path, value in values.items()),
                    ranks=variant.ranks,
                    held_out=variant.held_out,
                )
            )
    return made


def fewer(chosen: list[Layout], most: int) -> list[Layout]:
    """Return at most so many of the layouts: those of one process first, a quarter of them held out."""
    held_out = max(1, most // 4)
    kept = [
        each
        for group, count in ((False, most - held_out), (True, held_out))
        for each in sorted((one for one in chosen if one.held_out == group), key=lambda one: one.ranks)[:count]
    ]
    return [each for each in chosen if each in kept]


def mixed(chosen: list[Layout]) -> list[Layout]:
    """Return the layouts with a held-out one after each three of the others, so that any first few have both kinds."""
    fitted = iter([each for each in chosen if not each.held_out])
    held_out = iter([each for each in chosen if each.held_out])
    made: list[Layout] = []
    while len(made) < len(chosen):
        made += [*islice(fitted, _BETWEEN), *islice(held_out, 1)]
    return made


def warm_up() -> int:
    """Return the iterations of each process that are left out."""
    return _WARM_UP


def _base(job: Job, kind: str) -> Job:
    """Return the job on one device, in the sizes that the variants are factors of."""
    small = job
    if kind == "cpu" and not is_tiny(job):
        small = shrink(job, cores=1).job
        small = with_values(small, dict(_widths(small, _WIDER)))
    layers = min(_LAYERS[kind], small.model.num_hidden_layers or _LAYERS[kind])
    dense = min(small.model.first_k_dense_replace, layers - 1)
    return with_values(
        small,
        {
            "model.num_hidden_layers": layers,
            "model.first_k_dense_replace": dense,
            "model.mlp_only_layers": within(small.model.mlp_only_layers, layers),
            "model.full_attention_layers": within(small.model.full_attention_layers, layers),
            "batch.seq_length": min(_LENGTH[kind], small.batch.seq_length or _LENGTH[kind]),
        },
    )


def _widths(job: Job, factor: float) -> Iterator[tuple[str, Value]]:
    for name in _WIDTHS:
        value = getattr(job.model, name)
        if value is not None:
            yield f"model.{name}", int(value * factor)


def _divides(base: Job, variant: Variant) -> bool:
    """Return whether the sizes of a variant are whole numbers, and its layers and heads a multiple of its degrees."""
    model = base.model
    heads = (model.num_attention_heads or 1, model.num_key_value_heads or model.num_attention_heads or 1)
    whole = all(head * variant.width % variant.tp == 0 for head in heads)
    layers = (model.num_hidden_layers or 1) * variant.layers
    return whole and layers >= max(1, variant.pp) and layers % variant.pp == 0


def _values(base: Job, variant: Variant, iterations: int) -> Mapping[str, Value]:
    model = base.model
    layers = int((model.num_hidden_layers or 1) * variant.layers)
    micro_batch = variant.micro_batch
    length = int((base.batch.seq_length or 1) * variant.length)
    values: dict[str, Value] = dict(_widths(base, variant.width))
    for name in ("head_dim", "num_experts", "num_experts_per_tok", "n_group", "topk_group"):
        if getattr(model, name) is not None:
            values[f"model.{name}"] = getattr(model, name)
    values |= {
        "model.num_hidden_layers": layers,
        "model.first_k_dense_replace": min(model.first_k_dense_replace, layers - 1),
        "model.mlp_only_layers": within(model.mlp_only_layers, layers),
        "model.full_attention_layers": within(model.full_attention_layers, layers),
        "model.vocab_size": (model.vocab_size or 1) * variant.vocabulary,
        "model.max_position_embeddings": max(length, model.max_position_embeddings or 0),
        "model.pretrained": False,
        "batch.seq_length": length,
        "batch.micro_batch_size": micro_batch,
        "batch.global_batch_size": variant.count * micro_batch * variant.dp,
        "parallel.tp": variant.tp,
        "parallel.pp": variant.pp,
        "parallel.vpp": None,
        "parallel.cp": 1,
        "parallel.ep": 1,
        "parallel.etp": None,
        # Experts with tensor parallelism need it (MOE-TP-SP).
        "parallel.sequence_parallel": variant.sequence_parallel or (model.is_moe and variant.tp > 1),
        **_UNSET,
        "cluster.nodes": 1,
        "cluster.devices_per_node": variant.ranks,
        "recompute.granularity": "full" if variant.recompute else None,
        "recompute.method": "uniform" if variant.recompute else None,
        "recompute.num_layers": 1 if variant.recompute else None,
        "schedule.train_iters": iterations,
        "schedule.lr_warmup_iters": 1,
        "checkpoint.save_interval": None,
        "logging.interval": 1,
    }
    return values


def _name(values: Mapping[str, Value], variant: Variant) -> str:
    """Return a layout in words: sizes that differ between layouts, and degrees above one."""
    parts = [
        f"hidden {values['model.hidden_size']}",
        f"{values['model.num_hidden_layers']} layers",
        f"{variant.count} × {values['batch.micro_batch_size']} × {values['batch.seq_length']} tokens",
    ]
    parts += [f"vocabulary {values['model.vocab_size']}"] if variant.vocabulary > 1 else []
    parts += ["recomputed"] if variant.recompute else []
    parts += [f"{name} {getattr(variant, name)}" for name in ("tp", "pp", "dp") if getattr(variant, name) > 1]
    parts += ["sequence parallel"] if variant.sequence_parallel else []
    return ", ".join(parts)

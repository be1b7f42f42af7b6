"""The jobs of a verification, as overrides of `launch run`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from launcher.rehearse.implementation import IMPLEMENTATION, Layers

DENSE, MOE, LATENT = "+recipe=tiny_qwen3", "+recipe=tiny_qwen3_moe", "+recipe=tiny_deepseek_v3"
_SHORT = ("schedule.lr_warmup_iters=1", "checkpoint.save_interval=null", "logging.interval=1", "model.pretrained=false")


def job(recipe: str, *words: str, iterations: int, layers: Layers | None = None) -> tuple[str, ...]:
    """Return the overrides of a job of one process.

    Args:
        layers: layers to ask for; None: local ones where the recipe's fields do not matter to an estimate.
    """
    named = ("kernels.transformer_impl=local",) if layers is None else IMPLEMENTATION[layers]
    return (recipe, "backend=megatron_lm", f"schedule.train_iters={iterations}", *_SHORT, *named, *words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of the layouts on a kind of device: models by kind, and tokens of a sequence.

    On a GPU half a billion to a billion parameters: every product is large enough for its kernels to matter, and the
    states take 10 to 20 GiB. On a CPU the tiny models: figures that say only that the script works.
    """

    models: Mapping[str, tuple[str, ...]]
    seq_length: int
    iterations: int


SCALES: Mapping[str, Scale] = {
    "cuda": Scale(
        models={
            "dense": (DENSE, "model=qwen3_0_6b"),
            "MoE": (MOE, "model=qwen3_30b_a3b", "model.num_hidden_layers=4", "model.num_experts=16"),
            "MLA, MoE": (LATENT, "model=deepseek_v2_lite", "model.num_hidden_layers=4", "model.num_experts=16"),
        },
        seq_length=4096,
        iterations=8,
    ),
    "cpu": Scale(models={"dense": (DENSE,), "MoE": (MOE,), "MLA, MoE": (LATENT,)}, seq_length=64, iterations=3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One layout of one device, measured and estimated.

    Attributes:
        name: what is particular about it.
        model: key of `Scale.models`.
        micro_batch: sequences of a micro batch; a step has two micro batches.
        longer: the sequence is so many times as long as the scale's.
        words: more overrides.
    """

    name: str
    model: str
    micro_batch: int
    longer: float = 1.0
    words: tuple[str, ...] = ()


_FULL = ("recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=1")
_BF16, _FP32 = ("precision.dtype=bf16",), ("precision.dtype=fp32",)
LAYOUTS: tuple[Layout, ...] = (
    Layout(name="micro batch 1", model="dense", micro_batch=1, words=_BF16),
    Layout(name="micro batch 2", model="dense", micro_batch=2, words=_BF16),
    Layout(name="micro batch 4, sequence / 4", model="dense", micro_batch=4, longer=0.25, words=_BF16),
    Layout(name="sequence x 2", model="dense", micro_batch=1, longer=2, words=_BF16),
    Layout(name="full recomputation, micro batch 2", model="dense", micro_batch=2, words=(*_BF16, *_FULL)),
    Layout(
        name="without the distributed optimizer",
        model="dense",
        micro_batch=1,
        words=(*_BF16, "parallel.distributed_optimizer=false"),
    ),
    Layout(name="fp32, sequence / 2", model="dense", micro_batch=1, longer=0.5, words=_FP32),
    Layout(name="micro batch 1", model="MoE", micro_batch=1, words=_BF16),
    Layout(name="full recomputation, micro batch 2", model="MoE", micro_batch=2, words=(*_BF16, *_FULL)),
    Layout(name="micro batch 1", model="MLA, MoE", micro_batch=1, words=_BF16),
)


def words_of(layout: Layout, scale: Scale, layers: Layers) -> tuple[str, ...]:
    """Return the overrides of a layout."""
    recipe, *model = scale.models[layout.model]
    length = int(scale.seq_length * layout.longer)
    sizes = (
        f"batch.seq_length={length}",
        f"batch.micro_batch_size={layout.micro_batch}",
        f"batch.global_batch_size={2 * layout.micro_batch}",
    )
    return job(recipe, *model, *sizes, *layout.words, iterations=scale.iterations, layers=layers)


def titles() -> Iterator[str]:
    """Yield the name of each layout with its model."""
    for layout in LAYOUTS:
        yield f"{layout.model}: {layout.name}"

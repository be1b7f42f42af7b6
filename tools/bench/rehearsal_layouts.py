"""Layouts of tools.bench.rehearsal_matrix, as data: kinds of models, and where and how each layout is legal."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SIZE = (
    "batch.seq_length=32 batch.global_batch_size=4 batch.micro_batch_size=1 schedule.train_iters=3 "
    "schedule.lr_warmup_iters=1 backend=megatron_lm"
)
"""Of every job: losses of 3 iterations show two steps of the optimizer, gradient norms the third backward pass."""
KINDS: Mapping[str, str] = {
    "dense": "+recipe=tiny_qwen3",
    "tied": "+recipe=tiny_qwen3 model.tie_word_embeddings=true",
    "moe": "+recipe=tiny_qwen3_moe",
    "mla": "+recipe=tiny_deepseek_v3 model.num_experts=null model.first_k_dense_replace=0 "
    "model.num_nextn_predict_layers=0",
    "mtp": "+recipe=tiny_qwen3 model.num_nextn_predict_layers=1",
    "deepseek": "+recipe=tiny_deepseek_v3",
}
"""Models with 4 layers in fp32: dense Qwen3, the same with one embedding matrix, Qwen3-MoE, multi-latent attention
without experts, dense with a multi-token-prediction layer, and DeepSeek-V3 (multi-latent attention, experts in groups,
a shared one, a dense first layer, multi-token prediction)."""
ALL = tuple(KINDS)
EXPERTS = ("moe", "deepseek")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout, and the kinds of models with which it is accepted and refused.

    Attributes:
        words: what one process does not have: overrides; a name without a section is one of `parallel`, `sp` is
            `sequence_parallel`, `dp` gives the number of processes.
        training: overrides of both jobs, of the layout and of one process.
        on: kinds with which `launch check` accepts it, and which train like one process.
        refused: kinds with which it is refused.
        differs: why it is accepted and does not train like one process: a warning of `launch check`, or the reason.
    """

    words: str
    training: str = ""
    on: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    differs: str = ""

    @property
    def name(self) -> str:
        """The layout as a table shows it."""
        return f"{self.words} ({self.training})" if self.training else self.words


def overrides(words: str) -> list[str]:
    """Return the overrides of a layout's words, with the number of processes."""
    found, processes = [], 1
    for word in words.split():
        name, _, value = word.partition("=")
        if name in ("tp", "pp", "cp", "dp"):
            processes *= int(value)
        if name == "dp":
            continue
        path = name if "." in name else f"parallel.{'sequence_parallel' if name == 'sp' else name}"
        found.append(f"{path}={value}")
    return [*found, f"cluster.devices_per_node={processes}"]


def _on(kinds: str, *words: str, training: str = "", refused: str = "", differs: str = "") -> Iterator[Layout]:
    """Yield layouts that are accepted on some kinds and refused on others; `all` and `experts` name several."""
    found = {"on": kinds, "refused": refused}
    sets = {
        name: tuple(each for one in text.split() for each in _SETS.get(one, (one,))) for name, text in found.items()
    }
    return (Layout(words=each, training=training, differs=differs, **sets) for each in words)


def _refused(kinds: str, *words: str, training: str = "") -> Iterator[Layout]:
    return _on("", *words, training=training, refused=kinds)


_SETS = {"all": ALL, "experts": EXPERTS}
_OVERLAP = "overlap.grad_reduce=true overlap.param_gather=true"
_FULL = "recompute.granularity=full recompute.method={} recompute.num_layers={}"
_SELECTIVE = "recompute.granularity=selective recompute.modules=[{}]"
_PER_TOKEN = "precision.calculate_per_token_loss=true"
_CAPACITY = "moe.capacity_factor=4"

# megatron-core 0.16.1 transformer/moe/router.py, _apply_global_aux_loss.
_GLOBAL = "tokens are counted over the micro-batches so far of all data-parallel ranks, so dp decides what is balanced"

LAYOUTS: Sequence[Layout] = (
    # data parallelism and the distributed optimizer
    *_on("dense deepseek", "dp=2", f"dp=2 {_OVERLAP}"),
    *_on("dense moe", "dp=2 distributed_optimizer=false", "dp=2 distributed_optimizer=false overlap.grad_reduce=true"),
    *_on("moe", "dp=4"),
    *_on("dense moe", "dp=2", training="batch.micro_batch_size=2"),
    *_on("dense", "dp=4 optimizer_instances=2", "cp=2 dp=2 optimizer_instances=2"),
    *_refused("dense moe", "dp=2 optimizer_instances=4", "dp=3"),
    *_refused("dense", "dp=2 optimizer_instances=2 distributed_optimizer=false"),
    *_refused("moe", "ep=4 dp=4 optimizer_instances=2"),
    *_refused("dense moe", "dp=2", training="batch.micro_batch_size=4"),
    # tensor parallelism; experts need sequence parallelism with it
    *_on("dense tied mla mtp", "tp=2", refused="experts"),
    *_on("mla", "tp=4", refused="experts"),
    *_on("all", "tp=2 sp=true"),
    *_on("moe mla", "tp=4 sp=true"),
    *_on("dense deepseek", "tp=2 sp=true dp=2"),
    *_refused("all", "tp=3"),
    # pipeline parallelism
    *_on("all", "pp=2", "pp=2 vpp=2"),
    *_on("tied deepseek", "pp=4"),
    *_on("moe", "pp=2 dp=2"),
    *_on("dense tied deepseek", "pp=2 tp=2 sp=true"),
    *_on("dense deepseek", "pp=2 first_stage_layers=1", "pp=2 vpp=2 microbatch_group_size=4"),
    *_on("moe mtp", "pp=2 last_stage_layers=1"),
    *_on("dense mtp", "pp=3 first_stage_layers=1 last_stage_layers=1"),
    *_on("tied moe", "pp=2 layout=Et|tttL", refused="mtp deepseek"),
    *_on("mtp deepseek", "pp=2 layout=Ettt|tmL", refused="dense moe"),
    *_on("dense moe", "pp=2 layout=Et|t|t|tL"),
    *_on("dense", "pp=3 account_for_embedding=true account_for_loss=true"),
    *_refused("dense", "pp=2 layout=Ett|tt|L"),
    *_refused("all", "pp=3", "pp=8", "vpp=2", "pp=2 vpp=3"),
    # context parallelism
    *_on("dense tied moe mla", "cp=2"),
    *_on("mtp deepseek", "cp=2", "cp=2 tp=2 sp=true", differs="MLM-MTP-CP-MEAN"),
    *_on("deepseek", "cp=2 pp=2", "ep=2 cp=2", differs="MLM-MTP-CP-MEAN"),
    *_on("mtp deepseek", "cp=2", training=_PER_TOKEN),
    *_on("mtp", "cp=2 tp=2 sp=true", training=_PER_TOKEN),
    *_on("deepseek", "cp=2 tp=2 sp=true", training=_PER_TOKEN, differs="MLM-BALANCE-SHARE"),
    *_on("dense mla", "cp=4"),
    *_on("moe", "cp=2 dp=2"),
    *_on("mla", "cp=2 tp=2 sp=true"),
    *_on("dense", "cp=2 pp=2"),
    # recomputation
    *_on("dense deepseek", "recompute.granularity=selective"),
    *_on("moe mla", f"tp=2 sp=true {_FULL.format('uniform', 1)}"),
    *_on("moe", _FULL.format("uniform", 2), refused="mtp deepseek"),
    *_on("deepseek", _FULL.format("uniform", 1), _SELECTIVE.format("core_attn,mlp,layernorm")),
    *_refused("dense tied", f"pp=2 first_stage_layers=3 {_FULL.format('uniform', 2)}"),
    *_on("mtp", f"pp=2 {_FULL.format('block', 1)}"),
    *_on("dense", f"pp=2 vpp=2 {_FULL.format('block', 1)}"),
    *_on("moe", f"tp=2 sp=true {_SELECTIVE.format('moe,layernorm')}"),
    *_on("mla", _SELECTIVE.format("mla_up_proj")),
    *_on("deepseek", f"ep=2 dp=2 {_SELECTIVE.format('shared_experts,moe')}"),
    *_on("dense", f"tp=2 {_FULL.format('uniform', 1)} recompute.distribute_saved_activations=true"),
    *_refused("all", "recompute.granularity=full"),
    # expert parallelism
    *_on("experts", "ep=2 dp=2", "ep=2 tp=2 sp=true etp=1", "ep=2 tp=2 sp=true dp=2", "ep=2 pp=2 dp=2"),
    *_on("moe", "ep=4 dp=4", "ep=2 dp=4", "ep=2 pp=2 vpp=2 dp=2", "ep=4 tp=2 sp=true etp=1 dp=2"),
    *_on("deepseek", "ep=2 etp=2 dp=4"),
    *_on("moe", "ep=2 cp=2 tp=2 sp=true etp=1", f"ep=2 dp=2 {_OVERLAP}"),
    *_on("deepseek", "ep=2 pp=2 tp=2 sp=true etp=1", "ep=2 dp=2 distributed_optimizer=false"),
    *_on("moe", "ep=2 dp=2 moe.grouped_gemm=true", "ep=2 dp=2 moe.token_dispatcher_type=flex"),
    *_on("moe", "ep=2 dp=2 moe.token_dispatcher_type=allgather"),
    *_on("deepseek", "tp=2 sp=true moe.token_dispatcher_type=allgather"),
    *_on("moe", "ep=2 dp=2", "tp=2 sp=true", "cp=2", training="moe.load_balancing_type=seq_aux_loss"),
    *_on("moe", "tp=2 sp=true", training="moe.load_balancing_type=global_aux_loss"),
    *_on("moe", "ep=2 dp=2", training="moe.load_balancing_type=global_aux_loss", differs=_GLOBAL),
    *_on("deepseek", "ep=2 dp=2", training="moe.load_balancing_type=none"),
    *_on("moe", "ep=2 dp=2", "tp=2 sp=true", training="moe.z_loss_coeff=1e-3"),
    *_on("deepseek", "ep=2 dp=2", training="batch.micro_batch_size=2"),
    *_on("moe", "ep=2 dp=2", "ep=2 dp=2 moe.pad_to_capacity=true", training=_CAPACITY),
    *_on("deepseek", "ep=2 dp=2 moe.shared_expert_overlap=true"),
    *_refused("dense mla", "ep=2 dp=2"),
    # Megatron-core before 0.19 trains these with wrong gradients (MLM-ETP-REPLICAS).
    *_refused("experts", "etp=2 dp=2", "tp=2 sp=true etp=1", "tp=2 sp=true etp=4 dp=2"),
    *_refused("experts", "ep=3 dp=3", "ep=4 dp=2", "ep=2 etp=4 dp=4"),
)


_VALUES: Mapping[str, Sequence[int | str | None]] = {
    "tp": (1, 1, 2, 2, 4),
    "pp": (1, 1, 2, 2, 4),
    "cp": (1, 1, 1, 2),
    "dp": (1, 1, 2),
    "sp": (None, "true", "true"),
    "vpp": (None, None, None, 2),
    "ep": (None, 2, 2, 4),
    "etp": (None, None, 1, 2),
    "first_stage_layers": (None, None, None, 1, 2, 3),
    "last_stage_layers": (None, None, None, None, 1),
    "distributed_optimizer": (None, None, "false"),
    "optimizer_instances": (None, None, None, None, 2),
    "overlap.grad_reduce": (None, None, "true"),
    "overlap.param_gather": (None, None, "true"),
    "recompute.granularity": (None, None, None, "selective", "full"),
    "recompute.method": (None, "uniform", "block"),
    "recompute.num_layers": (None, 1, 1, 2),
    "moe.token_dispatcher_type": (None, None, "allgather", "flex"),
    "moe.grouped_gemm": (None, None, "true"),
}
_ONLY_WITH: Mapping[str, tuple[str, ...]] = {
    "recompute.method": ("recompute.granularity=full",),
    "recompute.num_layers": ("recompute.granularity=full",),
}
MOST_PROCESSES = 4


def drawn(seed: int) -> Iterator[tuple[str, Layout]]:
    """Yield kinds and layouts drawn at random, without end; whether they are legal is not known."""
    dice = random.Random(seed)
    for number in itertools.count():
        kind = ALL[number % len(ALL)]
        words: list[str] = []
        for name, values in _VALUES.items():
            value = dice.choice(values)
            without = name.partition(".")[0] in ("ep", "etp", "moe") and kind not in EXPERTS
            needed = _ONLY_WITH.get(name, ())
            if value not in (None, 1) and not without and all(each in words for each in needed):
                words.append(f"{name}={value}")
        devices = int(overrides(" ".join(words))[-1].rpartition("=")[2])
        if words and devices <= MOST_PROCESSES:
            yield kind, Layout(words=" ".join(words))

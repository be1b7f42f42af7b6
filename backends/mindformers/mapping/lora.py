"""Row of low-rank adaptation."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.support import frozen, has_experts, is_concatenated, key, require
from launcher.job import Job, Value
from launcher.job.task import LORA_ALPHA, LORA_DROPOUT
from launcher.mapping.rows import NativeView, Row

_LORA = key("pet_config")


# Without a list pet/pet_model.py:72 @1.8.0 raises for Megatron-core models: mindpet freezes nothing by itself.
FROZEN: Mapping[str, Value] = {"freeze_include": ("*",), "freeze_exclude": ("*lora*",)}
_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
_MLP = frozenset({"linear_fc1", "linear_fc2"})

_DOWN = ("linear_q_down_proj", "linear_kv_down_proj")
_MLA_TARGETS = ("linear_q_up_proj", "linear_q_down_proj", "linear_kv_up_proj", "linear_kv_down_proj")
# With mla_qkv_concat both down projections are one matrix (base_models/gpt/gpt_layer_specs.py:131 @2.1.0).
_CONCATENATED: Mapping[str, tuple[str, ...]] = {
    "linear_qb": ("linear_q_up_proj",),
    "linear_qkv": _DOWN,
    "linear_kvb": ("linear_kv_up_proj",),
}


def lora_row() -> Row:
    """Return the row of low-rank adaptation."""

    fields = tuple(f"lora.{name}" for name in ("rank", "alpha", "dropout", "target_modules"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        lora = job.lora
        if lora.rank is None:
            return
        names = _lora_targets(job)
        alpha = LORA_ALPHA if lora.alpha is None else lora.alpha
        dropout = LORA_DROPOUT if lora.dropout is None else lora.dropout
        why = "it takes a whole number (pet/pet_config.py: LoraConfig)"
        require(alpha == int(alpha), "lora.alpha", why, f"lora.alpha={round(alpha)}")
        settings: dict[str, Value] = {"pet_type": "lora", "lora_rank": lora.rank, "lora_alpha": int(alpha)}
        settings |= {"lora_dropout": dropout, "lora_a_init": "normal", "lora_b_init": "zeros"}
        yield _LORA, {**settings, "target_modules": "|".join(f".*{name}" for name in names), **FROZEN}

    def read(view: NativeView) -> Mapping[str, Value]:
        written = frozen(view.peek(_LORA))
        known = {"pet_type", "lora_rank", "lora_alpha", "lora_dropout", "lora_a_init", "lora_b_init", "target_modules"}
        if not isinstance(written, Mapping) or written.get("pet_type") != "lora" or set(written) - known - set(FROZEN):
            return {}
        if any(written.get(name) not in (None, value) for name, value in FROZEN.items()):
            return {}
        targets = tuple(part.removeprefix(".*") for part in str(written.get("target_modules", "")).split("|"))
        if is_concatenated(view):
            targets = tuple(name for target in targets for name in _CONCATENATED.get(target, (target,)))
        # In a model with experts the two names mean less here than in the job, which has no word for that.
        if not set(targets) <= {*_TARGETS, *_MLA_TARGETS} or (has_experts(view) and _MLP & set(targets)):
            return {}
        view.take(_LORA)
        alpha = float(written.get("lora_alpha", 16))
        found = {fields[0]: written.get("lora_rank", 8), fields[2]: float(written.get("lora_dropout", 0.01))}
        return {**found, fields[1]: alpha, fields[3]: targets}

    note = "LoRA on the parallel linear layers (pet/tuners/lora_adapter.py); its own defaults are 16 and 0.01"
    return Row(fields=fields, flags=(_LORA,), emit=emit, read=read, note=note)


def _lora_targets(job: Job) -> tuple[str, ...]:
    known = (*(_MLA_TARGETS if job.model.is_mla else ("linear_qkv",)), *_TARGETS[1:])
    wanted = job.lora.target_modules or ("all-linear",)
    if wanted == ("all-linear",):
        wanted = known
    strange = [name for name in wanted if name not in known]
    path = "lora.target_modules"
    require(not strange, path, f"it adapts {', '.join(known)}, not {', '.join(strange)}")
    why = "experts are one grouped matrix, which its LoRA does not adapt"
    require(not (_MLP & set(wanted) and job.model.is_moe), path, why, f"{path}=[linear_proj]")
    if not (job.model.is_mla and job.kernels.qkv_concat):
        return tuple(wanted)
    why = "both down projections are one matrix with kernels.qkv_concat"
    require(len(set(_DOWN) & set(wanted)) != 1, path, why, "kernels.qkv_concat=false")
    names = {part: name for name, parts in _CONCATENATED.items() for part in parts}
    return tuple(dict.fromkeys(names.get(name, name) for name in wanted))

"""One job means one training: what a job leaves open is the same on every backend, whatever its own defaults are."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from launcher.api import compose
from launcher.job import Job, Value, field_at, field_paths
from launcher.job.build import build
from launcher.list_expression import expand
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import read_back, translate
from launcher.mapping.rows import NativeView, active_rows
from launcher.rules.effects import absent_value

CASES = [(name, version) for name in backend_names() for version in get_backend(name).versions]
IDS = ["-".join(case) for case in CASES]
_QWEN = {
    "model_type": "qwen3",
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "qk_layernorm": True,
}
_EXPERTS = {**_QWEN, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_DEEP = {
    **_EXPERTS,
    "model_type": "deepseek_v3",
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
# Jobs in which options matter that others ignore.
JOBS: dict[str, dict[str, Any]] = {
    "dense": {"model": _QWEN},
    "experts": {"model": _EXPERTS},
    "adapters": {"model": {**_QWEN, "hub_id": "Qwen/Qwen3-8B"}, "task": {"type": "sft"}, "lora": {"rank": 8}},
    "preferences": {"model": {**_QWEN, "hub_id": "Qwen/Qwen3-8B"}, "task": {"type": "dpo"}},
}
# Field -> why backends may differ where a job leaves it open.
MAY_DIFFER = {
    "data.sharding": "every backend, and every version, draws samples in an order of its own, from all or from a share",
    "data.shuffle_buffer_size": "streamed data only, which each backend draws in an order of its own",
    "kernels.attention_mask": "a causal mask is the same whether the loader or the kernel makes it",
    "model.perform_initialization": "ms-swift draws no weights: it loads them, random ones from files of the launcher",
    "lora.target_modules": "every linear layer everywhere; MindSpeed-LLM writes their names, ms-swift all-linear",
}
# Sections whose fields touch numbers, and why backends may differ in a field that does not count as training.
_NUMBERS = ("model", "batch", "precision", "optimizer", "kernels", "moe", "parallel")
_ORDER = "the same mathematics in another order of rounding"
SAME_MATHEMATICS = {
    **dict.fromkeys((f"kernels.{name}" for name in ("attention_backend", "transformer_impl")), _ORDER),
    **dict.fromkeys(
        (
            f"kernels.{name}_fusion"
            for name in ("masked_softmax", "bias_dropout", "rope", "rmsnorm", "gradient_accumulation")
        ),
        f"{_ORDER}, and not every device has the kernel",
    ),
    "batch.padding_free": "ms-swift's sequences are put one after another instead of padded: the same loss to 5e-7",
    "moe.grouped_gemm": _ORDER,
    "moe.tp_extend_ep": "a layout of experts",
    "parallel.dw_detach": "the order of the two halves of a backward",
    "parallel.cp_algorithm": "a layout of sequences",
    "precision.loss_scale_hysteresis": "fp16 only: MindFormers lowers its scale at the first overflow",
}


def job_of(tree: dict[str, Any]) -> Job:
    """Return the job of a tree."""
    job, problems = build(tree)
    assert not problems, problems
    return job


@cache
def arguments(kind: str, name: str, version: str) -> dict[str, Value]:
    """Return what a job becomes; what this version cannot express is left out."""
    backend = get_backend(name)
    job = backend.prepare(job_of(JOBS[kind]), version)
    return {arg.flag: arg.value for arg in translate(job, backend, version).native}


def values_of(path: str, kind: str, name: str, version: str) -> Iterator[Value]:
    """Yield what a backend does where the job leaves a field open: its written value, else the parser's default."""
    backend = get_backend(name)
    table, catalogue = backend.table(version), backend.catalogue(version)
    written = arguments(kind, name, version)
    for row in active_rows(table, version):
        if row.fields[:1] != (path,) or len(row.fields) != 1 or len(row.flags) != 1 or row.read is None:
            continue
        argument = catalogue.get(row.flags[0])
        default = None if argument is None else absent_value(argument)
        given = written if row.flags[0] in written or default is None else {**written, row.flags[0]: default}
        yield row.read(NativeView(given)).get(path)
    gap = table.unsupported.get(path)
    if gap is not None and len(gap.neutral) == 1:
        yield gap.neutral[0]


# Sections that only some jobs have a use for.
# Answers are drawn while training by GRPO and GKD, which one backend has.
_ONLY_IN: dict[str, tuple[str, ...]] = {"lora": ("adapters",), "task": ("preferences",), "generation": ()}


def _open_fields(kind: str) -> list[str]:
    fields = [(path, field_at(path)) for path in field_paths() if kind in _ONLY_IN.get(path.split(".")[0], JOBS)]
    return [path for path, info in fields if info.meta.affects_training and info.default in (None, ())]


def _open_kernels() -> list[str]:
    fields = [(path, field_at(path)) for path in field_paths() if path.startswith(_NUMBERS)]
    return [path for path, info in fields if not info.meta.affects_training and info.default in (None, ())]


@cache
def differences(kind: str) -> dict[str, dict[str, list[str]]]:
    """Return the open fields on which backends differ: what they do, and which do it."""
    return _differences(kind, _open_fields(kind))


def _differences(kind: str, paths: list[str]) -> dict[str, dict[str, list[str]]]:
    different = {}
    for path in paths:
        found: dict[str, list[str]] = {}
        for name, version in CASES:
            for value in values_of(path, kind, name, version):
                if value not in (None, ()):
                    text = str(float(value)) if isinstance(value, (int, float)) else str(value)
                    found.setdefault(text, []).append(f"{name} {version}")
        if len(found) > 1:
            different[path] = found
    return different


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
def test_what_a_job_leaves_open_is_the_same_everywhere(kind: str) -> None:
    assert not {path: found for path, found in differences(kind).items() if path not in MAY_DIFFER}


@pytest.mark.slow
def test_no_reason_is_left_over() -> None:
    assert set(MAY_DIFFER) == {path for kind in JOBS for path in differences(kind)}


def test_other_numbers_differ_by_rounding_only() -> None:
    assert set(_differences("experts", _open_kernels())) == set(SAME_MATHEMATICS)


@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize(("name", "version"), CASES, ids=IDS)
def test_the_loss_is_divided_by_what_the_job_says(name: str, version: str, per_token: bool) -> None:
    backend = get_backend(name)
    tree = {"model": _QWEN, "task": {"type": "sft"}, "precision": {"calculate_per_token_loss": per_token}}
    native = translate(job_of(tree), backend, version).native
    given = {arg.flag: arg.value for arg in native}
    assert read_back(given, backend, version).job.precision.calculate_per_token_loss is per_token
    if name == "megatron":  # its own default is true
        assert given["calculate_per_token_loss"] is per_token


@pytest.mark.parametrize(("name", "version"), CASES, ids=IDS)
def test_the_gradient_of_the_logits_is_rounded_by_no_backend(name: str, version: str) -> None:
    """ms-swift 4.x turns cross_entropy_loss_fusion on by itself, whose gradient is bf16 (gradients +0.15 % in fp32)."""
    backend = get_backend(name)
    given = {arg.flag: arg.value for arg in translate(job_of({"model": _QWEN}), backend, version).native}
    assert read_back(given, backend, version).job.kernels.cross_entropy_fusion is False
    fused = name == "megatron" and version.startswith("4.")
    assert given.get("cross_entropy_loss_fusion") is (False if fused else None)
    if fused:  # a command that leaves it open is fused
        assert read_back({}, backend, version).job.kernels.cross_entropy_fusion is True


@pytest.mark.parametrize(("name", "version"), CASES, ids=IDS)
def test_adapters_are_the_same_everywhere(name: str, version: str) -> None:
    """Alpha 32 and no dropout: ms-swift's own are 32 and 0.05, MindFormers' 16 and 0.01, MindSpeed-LLM's 32 and 0."""
    backend = get_backend(name)
    for job in (job_of(JOBS["adapters"]), compose(recipe="qwen3_8b_lora", overrides=[f"backend={name}"])):
        result = translate(job, backend, version)
        if any("lora.rank" in finding.fields for finding in result.findings):
            continue  # this version trains all parameters
        lora = read_back({arg.flag: arg.value for arg in result.native}, backend, version).job.lora
        assert (lora.rank, lora.alpha, lora.dropout or 0.0) == (job.lora.rank, 32.0, 0.0)
        if name in ("megatron", "mindformers"):
            assert lora.dropout == 0.0


PLACES = {
    "dense, then every second": (2, 2, [0, 0, 1, 0, 1, 0]),
    "one dense, then every second": (1, 2, [0, 0, 1, 0, 1, 0]),
    "every second": (0, 2, [1, 0, 1, 0, 1, 0]),
    "dense, then every third": (1, 3, [0, 0, 0, 1, 0, 0]),
    "dense, then all": (2, 1, [0, 0, 1, 1, 1, 1]),
}


@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize(("name", "version"), CASES, ids=IDS)
def test_experts_are_in_the_same_layers_everywhere(name: str, version: str, case: str) -> None:
    dense, every, wanted = PLACES[case]
    backend = get_backend(name)
    changed = ["first_k_dense_replace", "moe_layer_freq", "num_hidden_layers"]
    model = {**_DEEP, "first_k_dense_replace": dense, "moe_layer_freq": every, "overridden": changed}
    if name == "megatron":
        model["hub_id"] = "deepseek-ai/DeepSeek-V3"
    result = translate(job_of({"model": model}), backend, version)
    refused = any(set(finding.fields) & {f"model.{field}" for field in changed} for finding in result.findings)
    places = _places({arg.flag: arg.value for arg in result.native})
    assert refused or places == wanted, places


def _places(native: dict[str, Value]) -> list[int] | None:
    """Return the layers with experts, by the rule of the backend that reads the arguments."""
    flat = {**native}
    for extra in ("megatron_extra_kwargs", "extra_megatron_kwargs"):
        flat |= native.get(extra) or {}
    flat = {flag.split(".")[-1].replace("-", "_"): value for flag, value in flat.items()}
    given = str(flat.get("moe_layer_freq", 1))
    dense = max(0, int(flat.get("first_k_dense_replace", 0)))
    if not given.isdigit():
        return expand(given)
    return [int(layer >= dense and layer % int(given) == 0) for layer in range(6)]

"""Drawn sections of a pynative file: as many layers are recomputed and adapted as MindFormers would."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.mindformers.pynative import static_of
from backends.mindformers.pynative_lora import linear_layers
from tests.backends.mindformers.real_recompute import pynative, static
from tests.backends.mindformers.test_pynative_kept import DENSE, PET, SELECT, tree
from tools.catalogue.obtain import ORIGINS, obtain


def static_layers(counts: Any, sizes: list[int]) -> list[int]:
    """Return how many layers of each chunk the static graph recomputes (LayerSetting._format_recompute_list @2.1.0)."""
    if isinstance(counts, bool):
        return sizes if counts else [0] * len(sizes)
    rows = counts if isinstance(counts[0], (list, tuple)) else [counts]
    return [min(count, size) for count, size in zip((count for row in rows for count in row), sizes, strict=True)]


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[dict[str, Any], list[int]]:
    """Return a split of the model and the size of each chunk."""
    pp, vpp = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    vpp = vpp if pp > 1 else 1
    sizes = draw(st.lists(st.integers(1, 5), min_size=pp * vpp, max_size=pp * vpp))
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    texts = [f"{start}-{start + size - 1}" for start, size in zip(starts, sizes, strict=True)]
    split = [",".join(texts[chunk * pp + stage] for chunk in range(vpp)) for stage in range(pp)]
    keys = {
        "pipeline_parallel": pp,
        "pipeline_parallel_interleave_num": vpp,
        "pipeline_parallel_layers_per_stage": split,
    }
    return {**keys, "pipeline_parallel_schedule": "interleaved_1f1b" if vpp > 1 else "1f1b"}, sizes


@settings(max_examples=150, deadline=None)
@given(pipeline=pipelines(), data=st.data())
def test_as_many_layers_of_each_chunk_are_recomputed(pipeline: tuple[dict[str, Any], list[int]], data: Any) -> None:
    """Fully, and a module of others beside them; the split itself is kept, too."""
    parallelism, sizes = pipeline
    places = list(range(sum(sizes)))
    whole = data.draw(st.sets(st.sampled_from(places)), label="in full")
    part = data.draw(st.sets(st.sampled_from(places), min_size=1), label="a module") - whole
    section: dict[str, Any] = {"mode": "select", "full_recompute_layer": sorted(whole)}
    section["select_module"] = {"self_attention.core_attention": sorted(part) or [0]}
    part = part or {0} - whole
    static, _ = static_of(
        tree(
            {"parallelism": parallelism, "recompute": section, "model": {"num_hidden_layers": sum(sizes)}},
            dense=True,
        )
    )
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    chunks = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    fully = static_layers(static.get("recompute_config.recompute", False), sizes)
    assert fully == [len(whole.intersection(chunk)) for chunk in chunks]
    select = static.get(SELECT, {r"self_attention\.core_attention": False})
    counts = True if isinstance(select, list) else select[r"self_attention\.core_attention"]
    both = static_layers(counts, sizes)
    assert [max(0, more - less) for more, less in zip(both, fully, strict=True)] == [
        len(part.intersection(chunk)) for chunk in chunks
    ]
    base, offset = sum(sizes) // len(sizes), static.get("model.model_config.offset", 0)
    extra = [offset] * len(sizes) if isinstance(offset, int) else [*_flat(offset)]
    assert len(sizes) == 1 or [base + each for each in extra] == sizes


def _flat(value: Any) -> list[int]:
    return [item for part in value for item in (_flat(part) if isinstance(part, (list, tuple)) else [part])]


NAMES = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


@settings(max_examples=60, deadline=None)
@given(
    names=st.sets(st.sampled_from(NAMES), min_size=1),
    rank=st.integers(1, 256),
    alpha=st.integers(1, 512),
    dropout=st.sampled_from((0.0, 0.05, 0.5)),
)
def test_the_same_layers_are_adapted(names: set[str], rank: int, alpha: int, dropout: float) -> None:
    """The static graph matches the beginning of a layer's own name (recursive_replace_dense_cell @2.1.0)."""
    section = {
        "target_modules": "|".join(sorted(names)),
        "lora_rank": rank,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
    }
    static, notes = static_of(tree({"lora_config": section}, dense=True))
    pet = static[PET]
    assert notes == []
    assert (pet["lora_rank"], pet["lora_alpha"], pet["lora_dropout"]) == (rank, alpha, dropout)
    paths = set(linear_layers(DENSE))
    meant = {path for path in paths if any(name in path for name in names)}
    assert {path for path in paths if re.match(pet["target_modules"], path.rpartition(".")[2])} == meant


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.0.0", "2.1.0"])
@settings(max_examples=100, deadline=None)
@given(pipeline=pipelines(), data=st.data())
def test_upstreams_own_functions_recompute_as_much(
    version: str, pipeline: tuple[dict[str, Any], list[int]], data: Any
) -> None:
    """In each chunk as many layers in full, and each module in as many of the others."""
    root = obtain(ORIGINS["mindformers"], version)
    parallelism, sizes = pipeline
    layers = sum(sizes)
    places = st.sets(st.sampled_from(range(layers)))
    some = st.sets(st.sampled_from(range(layers)), min_size=1)
    whole = sorted(data.draw(places, label="in full"))
    select = data.draw(st.dictionaries(st.sampled_from(PATTERNS), some.map(sorted), max_size=3), label="modules")
    mode = data.draw(st.sampled_from(("full", "select")), label="mode")
    section = {"mode": mode, "full_recompute_layer": whole, "select_module": select}
    content = tree(
        {"parallelism": parallelism, "recompute": section, "model": {"num_hidden_layers": layers}}, dense=True
    )
    arguments, notes = static_of(content)
    try:
        expected = pynative(root, section, layers, PARTS)
    except (TypeError, ValueError):
        assert [note.refused for note in notes] == [True]
        return
    assert not [note for note in notes if note.refused]
    stages, chunks = parallelism["pipeline_parallel"], parallelism["pipeline_parallel_interleave_num"]
    found = {
        layer: [part for part in parts if not any(part.startswith(f"{other}.") for other in parts)]
        for layer, parts in static(root, arguments, layers, stages, chunks, PARTS).items()
    }
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    for start, size in zip(starts, sizes, strict=True):
        inside = range(start, start + size)
        for part in ("", *PARTS):
            if part in PATTERNS or not part:
                counts = [sum(part in each.get(layer, ()) for layer in inside) for each in (found, expected)]
                assert counts[0] == counts[1], (part, inside, arguments)


PATTERNS = (
    "self_attention",
    "self_attention.core_attention",
    "mlp",
    "mlp.linear_fc1",
    "input_layernorm",
    "pre_mlp_layernorm",
)
PARTS = [*PATTERNS, "self_attention.linear_qkv", "mlp.linear_fc2"]

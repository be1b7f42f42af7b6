"""Plain overrides give a conversion the layout that composition gives it, and all others are left to composition."""

import pytest

from backends import BUILT_IN
from launcher.compose import ComposeError, compose
from launcher.convert.formats.format import layout_of
from launcher.job import fields, value_at
from launcher.job.plain import plain_job

SECTIONS = ("parallel", "moe", "kernels", "tokenizer")
PATHS = [path for path in fields() if path.startswith(tuple(f"{section}." for section in SECTIONS))]
LAYOUTS = {
    "tensor and pipeline parallel": ("parallel.tp=2", "parallel.pp=2"),
    "chunks": ("parallel.pp=2", "parallel.vpp=3", "parallel.account_for_loss=true"),
    "uneven stages": ("parallel.pp=4", "parallel.first_stage_layers=3", "parallel.last_stage_layers=1"),
    "one layer without weights": ("parallel.pp=2", "parallel.noop_layers=7"),
    "experts": ("parallel.ep=4", "parallel.etp=2", "moe.grouped_gemm=false", "moe.tp_extend_ep=true"),
    "fused projections": ("kernels.qkv_concat=true",),
    "vocabulary": ("tokenizer.padded_vocab_size=128", "tokenizer.make_vocab_size_divisible_by=64"),
}
COMPOSED = {
    "recipe": ("+recipe=qwen3_8b", "parallel.tp=2"),
    "backend": ("backend=megatron", "parallel.tp=2"),
    "added": ("++parallel.tp=2",),
    "model": ("model.num_hidden_layers=2",),
    "text": ("parallel.layout=Et*2|t*2L",),
    "null": ("parallel.vpp=null",),
    "several values": ("parallel.tp=1,2",),
    "twice": ("parallel.tp=2", "parallel.tp=4"),
    "zero": ("parallel.tp=0",),
    "octal": ("parallel.tp=010",),
    "digits of another script": ("parallel.tp=\u0662",),
    "no number": ("parallel.tp=true",),
    "no field": ("parallel.tpp=2",),
    "no section": ("tp=2",),
    "line": ("parallel.tp=2\n",),
}


@pytest.mark.parametrize("backend", [None, *BUILT_IN])
@pytest.mark.parametrize("words", LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_is_that_of_the_composed_job(words: tuple[str, ...], backend: str | None) -> None:
    job = plain_job(words)
    assert job is not None
    layout = layout_of(job)
    assert layout == layout_of(compose([*words, *([f"backend={backend}"] if backend else [])]))
    assert layout != layout_of(compose([]))


@pytest.mark.parametrize("value", ["3", "true"])
def test_every_field_has_the_value_that_composition_gives_it_or_is_left_to_it(value: str) -> None:
    plain = {path: plain_job([f"{path}={value}"]) for path in PATHS}
    assert 10 < sum(job is not None for job in plain.values()) < len(PATHS)
    for path, job in plain.items():
        try:
            composed = value_at(compose([f"{path}={value}"]), path)
        except ComposeError:
            assert job is None, path
            continue
        if job is not None:
            found = value_at(job, path)
            assert (type(found), found) == (type(composed), composed), path


@pytest.mark.parametrize("words", COMPOSED.values(), ids=COMPOSED)
def test_other_words_are_composed(words: tuple[str, ...]) -> None:
    assert plain_job(words) is None

"""Every argument of Megatron-LM is accounted for; what is not supported is reported before anything starts."""

import dataclasses
import json

import pytest
from core_world import split_args

from launcher.rehearse.core.arguments import catalogue, layer_pattern, parse
from launcher.rehearse.core.errors import RehearsalError, UsageError
from launcher.rehearse.core.fake_world import sufficient_micro_batches
from launcher.rehearse.core.options import DataOptions, FakeWorld, TrainerOptions
from launcher.rehearse.core.settings import padded_vocabulary, resolve
from launcher.rehearse.core.stages import layout_stages
from launcher.rehearse.core.supported_args import judge, supported, unsupported

SMALL = split_args(
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
    "--micro-batch-size 2 --global-batch-size 8 --train-iters 10 --lr 1e-3"
)


def test_every_argument_is_supported_or_has_a_reason() -> None:
    known = {row.dest for row in catalogue()}
    assert known == set(supported()) | set(unsupported())
    assert not set(supported()) & set(unsupported())


def test_unknown_flags_are_named_all_at_once_with_suggestions() -> None:
    with pytest.raises(UsageError) as error:
        parse(["--tensor-model-paralel-size", "2", "--lr_warmup_iters", "3"])
    text = str(error.value)
    assert "did you mean --tensor-model-parallel-size" in text
    assert "did you mean --lr-warmup-iters" in text


@pytest.mark.parametrize("argv", [["--num-layers", "four"], ["--normalization", "Batch"], ["--bf16", "yes"]])
def test_wrong_values_are_usage_errors(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(argv)


REFUSED = {
    "fp8": ("--fp8-format hybrid", "--bf16"),
    "muon": ("--optimizer muon", "--optimizer adam"),
    "batch size ramp-up": ("--rampup-batch-size 8 8 100", "--global-batch-size"),
    "fill in the middle": ("--fim-data", "leave it out"),
    "relative positions": ("--position-embedding-type relative", "rope"),
    "hybrid model": ("--is-hybrid-model", "GPT model"),
}


@pytest.mark.parametrize("flags,works", REFUSED.values(), ids=REFUSED.keys())
def test_what_changes_training_is_refused_with_what_would_work(flags: str, works: str) -> None:
    (row,) = judge(parse(flags.split()))
    assert row.changes_training
    assert works in row.refusal()


def test_kernels_are_listed_and_not_refused() -> None:
    flags = "--transformer-impl inference_optimized --moe-grouped-gemm --no-rope-fusion --tp-comm-overlap"
    rows = judge(parse(flags.split()))
    assert {row.flag for row in rows} == {flag for flag in flags.split() if flag.startswith("--")}
    assert not any(row.changes_training for row in rows)


def test_fp8_is_for_a_device_that_computes_it() -> None:
    given = parse(split_args("--fp8-format hybrid --fp8-recipe tensorwise --fp8-margin 1"))
    assert [row.flag for row in judge(given, "cpu")] == ["--fp8-format", "--fp8-recipe", "--fp8-margin"]
    assert judge(given, "cuda") == ()
    (row,) = judge(parse(split_args("--fp8-format hybrid --fp8-param-gather")), "cuda")
    assert row.changes_training


def test_the_layers_asked_for_are_honoured() -> None:
    assert judge(parse(split_args("--transformer-impl local"))) == ()


def test_a_default_that_is_written_out_is_not_reported() -> None:
    assert judge(parse(split_args("--moe-token-dispatcher-type allgather --fp8-recipe delayed"))) == ()


PROBLEMS = {
    "world": ("--tensor-model-parallel-size 3", "cannot be divided"),
    "batch": ("--global-batch-size 7", "--global-batch-size 7 is not divisible"),
    "layers": ("--num-layers 5 --pipeline-model-parallel-size 2", "--num-layers 5"),
    "experts": ("--num-experts 3 --expert-model-parallel-size 2", "--num-experts 3"),
    "topk": ("--num-experts 4 --moe-router-topk 8", "--moe-router-topk 8"),
    "MoE with TP": ("--num-experts 4 --tensor-model-parallel-size 2", "--sequence-parallel"),
    "context": ("--context-parallel-size 2 --seq-length 30", "--seq-length 30"),
    "negative": ("--hidden-size -64", "at least 1"),
    "precision": ("--bf16 --fp16", "exclude each other"),
    "recompute": ("--recompute-granularity full", "--recompute-method"),
}


@pytest.mark.parametrize("flags,message", PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_cannot_work_is_reported_before_anything_starts(flags: str, message: str) -> None:
    with pytest.raises(RehearsalError, match=message):
        resolve(parse([*SMALL, *flags.split()]), 2)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(RehearsalError) as error:
        resolve(parse([*SMALL, *split_args("--global-batch-size 7 --num-attention-heads 3 --min-lr 1")]), 2)
    assert len(error.value.problems) >= 3


def test_derived_values_are_megatrons() -> None:
    settings = resolve(parse([*SMALL, *split_args("--swiglu --sequence-parallel --bf16 --num-experts 4")]), 2)
    assert settings.value("ffn_hidden_size") == 128  # int(4 * 64 * 2 / 3 / 64) * 64
    assert settings.value("moe_ffn_hidden_size") == 128
    assert settings.value("sequence_parallel") is False  # megatron switches it off at tp 1
    assert settings.value("accumulate_allreduce_grads_in_fp32") is True
    assert settings.num_microbatches == 2
    assert padded_vocabulary(settings, 259) == (259, 384)


def test_samples_and_fractions_become_steps() -> None:
    argv = [arg for arg in SMALL if arg not in ("--train-iters", "10")]
    settings = resolve(parse([*argv, *split_args("--train-samples 80 --lr-warmup-fraction 0.1")]), 1)
    assert (settings.train_iters, settings.lr_warmup_steps, settings.lr_decay_steps) == (10, 8.0, 80)


@pytest.mark.parametrize("pp,batch,played", [(1, 2, 1), (1, 64, 2), (2, 64, 2), (4, 22, 7), (4, 6, 3)])
def test_a_fake_world_plays_few_micro_batches_of_the_same_remainder(pp: int, batch: int, played: int) -> None:
    argv = [
        *SMALL,
        *split_args(f"--pipeline-model-parallel-size {pp} --global-batch-size {batch} --micro-batch-size 2"),
    ]
    assert sufficient_micro_batches(resolve(parse(argv), pp)) == played


@pytest.mark.parametrize("text,value", [("2", 2), ("([0]*1+[1]*3)", [0, 1, 1, 1]), ("[1]*2+[0]", [1, 1, 0])])
def test_layer_patterns(text: str, value: object) -> None:
    assert layer_pattern(text) == value


@pytest.mark.parametrize("text,stages", [("Et|tttL", 2), ("Et*3|(tt|)*4,m|L", 7)])
def test_pipeline_layouts(text: str, stages: int) -> None:
    assert layout_stages(text) == stages


def test_options_survive_json() -> None:
    options = TrainerOptions(
        output_dir="out",
        data=DataOptions(kind="text", paths=("a.jsonl",), tokenizer="dir"),
        fake_world=FakeWorld(world_size=16, ranks=(0, 9)),
    )
    assert TrainerOptions.from_json(options.to_json()) == options


def test_wrong_options_are_named_all_at_once() -> None:
    raw = {**dataclasses.asdict(TrainerOptions(output_dir="o")), "colour": 1, "data": {"kind": "films"}}
    with pytest.raises(UsageError) as error:
        TrainerOptions.from_json(json.dumps(raw))
    assert "colour" in str(error.value)
    assert "films" in str(error.value)

"""A training in fp16 whose loss scale is too large throughout is told, with a scale that works."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.parity import reference
from launcher.parity.overflow import largest_scale
from launcher.parity.reference import Options, options_of
from launcher.parity.reference_precision import LossScale
from launcher.parity.runs import NO_UPDATE, Trained, read_record, train
from launcher.rehearse.cpu.recorder import VARIABLE
from launcher.rehearse.random_weights import make_directory
from launcher.rehearse.sample_data import tokenizer_directory
from tests.conftest import Launch
from tests.parity.test_reference_detects import CONFIG

FAILS = """
import json, os, pathlib
lines = [json.dumps({"iteration": n, "loss": 6.0, "grad_norm": None, **more}) + "\\n" for n, more in enumerate(%r)]
pathlib.Path(os.environ["LAUNCH_RECORD"]).write_text("".join(lines))
raise KeyError("exp_avg")
"""


def ended(folder: Path, *iterations: dict[str, object]) -> Trained:
    return train("a", (sys.executable, "-c", FAILS % (iterations,)), folder, environ={}, advanced=lambda _: None)


def test_what_fails_after_skipped_iterations_is_told_as_the_overflow(tmp_path: Path) -> None:
    assert ended(tmp_path, {"skipped": True}, {"skipped": True}).problem == NO_UPDATE
    assert ended(tmp_path, {"skipped": True}, {}).problem == "KeyError: 'exp_avg'"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("overflow")
    make_directory({**CONFIG, "model_type": "qwen3"}, Path(tokenizer_directory()), folder / "model", spread=0.1)
    words = ["+recipe=tiny_qwen3", "precision.dtype=fp16", "schedule.train_iters=1", "batch.global_batch_size=2"]
    samples: Sequence[Sequence[int]] = [range(16), range(100, 116)]
    return options_of(compose([*words, "batch.micro_batch_size=1"]), folder / "model", folder / "out", samples)


def test_the_largest_loss_scale_is_one_with_which_weights_are_updated(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = largest_scale(options)
    assert largest is not None
    for factor in (1, 2):
        monkeypatch.setenv(VARIABLE, str(tmp_path / f"{factor}.jsonl"))
        reference.train(replace(options, scale=LossScale(value=factor * largest)))
        (iteration,) = read_record(tmp_path / f"{factor}.jsonl")
        assert iteration.skipped == (factor == 2)
        assert (iteration.grad_norm is None) == iteration.skipped


@pytest.mark.slow
def test_a_scale_that_works_is_named(launch: Launch) -> None:
    words = ["+recipe=tiny_qwen3", "precision.dtype=fp16", "--backends", "megatron_lm", "--entry", "core"]
    asked = ("--reference", "transformers", "--iterations", "2", "--tolerance", "1e-2")
    finished = launch("parity", *words, *asked, timeout=200)
    assert finished.code == 1
    assert NO_UPDATE in finished.err
    (works,) = re.findall(r"^works: (precision.initial_loss_scale=\d+)$", finished.err, re.MULTILINE)
    again = launch("parity", *words, works, *asked, "--json", timeout=200)
    assert again.code == 0, again.out
    assert not any(each["skipped"] for side in again.json["sides"] for each in side["iterations"])

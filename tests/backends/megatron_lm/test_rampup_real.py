"""The rules of a growing batch against Megatron-core's own calculator of micro-batches: the same verdict."""

import importlib.util
import itertools
import random

import pytest

from backends.megatron_lm import BACKEND
from backends.megatron_lm.mapping.ramp import Ramp, parse_schedule
from tests.backends.megatron_lm import rule_cases
from tests.sampling import fuzz_seed, trials

WORLD = rule_cases.WORLD
STARTS, STEPS, BATCHES, SAMPLES = (4, 8, 16, 32), (0, 4, 8, 24), (16, 32, 64), (-1, 0, 64, 4096)


def refused_here(start: int, step: int, samples: int, batch: int) -> bool:
    """Tell whether a rule of the growing batch speaks."""
    changes = (
        f"-train-iters --train-samples 100000 --global-batch-size {batch} --rampup-batch-size {start} {step} {samples}"
    )
    values = rule_cases.values(BACKEND, "0.16.1", changes)
    found = rule_cases.findings(BACKEND, "0.16.1", values, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    return any(finding.rule.startswith("MLM-RAMPUP") for finding in found)


def refused_there(start: int, step: int, samples: int, batch: int) -> bool:
    """Tell whether the calculator refuses the batch, or a step of training on the way up."""
    from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator

    try:
        calculator = RampupBatchsizeNumMicroBatchesCalculator(batch, 1, WORLD, False, 1, start, step, samples)
        consumed = 0
        while consumed <= samples + batch:
            calculator.update(consumed, consistency_check=True)
            consumed += max(1, calculator.get_current_global_batch_size())
    except (AssertionError, ZeroDivisionError):
        return True
    return False


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed")
def test_rules_and_the_calculator_agree() -> None:
    cases = list(itertools.product(STARTS, STEPS, SAMPLES, BATCHES))
    differing = [
        case
        for case in cases
        # Without a ramp at all (no samples on the way) sizes in between are never reached.
        if case[2] > 0 or case[1] == 0 or case[2] < 0
        if refused_here(*case) != refused_there(*case)
    ]
    assert differing == []
    assert len(cases) > 100


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed")
def test_a_schedule_has_the_same_sizes_at_the_same_sequences() -> None:
    """The sizes of `--step-batch-size-schedule` are those of the calculator of `--rampup-batch-size`."""
    from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator

    rolled = random.Random(fuzz_seed())
    for _ in range(trials(200)):
        start, step, steps = rolled.choice((1, 4, 16, 48)), rolled.choice((1, 3, 8, 16)), rolled.randint(1, 40)
        samples = rolled.randint(steps, rolled.choice((steps + 3, 300, 100_000)))
        ramp = Ramp(start=start, step=step, samples=samples, batch=start + steps * step)
        entries = parse_schedule(ramp.schedule(128), 128)
        assert entries is not None
        old = RampupBatchsizeNumMicroBatchesCalculator(ramp.batch, 1, 1, False, 1, start, step, ramp.samples)
        edges = {max(0, place + by) for place, _ in entries for by in (-1, 0, 1)}
        for consumed in edges | {rolled.randint(0, ramp.samples + 1) for _ in range(20)}:
            old.update(consumed, consistency_check=False)
            size = [each for place, each in entries if place <= consumed][-1]
            assert size == old.get_current_global_batch_size(), (ramp, consumed)

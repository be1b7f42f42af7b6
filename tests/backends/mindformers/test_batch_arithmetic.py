"""Global batch and world size: exact both ways."""

import pytest

from backends.mindformers import BACKEND
from launcher.mapping.engine import read_back
from tests.backends.mindformers.jobs import NEWEST, tree, written

DP, MICRO = "parallel_config.data_parallel", "parallel_config.micro_batch_num"
ACCUMULATION, SIZE = "runner_config.gradient_accumulation_steps", "runner_config.batch_size"

# nodes, tp, pp, cp, micro batch, global batch, interleave -> data_parallel, micro_batch_num, accumulation
TABLE = [
    (1, 1, 1, 1, 1, 8, 1, 8, 1, 1),
    (1, 1, 1, 1, 2, 64, 1, 8, 1, 4),
    (1, 2, 2, 1, 1, 64, 1, 2, 32, 1),
    (1, 2, 1, 2, 4, 32, 1, 2, 1, 4),
    (2, 4, 4, 1, 1, 16, 1, 1, 16, 1),
    (32, 8, 4, 1, 1, 128, 1, 8, 16, 1),
    (1, 2, 2, 1, 1, 64, 2, 2, 16, 1),
    (1, 8, 1, 1, 3, 9, 1, 1, 1, 3),
]


@pytest.mark.parametrize("row", TABLE, ids=[str(row) for row in TABLE])
def test_the_arithmetic_comes_out_even_both_ways(row: tuple[int, ...]) -> None:
    nodes, tp, pp, cp, size, batch, interleave, dp, micro, accumulation = row
    args = {"micro_batch_interleave_num": interleave} if interleave > 1 else {}
    native = written(
        tree(
            cluster={"nodes": nodes},
            parallel={"tp": tp, "pp": pp, "cp": cp},
            batch={"micro_batch_size": size, "global_batch_size": batch},
            backend={"args": args},
        )
    )
    assert (native[DP], native[MICRO], native[ACCUMULATION], native[SIZE]) == (dp, micro, accumulation, size)
    assert native["micro_batch_interleave_num"] == interleave
    assert size * dp * micro * accumulation * interleave == batch
    assert dp * tp * pp * cp == nodes * 8
    assert native["train_dataset.data_loader.sizes"] == (batch * 100, 0, 0)
    job = read_back(native, BACKEND, NEWEST).job
    assert job.batch.global_batch_size == batch
    assert job.cluster.world_size == nodes * 8
    assert job.schedule.train_iters == 100


def test_the_factor_that_mindformers_resets_does_not_count() -> None:
    """With stages gradient_accumulation_steps is reset to 1, without them micro_batch_num is."""
    base = {DP: 2, "parallel_config.model_parallel": 1, SIZE: 1, MICRO: 4, ACCUMULATION: 3}
    staged = read_back({**base, "parallel_config.pipeline_stage": 4}, BACKEND, NEWEST).job
    plain = read_back({**base, "parallel_config.pipeline_stage": 1}, BACKEND, NEWEST).job
    assert (staged.batch.global_batch_size, plain.batch.global_batch_size) == (8, 6)

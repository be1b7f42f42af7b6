"""The numpy index builder gives exactly what Megatron's compiled one gives."""

import random
from typing import Any

import pytest

np = pytest.importorskip("numpy")
compiled = pytest.importorskip("megatron.core.datasets.helpers_cpp")

from launcher.rehearse.cpu import dataset_helpers  # noqa: E402


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("extra", [0, 1])
def test_sample_index(drop_last: bool, extra: int) -> None:
    draw = random.Random(0)
    for case in range(200):
        sizes = np.array([draw.randrange(case % 2, 15) for _ in range(draw.randrange(1, 8))], dtype=np.int32)
        epochs, length = draw.randrange(1, 4), draw.randrange(2, 9)
        order = np.array([i for _ in range(epochs) for i in draw.sample(range(len(sizes)), len(sizes))], dtype=np.int32)
        tokens = int(sizes.sum())
        if tokens < 2 or epochs * tokens - extra < length:
            continue
        arguments = (sizes, order, length, epochs, tokens, drop_last, extra)
        for name in ("build_sample_idx_int32", "build_sample_idx_int64"):
            expected: Any = getattr(compiled, name)(*arguments)
            found = getattr(dataset_helpers, name)(*arguments)
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected), arguments


def test_blending() -> None:
    draw = np.random.default_rng(0)
    for count in (1, 2, 5):
        weights = draw.random(count)
        weights /= weights.sum()
        sizes = draw.integers(1, 20, count)
        for name, total, arguments in (
            ("build_blending_indices", 60, (weights, count, 60, False)),
            ("build_exhaustive_blending_indices", int(sizes.sum()), (sizes, count)),
        ):
            results = []
            for module in (compiled, dataset_helpers):
                chosen, sample = np.zeros(total, np.int16), np.zeros(total, np.int64)
                getattr(module, name)(chosen, sample, *arguments)
                results.append((chosen, sample))
            for expected, found in zip(*results, strict=True):
                assert np.array_equal(found, expected)

"""What MLM-ETP-REPLICAS and SW-ETP-REPLICAS state, measured on megatron-core itself: two ranks against one."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.waiting import STUCK_SECONDS

pytest.importorskip("megatron.core", reason="megatron-core is not installed")
pytestmark = pytest.mark.slow
_CHILD = "tests.backends.megatron_lm.expert_gradients_child"
_ROOT = Path(__file__).parents[3]
Gradients = dict[str, list[list[float]]]


@cache
def gradients(tp: int, etp: int, ep: int, world: int) -> tuple[Gradients, ...]:
    """Return the gradients of the experts on each rank."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", _CHILD, *map(str, (tp, etp, ep)), f"{folder}/store"]
        ranks = [
            subprocess.Popen(
                command,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "PYTHONPATH": str(_ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
            )
            for rank in range(world)
        ]
        outputs = [rank.communicate(timeout=STUCK_SECONDS) for rank in ranks]
    assert not any(rank.returncode for rank in ranks), outputs
    return tuple(json.loads(text.splitlines()[-1]) for text, _ in outputs)


def flat(gradient: list[list[float]]) -> list[float]:
    """Return the numbers of a matrix."""
    return [number for row in gradient for number in row]


@pytest.mark.parametrize(("tp", "etp", "ep"), [(2, 2, 1), (2, 1, 2)])
def test_gradients_of_experts_are_those_of_one_rank(tp: int, etp: int, ep: int) -> None:
    (whole,), parts = gradients(1, 1, 1, 1), gradients(tp, etp, ep, 2)
    for expert, wanted in whole.items():
        found = [part[expert] for part in parts if expert in part]
        rows = [row for matrix in found for row in matrix]
        assert flat(rows) == pytest.approx(flat(wanted), abs=1e-5)


def test_replicas_of_experts_keep_the_gradient_of_a_part_of_the_tokens() -> None:
    """Etp 1 under tp 2 and ep 1: each rank has its own half of the tokens, and only the sum is the gradient."""
    (whole,), (first, second) = gradients(1, 1, 1, 1), gradients(2, 1, 1, 2)
    for expert, wanted in whole.items():
        pairs = list(zip(flat(first[expert]), flat(second[expert]), strict=True))
        assert [one + other for one, other in pairs] == pytest.approx(flat(wanted), abs=1e-5)
    assert first != second


def test_shards_of_experts_are_added_up_where_only_experts_are_split() -> None:
    """Etp 2 under tp 1 and ep 1: both ranks get one gradient for two different halves of a matrix."""
    first, second = gradients(1, 2, 1, 2)
    assert first == second

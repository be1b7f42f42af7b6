"""Figures of tools.bench.agreement: the kinds of verdicts, and the share that agrees with its interval."""

from pathlib import Path

import pytest

from tests.backends.users_path import UsersPath, nodes_of
from tests.backends.verdicts import Verdict
from tools.bench.agreement import agreement


def verdict(*ours: str, real: str | None = None) -> Verdict:
    return Verdict(name="x", ours=ours, real=real, later={"LATE": "in the first step"}, machine=("No such file",))


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("same", verdict()),
        ("same", verdict("RULE", real="ValueError")),
        ("missed", verdict(real="ValueError")),
        ("machine", verdict(real="OSError: No such file")),
        ("later", verdict("LATE")),
        ("unexplained", verdict("LATE", "RULE")),
    ],
)
def test_kinds(kind: str, made: Verdict) -> None:
    assert made.kind == kind


def test_agreement_leaves_out_what_the_machine_decides() -> None:
    verdicts = [verdict()] * 98 + [verdict("RULE"), verdict(real="ValueError")] + [verdict(real="No such file")] * 9
    share, low, high = agreement(verdicts)
    assert share == 0.98
    assert (round(low, 4), round(high, 4)) == (0.93, 0.9945)  # Wilson's interval for 98 of 100


@pytest.mark.parametrize(("world", "nodes"), [(8, (1, 8)), (12, (2, 6)), (24, (3, 8)), (7, (1, 7)), (22, (11, 2))])
def test_nodes(world: int, nodes: tuple[int, int]) -> None:
    assert nodes_of(world) == nodes


def test_a_script_is_judged_by_the_command(tmp_path: Path) -> None:
    path = UsersPath(folder=tmp_path)
    args = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 250 --num-attention-heads 8"
    assert "ARG-BOUND" in path.script(f"{args} --seq-length 0\n").errors
    assert path.script(f"{args} --no-such-argument\n").errors == ("IMPORT",)
    assert [each.answer.code for each in path.asked] == [1, 1]
    assert list(path.differing(1)) == []

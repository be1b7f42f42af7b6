"""Routing flips: recorded by hooks in the order of the samples, and counted between two trainings."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from launcher.compose import compose
from launcher.job import Job
from launcher.parity.routing import AGAIN, between, recorded_in
from launcher.parity.runs import Trained
from launcher.rehearse.cpu.routing import VARIABLE, _Choices

torch = pytest.importorskip("torch", reason="routers are modules of torch")


class TopKRouter(torch.nn.Module):
    """Returns as Megatron-core does: probabilities and a map of the tokens, position by position."""

    def __init__(self, chosen: Any) -> None:
        super().__init__()
        self.chosen = chosen  # [batch, sequence, chosen]

    def forward(self, hidden: Any) -> Any:
        """Choose experts for `hidden`, [sequence, batch, hidden]."""
        numbers = self.chosen.transpose(0, 1).reshape(-1, self.chosen.shape[-1])
        tokens = torch.zeros(len(numbers), 4, dtype=torch.bool).scatter(1, numbers, True)
        return tokens.float(), tokens


class TinyTopkRouter(TopKRouter):
    """Returns as transformers does: logits, weights and the numbers of the experts, sample by sample."""

    def forward(self, hidden: Any) -> Any:
        """Choose experts for `hidden`, [tokens, hidden]."""
        numbers = self.chosen.reshape(-1, self.chosen.shape[-1])
        return torch.zeros(len(numbers), 4), torch.zeros(len(numbers), 2), numbers


def recorded(folder: Path, kind: type[Any], batches: list[Any], hidden: Any, *, again: bool = False) -> None:
    """Record one iteration of two routers, the second of which sees no difference.

    Args:
        again: each pass runs without gradients first, and in reverse order with them, as recomputation does.
    """
    choices = _Choices(folder)
    routers = [kind(batches[0]), kind(torch.zeros_like(batches[0]) + torch.tensor([0, 1]))]
    for router in routers:
        router.register_forward_hook(choices.after)
    for batch in batches:
        routers[0].chosen = batch
        for enabled in (False, True) if again else (True,):
            with torch.set_grad_enabled(enabled):
                for router in reversed(routers) if again and enabled else routers:
                    router(hidden)
    choices.write(1)


def trained(folder: Path, label: str) -> Trained:
    """Return a training whose folder is there."""
    log = str(folder / "log.txt")
    return Trained(label=label, iterations=(), problem="", command="", log=log, seconds=0.0)


def moe(*words: str) -> Job:
    """Return a small MoE job."""
    return compose(["+recipe=tiny_qwen3_moe", "backend=megatron", *words])


def test_megatron_and_transformers_are_recorded_in_one_order(tmp_path: Path) -> None:
    one, two = torch.tensor([[[0, 1], [2, 3], [0, 3]], [[1, 2], [0, 2], [1, 3]]]), torch.tensor([[[3, 2]] * 3] * 2)
    flipped = one.clone()
    flipped[1, 0, 1] = 3
    sides = {"a": ([one, two], False), "b": ([one, two], True), "c": ([flipped, two], False)}
    recorded(tmp_path / "t" / "routing", TinyTopkRouter, [one, two], torch.zeros(6, 8))
    for name, (batches, again) in sides.items():
        recorded(tmp_path / name / "routing", TopKRouter, batches, torch.zeros(3, 2, 8), again=again)
    found = between(moe(), [trained(tmp_path / name, name) for name in ("t", "a", "b", "c")])
    assert {name: each.counts for name, each in found.items()} == {
        "a": {1: (0, 48)},
        "b": {1: (0, 48)},
        "c": {1: (1, 48)},
    }
    assert found["c"].line() == "routing flips (choices of experts that differ): 1 of 48 (from iteration 1)"
    assert found["a"].line() == "routing flips (choices of experts that differ): 0 of 48"
    assert found["c"].as_tree()["iterations"] == [{"iteration": 1, "differ": 1, "choices": 48}]


def _write(folder: Path, choices: Any) -> None:
    (folder / "routing").mkdir(parents=True)
    numpy.savez(folder / "routing" / "1.npz", **{"0": choices})


def test_what_cannot_be_counted_is_said(tmp_path: Path) -> None:
    _write(tmp_path / "first", numpy.ones((4, 2), dtype=bool))
    _write(tmp_path / "longer", numpy.ones((5, 2), dtype=bool))
    _write(tmp_path / "first-reordered", numpy.eye(4, 2, dtype=bool))
    first, longer, graph, again = (
        trained(tmp_path / name, name) for name in ("first", "longer", "graph", "first-reordered")
    )
    found = between(moe(), [first, longer, graph], again)
    assert found["longer"].problem == (
        "the routers of first and longer see other tokens at iteration 1; works: task=pretrain (samples of one length, "
        "without padding)"
    )
    assert found["graph"].line() == (
        "routing flips not counted: graph records no routers; works: --backends without it"
    )
    assert found[AGAIN].counts == {1: (6, 8)}


def test_a_model_without_routers_or_split_over_ranks_records_nothing(tmp_path: Path) -> None:
    assert recorded_in(moe(), tmp_path) == {VARIABLE: str(tmp_path / "routing")}
    dense = compose(["+recipe=tiny_qwen3", "backend=megatron"])
    assert (recorded_in(dense, tmp_path), between(dense, [trained(tmp_path, "a"), trained(tmp_path, "b")])) == ({}, {})
    split = moe("cluster.devices_per_node=2", "parallel.ep=2")
    assert recorded_in(split, tmp_path) == {}
    (found,) = between(split, [trained(tmp_path, "a"), trained(tmp_path, "b")]).values()
    said, _, works = found.line().partition("; works: ")
    assert said == "routing flips not counted: tokens or layers are split over 2 ranks"
    assert recorded_in(moe("cluster.devices_per_node=2", "parallel.ep=2", *works.split()), tmp_path)


def test_a_training_without_torch_records_nothing(tmp_path: Path) -> None:
    """MindFormers' ranks have none; the training must start all the same."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    program = "from launcher.rehearse.cpu import routing; routing.install(); routing.write(1)"
    search = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    environ = {**os.environ, VARIABLE: str(tmp_path / "routing"), "PYTHONPATH": search}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
    assert not (tmp_path / "routing").exists()

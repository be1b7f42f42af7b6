"""Which file of a rank's folder is read: the last step's, of the last start; several that look alike: none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.mindformers.checkpoint.rank_folders import rank_folders, read_ranks
from backends.mindformers.checkpoint.strategy import read_strategy
from launcher.convert.containers.errors import Damaged
from launcher.convert.formats.format import Layout

pytest.importorskip("safetensors")


def _folders(root: Path, *ranks: tuple[str, ...]) -> Path:
    import numpy as np
    from safetensors.numpy import save_file

    for rank, names in enumerate(ranks):
        folder = root / f"rank_{rank}"
        folder.mkdir()
        for name in names:
            save_file({"w": np.zeros(2, np.float32)}, folder / f"{name.replace('RANK', str(rank))}.safetensors")
    return root


def _read(root: Path) -> tuple[list[str], tuple[str, ...]]:
    found = read_ranks(root, rank_folders(root), Layout())
    return [part.file for part, _ in found.parts], found.notes


@pytest.mark.parametrize(
    ("names", "taken", "notes"),
    [
        (("q_rank_RANK-1_5",), "q_rank_RANK-1_5", ()),
        (("any",), "any", ()),
        (("q_rank_RANK-2_9", "q_rank_RANK-2_10"), "q_rank_RANK-2_10", ("2 steps are there",)),
        (
            ("q_rank_RANK-3_10", "q_rank_RANK_2-3_10", "q_rank_RANK_10-3_10"),
            "q_rank_RANK_10-3_10",
            ("3 files are of epoch 3, step 10; taken: the last start's",),
        ),
        (
            ("a-00001-of-00002", "a-00002-of-00002", "q_rank_RANK-1_5"),
            "q_rank_RANK-1_5",
            ("2 steps are there",),
        ),
    ],
    ids=["one", "no step", "steps", "starts", "others without a step"],
)
def test_the_file_that_is_read(names: tuple[str, ...], taken: str, notes: tuple[str, ...], tmp_path: Path) -> None:
    files, reported = _read(_folders(tmp_path, names, names))
    assert files == [f"{taken.replace('RANK', str(rank))}.safetensors" for rank in (0, 1)]
    assert len(reported) == len(notes)
    assert all(found.startswith(start) for found, start in zip(reported, notes, strict=True))


@pytest.mark.parametrize(
    ("ranks", "reported"),
    [
        ((("model-00001-of-00002", "model-00002-of-00002"),), "several files without a step in their names"),
        ((("a-1_1", "b-1_1"),), "several files of one step (a-1_1.safetensors, b-1_1.safetensors)"),
        ((("q_rank_0-1_1", "q_rank_0_1-1_1"), ("q_rank_1-1_1",)), "is of another start of the training than"),
        ((("q_rank_0-1_1",), ()), "no file of epoch 1 step 1, which other ranks have"),
        ((("any",), ()), "no *.safetensors, which other ranks have"),
    ],
    ids=["shards", "two names", "another start", "no such step", "nothing"],
)
def test_what_cannot_be_distinguished_is_not_read(
    ranks: tuple[tuple[str, ...], ...], reported: str, tmp_path: Path
) -> None:
    with pytest.raises(Damaged) as refused:
        _read(_folders(tmp_path, *ranks))
    assert reported in str(refused.value)


@pytest.mark.parametrize("tree", [[], [1], {}, {"parallel_layout_item": []}, {"parallel_strategy_item": [1]}, 3, None])
def test_json_that_is_no_strategy(tree: object, tmp_path: Path) -> None:
    file = tmp_path / "strategy.json"
    file.write_text(json.dumps(tree))
    with pytest.raises(Damaged, match="not a strategy file of MindSpore"):
        read_strategy([file])

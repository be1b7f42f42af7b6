"""Layers per stage: every way to say them becomes an offset that builds exactly them, and is read back."""

import pytest

from backends.mindformers import BACKEND
from backends.mindformers.mapping.stages import canonical_split, expand_layout, matrix_of, offset_of
from launcher.mapping.engine import read_back
from tests.backends.mindformers.jobs import NEWEST, refusals, tree, written

OFFSET = "model.model_config.offset"

# layers, pp, vpp, how it is said -> layers by chunk and stage
SPLITS = {
    "even": (32, 4, None, {}, ((8, 8, 8, 8),)),
    "short ends": (30, 4, None, {"first_stage_layers": 7, "last_stage_layers": 7}, ((7, 8, 8, 7),)),
    "short last": (31, 4, None, {"last_stage_layers": 7}, ((8, 8, 8, 7),)),
    "embedding counts": (31, 4, None, {"account_for_embedding": True}, ((7, 8, 8, 8),)),
    "both ends count": (30, 4, None, {"account_for_embedding": True, "account_for_loss": True}, ((7, 8, 8, 7),)),
    "empty layers at the end": (30, 4, None, {"noop_layers": [30, 31]}, ((8, 8, 8, 6),)),
    "ends with chunks": (36, 4, 2, {"first_stage_layers": 8, "last_stage_layers": 8}, ((4, 5, 5, 4), (4, 5, 5, 4))),
    "a layout": (13, 4, 2, {"layout": "Et|(tt|)*5t|tL"}, ((1, 2, 2, 2), (2, 2, 1, 1))),
    "an empty last chunk": (7, 4, None, {"layout": "Ett|ttt|tt|L"}, ((2, 3, 2, 0),)),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_builds_its_layers_and_is_read_back(name: str) -> None:
    layers, pp, vpp, reported, matrix = SPLITS[name]
    job = tree(model_changes={"num_hidden_layers": layers}, parallel={"pp": pp, "vpp": vpp, **reported})
    native = written(job)
    assert native[OFFSET] == offset_of(matrix, 0)
    if native[OFFSET] != 0:
        assert matrix_of(native[OFFSET], layers, pp, vpp or 1) == matrix
    again = read_back(native, BACKEND, NEWEST)
    assert OFFSET not in again.job.backend.args
    back = tree(model_changes={"num_hidden_layers": layers}, parallel={"pp": pp, "vpp": vpp})
    split = {path.removeprefix("parallel."): value for path, value in canonical_split(matrix, 0).items()}
    back["parallel"] |= split if native[OFFSET] != 0 else {}
    assert written(back)[OFFSET] == native[OFFSET]


def test_a_row_for_several_chunks_is_not_believed() -> None:
    """MindFormers broadcasts it after checking its sum: 29 layers become 30."""
    assert matrix_of((1, 0), 29, 2, 2) is None


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("Et*3|t*3", "places 6 layers"),
        ("tt|Ett", "keeps the embedding"),
        ("Ett|ttL|tt", "has 3 chunks"),
        ("EttL|tt", "keeps the embedding"),
    ],
)
def test_a_layout_that_mindformers_cannot_build_is_refused(layout: str, why: str) -> None:
    found = refusals(tree(model_changes={"num_hidden_layers": 4}, parallel={"pp": 2, "layout": layout}))
    assert why in found["parallel.layout"][0]


def test_an_empty_stage_in_the_middle_is_refused() -> None:
    job = tree(model_changes={"num_hidden_layers": 4}, parallel={"pp": 4, "layout": "Ett||t|tL"})
    assert "only the first and the last chunk may be empty" in refusals(job)["parallel.layout"][0]


def test_repetitions_are_expanded() -> None:
    assert expand_layout("Et*3|(tt|)*2,m|L") == ["Ettt", "tt", "tt", "m", "L"]

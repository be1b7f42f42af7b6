"""The places of expert layers: written as Megatron's expression, read back without evaluating it."""

import pytest

from launcher.families.layer_pattern import describe, pattern
from launcher.list_expression import expand

CASES = [(layers, dense, every) for layers in (1, 4, 6, 9) for dense in range(layers) for every in (1, 2, 3, 4)]


@pytest.mark.parametrize(("layers", "dense", "every"), CASES)
def test_the_expression_is_hugging_faces_rule(layers: int, dense: int, every: int) -> None:
    """`layer >= first_k_dense_replace and layer % moe_layer_freq == 0`, counted from layer 0 (DeepSeek)."""
    wanted = [int(layer >= dense and layer % every == 0) for layer in range(layers)]
    assert expand(pattern(layers, dense, every)) == wanted


@pytest.mark.parametrize(("layers", "dense", "every"), CASES)
def test_what_describes_a_pattern_writes_it_again(layers: int, dense: int, every: int) -> None:
    kinds = expand(pattern(layers, dense, every))
    assert kinds is not None
    found = describe(kinds)
    assert found is None if 1 not in kinds else expand(pattern(layers, *(found or (0, 0)))) == kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("[0]*1+[1]*2", [0, 1, 1]),
        ("([0]*1 + [1]*2)", [0, 1, 1]),
        ("([0,1]*2)", [0, 1, 0, 1]),
        ("__import__('os')", None),
        ("[0]*", None),
        ("[0", None),
    ],
)
def test_only_patterns_are_read(text: str, kinds: list[int] | None) -> None:
    assert expand(text) == kinds


def test_irregular_places_have_no_two_numbers() -> None:
    assert describe([0, 1, 1, 0]) is None
    assert describe([0, 0, 1, 0, 1, 0]) == (1, 2)

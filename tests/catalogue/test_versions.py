"""Versions are ordered as packaging orders them, under the names that upstream gives them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.catalogue.versions import in_range, nearest_versions, version_key
from launcher.mapping.backend import backend_names, get_backend
from tests.sampling import examples

# Each comes before the next.
ORDERS = {
    "Megatron-SWIFT": ("3.5-dev", "3.5", "3.5.3", "3.6.4", "3.10", "3.12.6", "4.0.0", "4.6.0", "master"),
    "Megatron-LM": ("core_r0.11.0", "core_v0.12.1", "core_v0.13.0rc2", "0.13", "core_v0.16.1", "main"),
    "MindSpeed-LLM": ("2.1.0", "2.2.99", "26.0.0", "26.1.0", "master"),
    "MindFormers": ("r1.6", "v1.6.1", "r2.1", "2.1.1", "dev"),
}
SAME = [("core_v0.12.1", "0.12.1"), ("r1.6", "1.6.0"), ("2.1.0-pynative", "2.1"), ("master", "master-fsdp2")]
RANGES = [
    ("4.0.0", None, "4.0", True),
    ("4.0.1", None, "4.0", False),
    ("3.5-dev", "3.5", None, False),
    ("3.5-dev", None, "3.5", True),
    ("3.12.6", "3.9", "3.99", True),
    ("master", "26.1.0", None, True),
    ("master", None, "26.1.0", False),
    ("26.1.0", "master", None, False),
    ("2.1.0", None, None, True),
]


@pytest.mark.parametrize("order", ORDERS.values(), ids=list(ORDERS))
def test_later_versions_sort_after_earlier_ones(order: tuple[str, ...]) -> None:
    assert all(version_key(before) < version_key(after) for before, after in pairwise(order))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_prefixes_and_entry_points_do_not_count(one: str, other: str) -> None:
    assert version_key(one) == version_key(other)


@pytest.mark.parametrize(("version", "since", "until", "inside"), RANGES)
def test_bounds_are_inclusive(version: str, since: str | None, until: str | None, inside: bool) -> None:
    assert in_range(version, since, until) is inside


@pytest.mark.parametrize("backend", backend_names())
def test_versions_of_a_backend_differ(backend: str) -> None:
    versions = get_backend(backend).versions
    assert len({version_key(version) for version in versions}) == len(versions)


NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(tuple)
FORMS = st.sampled_from(["{}", "v{}", "r{}", "core_v{}", "core_r{}", "{}-entry"])


@examples(100)
@given(NUMBERS, NUMBERS, FORMS, FORMS)
def test_numbers_decide_under_every_name(
    one: tuple[int, ...], other: tuple[int, ...], form: str, other_form: str
) -> None:
    padded = [(*numbers, *([0] * (4 - len(numbers)))) for numbers in (one, other)]
    keys = [version_key(each.format(".".join(map(str, n)))) for each, n in ((form, one), (other_form, other))]
    assert (keys[0] < keys[1]) is (padded[0] < padded[1])
    assert (keys[0] == keys[1]) is (padded[0] == padded[1])
    assert keys[0] < version_key("main")
    assert version_key(".".join(map(str, one)) + "-dev") < keys[0]


NEAREST = [
    ("0.15.9", ("0.19.0", "0.16.1", "0.15.3", "0.14.0"), "0.15.3"),
    ("0.15", ("0.16.0", "0.14.0"), "0.16.0"),
    ("0.20", ("0.19.0", "0.18.2"), "0.19.0"),
    ("core_v0.13.0", ("0.16.1", "0.13.1", "0.12.1"), "0.13.1"),
    ("25.9", ("master", "26.1.0", "26.0.0", "2.3.0"), "26.1.0"),
    ("main", ("0.19.0", "0.18.2"), "0.19.0"),
]


@pytest.mark.parametrize(("wanted", "known", "first"), NEAREST, ids=[wanted for wanted, _, _ in NEAREST])
def test_the_nearest_version_is_that_of_the_numbers(wanted: str, known: tuple[str, ...], first: str) -> None:
    assert nearest_versions(wanted, known)[0] == first

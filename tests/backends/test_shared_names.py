"""What two backends call by one name is a field of the job on both, or there is a reason, with its source, why not."""

import itertools
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

from launcher.catalogue.catalogue import Argument, plain
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import read_back
from launcher.mapping.native_only_index import native_only_index_of
from launcher.mapping.rows import active_rows

PAIRS = list(itertools.combinations(backend_names(), 2))
# A file and a line of it (or a file of data), and the version in which it stands.
SOURCE = re.compile(r"[\w/.-]+\.(py|yaml|json|md)(:\d+(-\d+)?)? @[\w.-]+")


# What stands beside an argument when it is read: nothing, or the choice that it belongs to.
BESIDE: tuple[dict[str, Any], ...] = ({}, {"num-experts": 8, "moe-token-dispatcher-type": "flex"})


@cache
def names(backend: str) -> dict[str, tuple[tuple[str, Argument], ...]]:
    """Return the versions and arguments of a backend by plain name; dotted keys by their last part, too."""
    found: dict[str, dict[tuple[str, str], tuple[str, Argument]]] = {}
    for version in get_backend(backend).versions:
        for argument in get_backend(backend).catalogue(version).arguments:
            for name in {plain(argument.name), plain(argument.name.rpartition(".")[2])}:
                found.setdefault(name, {})[version, argument.name] = (version, argument)
    return {name: tuple(each.values()) for name, each in found.items()}


@cache
def written(backend: str, version: str) -> frozenset[str]:
    """Return the arguments that the rows of a version write."""
    rows = active_rows(get_backend(backend).table(version), version)
    return frozenset(flag for row in rows for flag in row.flags)


def samples(argument: Argument) -> Iterator[Any]:
    """Yield values that an argument takes."""
    one: list[Any] = [*(argument.choices or ()), True, False, 2, 0.5, "x"]
    if argument.default is not None:
        one.append(argument.default)
    yield from ([value] for value in one) if argument.is_list else one


@cache
def has_field(backend: str, version: str, name: str) -> bool:
    """Tell whether an argument is written from a field, or at least read into one."""
    argument = get_backend(backend).catalogue(version).get(name)
    assert argument is not None
    if {argument.name, *argument.aliases} & written(backend, version):
        return True
    return any(
        argument.name not in {left.flag for left in found.unmapped}
        for value in samples(argument)
        for found in (read_back({**beside, argument.name: value}, get_backend(backend), version) for beside in BESIDE)
    )


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_every_name_that_two_backends_share_is_accounted_for(pair):
    shared = sorted(set(names(pair[0])) & set(names(pair[1])))
    assert len(shared) > 20
    forgotten = [
        f"{backend} {version} {argument.name}"
        for name in shared
        for backend in pair
        for version, argument in names(backend)[name]
        if native_only_index_of(backend).reason(argument.name, argument) is None
        and not has_field(backend, version, argument.name)
    ]
    assert not forgotten


@pytest.mark.slow
@pytest.mark.parametrize("backend", backend_names())
def test_what_has_a_reason_exists_and_has_no_field(backend: str) -> None:
    for row in native_only_index_of(backend).rows:
        for name in row.names if row.no_field else ():
            known = itertools.chain.from_iterable(names(backend).values())
            there = [each for each in known if fnmatchcase(plain(each[1].name), plain(name))]
            assert there, f"{backend} has no {name}"
            assert not all(has_field(backend, version, found.name) for version, found in there), f"{backend} {name}"


@pytest.mark.parametrize("backend", backend_names())
def test_every_reason_is_a_sentence_with_a_source(backend: str) -> None:
    for row in native_only_index_of(backend).rows:
        if row.no_field:
            assert row.no_field.endswith("."), row.no_field
            assert len(row.no_field.split()) > 3, row.no_field
            assert all(SOURCE.fullmatch(each) for each in row.source.split("; ")), row.source

"""Tables of what arguments without a field do: every one has an answer, what it names exists, and no row is idle."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest

from launcher.catalogue.catalogue import Argument, plain
from launcher.job import Job, fields
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.engine import fields_of_flags, read_back
from launcher.mapping.native_only import EFFECTS, MODEL, TRAINING, NativeOnlyArg
from launcher.mapping.native_only_index import NativeOnlyIndex, native_only_index_of
from launcher.port.dropped import spelled


@pytest.mark.parametrize(
    ("name", "version"), [(name, v) for name in backend_names() for v in get_backend(name).versions]
)
def test_every_argument_without_a_field_is_described(name: str, version: str) -> None:
    catalogue, ties = get_backend(name).catalogue(version), fields_of_flags(name, version)
    left = [argument for argument in catalogue.arguments if argument.name not in ties]
    silent = [argument.name for argument in left if native_only_index_of(name).of(argument.name, argument) is None]
    assert not silent, (
        f"{name} {version} takes arguments without a field that backends/{name}/native_only does not describe"
        f" (or the row of a field begins at a later version): {', '.join(silent)}"
    )


@pytest.mark.parametrize("name", backend_names())
def test_rows_are_complete_or_describe_one_attribute(name: str) -> None:
    for row in native_only_index_of(name).rows:
        assert row.names or row.groups, row
        if row.effect:
            assert row.effect in EFFECTS, row
            assert row.does, row
            assert row.why, row
        else:
            assert row.does or row.no_field, row
            assert not row.why, row
        assert row.does[:1].islower() or not row.does, row
        assert not row.does.endswith("."), row


# -- no row is idle: names that got a field, or a row of their own, since

# What stands beside an argument whose field does not take every value, or not with every other argument.
_EXPERTS = {"num-experts": 8}
BESIDE: tuple[dict[str, Any], ...] = (
    {},
    {**_EXPERTS, "moe-token-dispatcher-type": "flex"},
    {**_EXPERTS, "moe-router-load-balancing-type": "none"},
    {"multi-latent-attention": True, "kv-lora-rank": 512},
    {"model-type-hf": "unheard-of", "enable-hf2mg-convert": True},
    {"position-embedding-type": "alibi"},
)


@pytest.mark.slow
def test_every_row_describes_an_argument_that_can_be_passed_through() -> None:
    rows = {id(row): (name, row) for name in backend_names() for row in native_only_index_of(name).rows}
    idle = {(key, each) for key, (_, row) in rows.items() for each in (*row.names, *row.groups)}
    for name in backend_names():
        index, backend = native_only_index_of(name), get_backend(name)
        arguments = [
            (version, argument) for version in backend.versions for argument in backend.catalogue(version).arguments
        ]
        for version, argument in sorted(arguments, key=lambda each: each[1].name in fields_of_flags(name, each[0])):
            waiting = {key for row in index.about(argument.name, argument) for key in keys_of(row, argument)} & idle
            for job, value in passthrough_arguments(argument, backend, version, index) if waiting else ():
                waiting -= {
                    key for row in applicable_rows(index, argument, job, value) for key in keys_of(row, argument)
                }
                if not waiting:
                    break
            idle -= {key for row in index.about(argument.name, argument) for key in keys_of(row, argument)} - waiting
    undescribed = [f"{rows[key][0]}: {each}" for key, each in idle if not is_open_key(get_backend(rows[key][0]), each)]
    assert not undescribed, (
        f"every value of these arguments is read into a field: remove their rows of native_only (a dialect: of"
        f" megatron_lm too): {', '.join(sorted(undescribed))}"
    )


def keys_of(row: NativeOnlyArg, argument: Argument) -> set[tuple[int, str]]:
    """Return by which names, patterns or groups a row is about an argument."""
    spellings = {plain(argument.name), *map(plain, argument.aliases)}
    names = {each for each in row.names if any(fnmatchcase(one, plain(each)) for one in spellings)}
    return {(id(row), each) for each in names or {argument.group, argument.owner} & set(row.groups)}


def applicable_rows(index: NativeOnlyIndex, argument: Argument, job: Job | None, value: Any) -> Iterator[NativeOnlyArg]:
    """Yield the rows from which a fact about an argument is taken."""
    found = list(index.about(argument.name, argument, job, value))
    for fact in ("effect", "does", "no_field"):
        yield from [row for row in found if getattr(row, fact)][:1]


def passthrough_arguments(
    argument: Argument, backend: Backend, version: str, index: NativeOnlyIndex
) -> Iterator[tuple[Job | None, Any]]:
    """Yield jobs and values with which an argument is passed through; None: with all of them."""
    rows = list(index.about(argument.name, argument))
    if argument.name not in fields_of_flags(backend.name, version) and not any(r.given or r.holds for r in rows):
        yield None, None
        return
    catalogue = backend.catalogue(version)
    ones = [
        *(each for row in rows for each in row.given),
        *(argument.choices or ()),
        True,
        False,
        1,
        2,
        0.5,
        "x",
        [1, 2],
        argument.default,
    ]
    for value in ([each] if argument.is_list else each for each in ones):
        if catalogue.check(argument.name, value) is None:
            for beside in BESIDE if catalogue.style == "argparse" else ({},):
                found = read_back({**beside, argument.name: value}, backend, version)
                if argument.name in {left.flag for left in found.unmapped}:
                    yield found.job, value


def is_open_key(backend: Backend, name: str) -> bool:
    """Tell whether a name is of a YAML section that takes keys that its catalogue lacks, and no field takes it."""
    key = name.replace("*", "thing")
    return any(
        catalogue.style == "yaml"
        and catalogue.get(key) is None
        and key in {left.flag for left in read_back({key: value}, backend, catalogue.version).unmapped}
        for catalogue in map(backend.catalogue, backend.versions)
        for value in (True, 2, "x")
    )


# Programs besides the training of language models, whose arguments share a sentence.
OTHER_PROGRAMS = ("tunes reinforcement learning",)


@pytest.mark.parametrize("name", backend_names())
def test_each_argument_that_changes_training_is_described(name: str) -> None:
    index, backend = native_only_index_of(name), get_backend(name)
    vague: dict[str, str] = {}
    for version in backend.versions:
        ties = fields_of_flags(name, version)
        for argument in backend.catalogue(version).arguments:
            rows = [row for row in index.about(argument.name, argument) if row.does]
            found = index.of(argument.name, argument)
            if argument.name in ties or found is None or found.effect not in (MODEL, TRAINING):
                continue
            if all("*" in each for each in rows[0].names):
                vague[argument.name] = rows[0].does
    left = {flag: does for flag, does in vague.items() if does not in OTHER_PROGRAMS}
    assert not left, f"a row in backends/{name}/native_only, or of the Megatron-LM that it extends: {left}"


@pytest.mark.parametrize("name", backend_names())
def test_substitutes_are_fields_or_arguments_of_some_backend(name: str) -> None:
    for row in native_only_index_of(name).rows:
        for override in row.instead:
            path, equals, value = override.partition("=")
            assert equals, override
            assert value, override
            if path.startswith("backend.args."):
                argument = path.removeprefix("backend.args.")
                others = [(get_backend(each), v) for each in backend_names() for v in get_backend(each).versions]
                assert any(spelled(backend, v, argument) for backend, v in others), override
            else:
                assert path in fields(), override
        for path in row.becomes:
            assert path in fields(), row

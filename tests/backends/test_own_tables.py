"""Tables of what arguments without a field do: every one has an answer, and what it names exists."""

from fnmatch import fnmatchcase

import pytest

from launcher.job import fields
from launcher.transfer.left_out import owns_of, spelled
from launcher.translate.backend import backend_names, get_backend
from launcher.translate.engine import fields_of_flags
from launcher.translate.own import EFFECTS, MODEL, TRAINING, plain, unknown


@pytest.mark.parametrize(
    ("name", "version"), [(name, v) for name in backend_names() for v in get_backend(name).versions]
)
def test_every_argument_without_a_field_has_an_answer(name: str, version: str) -> None:
    catalogue, ties = get_backend(name).catalogue(version), fields_of_flags(name, version)
    untold = [arg.name for arg in unknown(catalogue, owns_of(name)) if arg.name not in ties]
    assert untold == []


@pytest.mark.parametrize("name", backend_names())
def test_rows_name_arguments_that_exist_and_say_everything(name: str) -> None:
    known = {
        plain(each)
        for other in (name, "mindspeed" if name == "megatron_lm" else "megatron_lm")
        for version in get_backend(other).versions
        for each in get_backend(other).catalogue(version).names()
    }
    # Sections of a YAML take keys that no catalogue has, as do scripts of versions between the catalogues.
    open_names = get_backend(name).catalogue(get_backend(name).versions[0]).style == "yaml"
    for row in owns_of(name).rows:
        assert row.effect in EFFECTS, row
        assert row.does, row
        assert row.why, row
        assert row.names or row.groups, row
        for each in row.names:
            found = any(fnmatchcase(one, plain(each)) for one in known)
            assert found or open_names or each in ("colocate_groups", "export_model_parallel_size"), each


# Programs besides the training of language models, whose arguments share a sentence.
OTHER_PROGRAMS = ("tunes reinforcement learning",)


@pytest.mark.parametrize("name", backend_names())
def test_what_changes_training_is_said_of_each_argument(name: str) -> None:
    owns = owns_of(name)
    backend = get_backend(name)
    known: set[str] = set()
    vague: dict[str, str] = {}
    for version in backend.versions:
        catalogue, ties = backend.catalogue(version), fields_of_flags(name, version)
        for argument in catalogue.arguments:
            known |= {plain(argument.name), *map(plain, argument.aliases)}
            row = owns.of(argument.name, argument)
            if row is None or argument.name in ties or owns.named(argument.name) is not None:
                continue
            if row.effect in (MODEL, TRAINING) and row.does in {each.does for each in owns.rows}:
                vague[argument.name] = row.does
    phrases = backend.entry.phrases()
    assert {plain(each) for each in phrases} <= known
    assert all(phrase[:1].islower() and not phrase.endswith(".") for phrase in phrases.values())
    assert not {flag: does for flag, does in vague.items() if does not in OTHER_PROGRAMS}


@pytest.mark.parametrize("name", backend_names())
def test_substitutes_are_fields_or_arguments_of_some_backend(name: str) -> None:
    for row in owns_of(name).rows:
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

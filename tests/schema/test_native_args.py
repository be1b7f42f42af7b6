"""`backend.args` in the schema of one backend's version: the values that its catalogue accepts, and no other."""

from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.mapping.backend import backend_names, get_backend
from launcher.schema.document import document
from launcher.schema.native_args import args_schema, with_native_args
from tests.sampling import sample

VALUES: tuple[Any, ...] = (True, False, 1, 0.5, "x", "1", "0.5", "true", [], [1], ["x"], ["x", "y", "z"], {"a": 1})
NEWEST = [(name, get_backend(name).version(None)) for name in backend_names()]


def catalogue(backend: str, version: str) -> Catalogue:
    return get_backend(backend).catalogue(version)


@cache
def validator(backend: str, version: str) -> Draft202012Validator:
    schema = {"$defs": document()["$defs"], **args_schema(catalogue(backend, version))}
    return Draft202012Validator(schema)


def lenient(argument: Argument, value: Any) -> bool:
    """Return whether only the schema accepts a value: JSON Schema cannot read the text of numbers and JSON."""
    return isinstance(value, str) or value == [] or (isinstance(value, list) and argument.type in ("ints", "json_text"))


@pytest.mark.parametrize("backend, version", NEWEST)
def test_every_argument_takes_the_values_that_its_catalogue_accepts(backend: str, version: str) -> None:
    known = catalogue(backend, version)
    checked = validator(backend, version)
    for argument in sample(known.arguments, 150, f"{backend} {version}"):
        for value in (*VALUES, *(argument.choices or ())):
            problem = None if value is None else known.check(argument.name, value)
            valid = checked.is_valid({argument.name: value})
            if problem is None:
                assert valid, f"{argument.name}={value!r} is accepted, not by the schema"
            elif not lenient(argument, value):
                assert not valid, f"{argument.name}={value!r}: {problem}, but the schema accepts it"


@pytest.mark.parametrize("backend, version", NEWEST)
def test_an_argument_of_no_version_is_an_error(backend: str, version: str) -> None:
    known = catalogue(backend, version)
    name = known.arguments[0].name
    wrong = (
        f"{name}x"
        if known.style != "yaml"
        else next(
            f"{section}.no_such_key" for section in known.strict_sections if not known.is_open(f"{section}.no_such_key")
        )
    )
    assert not known.is_open(wrong)
    assert not validator(backend, version).is_valid({wrong: 1}) or known.is_open("")


def test_keys_of_a_yaml_file_are_nested_or_have_dots() -> None:
    backend = next(name for name, version in NEWEST if catalogue(name, version).style == "yaml")
    checked = validator(backend, get_backend(backend).version(None))
    assert checked.is_valid({"context": {"mode": "GRAPH_MODE"}, "context.device_target": "Ascend"})
    assert not checked.is_valid({"context": {"mode": "GRAPHMODE"}})
    assert not checked.is_valid({"context.mode": "GRAPHMODE"})


@pytest.mark.parametrize("backend, one, other", [("megatron", "_", "-"), ("megatron_lm", "-", "_")])
def test_both_separators_of_words_are_names(backend: str, one: str, other: str) -> None:
    version = get_backend(backend).version(None)
    number = next(arg for arg in catalogue(backend, version).arguments if arg.type == "int" and one in arg.name)
    checked = validator(backend, version)
    assert checked.is_valid({number.name: 4})
    assert checked.is_valid({number.name.replace(one, other): 4})
    assert not checked.is_valid({f"{number.name.replace(one, other)}x": 4})


@pytest.mark.slow
@pytest.mark.parametrize("backend, version", NEWEST)
def test_it_is_a_json_schema(backend: str, version: str) -> None:
    Draft202012Validator.check_schema(with_native_args(document(), catalogue(backend, version)))


@pytest.mark.parametrize("backend, version", NEWEST)
def test_a_job_of_this_backend_is_valid(backend: str, version: str) -> None:
    schema = with_native_args(document(), catalogue(backend, version))
    checked = Draft202012Validator(schema)
    assert checked.is_valid({"backend": {"name": backend, "version": version, "env": {"A": 1}}})
    assert not checked.is_valid({"backend": {"version": f"{version}9"}})
    assert "properties" not in document()["$defs"]["backend"]["properties"]["args"]  # the other schema is not changed

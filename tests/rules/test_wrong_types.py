"""Passed-through values of the wrong type are reported as such, and violate no rule."""

import functools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.api import check
from launcher.compose import compose
from launcher.importing.imported import Imported
from launcher.job import Job, with_values
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.pipeline import judge
from tests.sampling import examples

JUNK: tuple[Any, ...] = ("abc", -7, 0, 0.0, 0.5, [1, 2], ["a"], {"a": 1}, True, "", 10**30)


@functools.cache
def job_of(backend: str) -> Job:
    return compose([f"backend={backend}", "+recipe=tiny_qwen3_moe"])


def arguments(backend: str, version: str) -> list[str]:
    return sorted(argument.name for argument in get_backend(backend).catalogue(version).arguments)


def passed(backend: str) -> st.SearchStrategy[Mapping[str, Any]]:
    names = arguments(backend, get_backend(backend).default_version)
    return st.dictionaries(st.sampled_from(names), st.sampled_from(JUNK), min_size=1, max_size=6)


@pytest.mark.parametrize("backend", backend_names())
@examples(24)
@given(data=st.data())
def test_junk_is_judged(backend: str, data: st.DataObject) -> None:
    args = data.draw(passed(backend))
    catalogue = get_backend(backend).catalogue(get_backend(backend).default_version)
    findings = judge(with_values(job_of(backend), {"backend.args": args})).findings
    reported = {flag for finding in findings if finding.rule == "ARG-VALUE" for flag in finding.flags}
    # In a YAML file a mapping is a section, whose keys are arguments of their own.
    single = {name: value for name, value in args.items() if not isinstance(value, Mapping)}
    assert reported >= {name for name, value in single.items() if catalogue.check(name, value) is not None}


@pytest.mark.parametrize("backend", backend_names())
@examples(24)
@given(data=st.data())
def test_few_arguments_or_none_are_judged_as_written(backend: str, data: st.DataObject) -> None:
    found = get_backend(backend)
    version, names = data.draw(st.sampled_from(found.versions)), arguments(backend, found.versions[0])
    args = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(JUNK), max_size=3))
    native = NativeArgs(
        backend=backend, version=version, args=tuple(NativeArg(flag=flag, value=args[flag]) for flag in args)
    )
    job = with_values(Job(), {"backend.name": backend, "backend.version": version})
    imported = Imported(backend=backend, version=version, job=job, native=native)
    assert all(finding.message for finding in check(imported))

"""A backend's default version is declared: a newer one moves nothing, and is named where a script fits it alone."""

import dataclasses
import importlib
from collections.abc import Iterator

import pytest

from launcher.api import check, import_argv
from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.compose import compose
from launcher.mapping import backend as backends
from launcher.mapping.backend import BUILT_IN, Backend, get_backend
from launcher.pipeline import judge

NEWER, NEW_ARGUMENT = "99.0", "an-argument-of-tomorrow"
DEFAULTS = {"megatron": "4.6.0", "megatron_lm": "0.16.1", "mindspeed": "26.1.0", "mindformers": "2.1.0"}
LINES = {
    "megatron": "megatron pt --model x --dataset y --micro_batch_size 1",
    "megatron_lm": "pretrain_gpt.py --num-layers 2 --micro-batch-size 1",
    "mindspeed": "pretrain_gpt.py --num-layers 2 --micro-batch-size 1",
}


def with_newer(found: Backend) -> Backend:
    """Return the backend with one more version, which takes one more argument."""
    newest = found.catalogue(found.default_version)
    spelled = NEW_ARGUMENT.replace("-", "_") if newest.style == "hf" else NEW_ARGUMENT
    more = Argument(name=spelled, dest=NEW_ARGUMENT.replace("-", "_"), type="int")
    newer = dataclasses.replace(newest, version=NEWER, arguments=(*newest.arguments, more), _index={}, _by_dest={})

    def catalogue(version: str) -> Catalogue:
        return newer if version == NEWER else found.catalogue(version)

    return dataclasses.replace(
        found,
        versions=(NEWER, *found.versions),
        catalogue=catalogue,
        table=lambda version: found.table(found.default_version if version == NEWER else version),
    )


@pytest.fixture(params=BUILT_IN)
def extended(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    module = importlib.import_module(f"backends.{request.param}")
    monkeypatch.setattr(module, "BACKEND", with_newer(module.BACKEND))
    backends.get_backend.cache_clear()
    yield get_backend(request.param)
    backends.get_backend.cache_clear()


def test_every_backend_says_its_default() -> None:
    assert {name: get_backend(name).default_version for name in BUILT_IN} == DEFAULTS


def test_a_newer_version_does_not_become_the_default(extended: Backend) -> None:
    assert extended.versions[0] == NEWER
    assert extended.default_version == extended.version(None) == DEFAULTS[extended.name]
    job = compose([f"backend={extended.name}", "+recipe=tiny_qwen3"])
    assert judge(job, fixes=False).version == DEFAULTS[extended.name]


@pytest.mark.parametrize("extended", LINES, indirect=True)
def test_a_script_of_both_versions_is_read_as_the_default_one(extended: Backend) -> None:
    imported = import_argv(LINES[extended.name].split(), backend=extended.name)
    assert (imported.version, imported.other_version) == (DEFAULTS[extended.name], "")


@pytest.mark.parametrize("extended", LINES, indirect=True)
def test_a_script_of_the_newer_version_alone_is_reported_as_one(extended: Backend) -> None:
    line = f"{LINES[extended.name]} --{NEW_ARGUMENT} 3"
    imported = import_argv(line.split(), backend=extended.name)
    assert imported.version == NEWER
    reported = [finding for finding in check(imported) if finding.rule == "IMPORT-VERSION"]
    assert [finding.severity for finding in reported] == ["warning"]
    assert NEWER in reported[0].message
    assert f"{DEFAULTS[extended.name]} refuses --{NEW_ARGUMENT}" in reported[0].message.replace("_", "-")


def test_a_plug_in_with_an_unknown_default_is_refused() -> None:
    broken = dataclasses.replace(get_backend("megatron_lm"), default_version="0.1")
    assert "Backend.default_version" in backends._incomplete(broken)


def test_a_backend_that_says_none_has_its_first_version() -> None:
    found = get_backend("megatron_lm")
    assert dataclasses.replace(found, default_version="", versions=("0.12.1", "0.16.1")).default_version == "0.12.1"

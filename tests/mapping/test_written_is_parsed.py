"""What a job writes is what the version's own parser takes; else the job is refused, with the field and what works."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from launcher.compose import compose
from launcher.job import Value, fields, value_at, with_values
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import judge
from tests.sampling import chosen_seed

# Words, the field that is refused, and one value that works.
REFUSED = {
    "a choice of the parser": (("backend=megatron_lm", "checkpoint.strictness=x"), "log_all"),
    "a level": (("backend=megatron_lm", "kernels.empty_cache_level=3"), "2"),
    "a pattern": (
        (
            "backend=megatron_lm",
            "backend.version=0.19.0",
            "tokenizer.type=TikTokenizer",
            "tokenizer.tiktoken_pattern=x",
        ),
        "v1",
    ),
    "of the dialect": (("backend=mindspeed", "logging.timer_level=3"), "2"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_value_that_the_parser_refuses_is_refused_with_what_works(case: tuple[tuple[str, ...], str]) -> None:
    words, works = case
    path = words[-1].partition("=")[0]
    found = judge(compose(["+recipe=qwen3_8b", "data.paths=[x]", "model.pretrained=false", *words])).findings
    (refused,) = [each for each in found if path in each.fields and each.severity == "error"]
    assert f"{path}={works}" in [override for fix in refused.fixes for override in fix.overrides]


@pytest.mark.parametrize(("version", "reports"), [("3.12.6", "wandb"), ("4.6.0", ("tensorboard", "wandb"))])
def test_weights_and_biases_is_named_as_each_version_takes_it(version: str, reports: Value) -> None:
    words = ("backend=megatron", f"backend.version={version}", "logging.wandb_project=p", "data.paths=[x]")
    outcome = judge(compose(["+recipe=qwen3_8b", *words]))
    assert outcome.ok
    assert {arg.flag: arg.value for arg in outcome.native.args}["report_to"] == reports


def candidates() -> Iterator[tuple[str, Value]]:
    """Yield fields with each of their choices, and both values of switches."""
    for path, info in fields().items():
        if info.meta.choices:
            yield from ((path, choice) for choice in info.meta.choices)
        elif "bool" in str(info.type):
            yield from ((path, value) for value in (True, False))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["megatron", "megatron_lm", "mindspeed"])
def test_what_is_not_refused_is_parsed(name: str) -> None:
    """Of the oldest, the newest and one drawn version: every choice of every field."""
    backend, base = get_backend(name), compose(["+recipe=qwen3_8b", f"backend={name}", "data.paths=[x]"])
    drawn = random.Random(chosen_seed()[0]).choice(backend.versions)
    for version in dict.fromkeys((backend.versions[0], backend.versions[-1], drawn)):
        catalogue = backend.catalogue(version)
        job = replace(base, backend=replace(base.backend, name=name, version=version))
        for path, value in candidates():
            if value_at(job, path) == value:
                continue
            done = translate(with_values(job, {path: value}), backend, version)
            refused = {field for each in done.findings if each.severity == "error" for field in each.fields}
            for arg in done.native.args:
                problem = catalogue.check(arg.flag, arg.value)
                assert problem is None or path in refused, f"{version} {path}={value}: {problem}"

"""A number format that a machine lacks is refused, and the nearest one that is named is one that it has."""

import pytest

from launcher.compose import compose
from launcher.job import Job, Value, with_values
from launcher.job.number_formats import format_of, nearest
from launcher.job.shipped import shipped
from launcher.rules.number_formats import fp4_runs_on_hardware, fp8_runs_on_hardware
from launcher.rules.registry import RuleContext, Violation

HARDWARE = sorted(path.stem for path in (shipped("conf") / "hardware").glob("*.yaml") if path.stem != "cpu")
FORMATS: dict[str, dict[str, Value]] = {
    "delayed": {"precision.fp8_format": "hybrid"},
    "tensorwise": {"precision.fp8_format": "hybrid", "precision.fp8_recipe": "tensorwise"},
    "blockwise": {"precision.fp8_format": "e4m3", "precision.fp8_recipe": "blockwise"},
    "mxfp8": {"precision.fp8_format": "e4m3", "precision.fp8_recipe": "mxfp8"},
    "nvfp4": {"precision.fp4_format": "e2m1", "precision.fp4_recipe": "nvfp4"},
}
_BY_BLOCK = {"delayed", "tensorwise", "blockwise"}
HAS: dict[str, set[str]] = {
    **{name: set() for name in ("a100_80g", "a100_80g_pcie", "ascend_910b", "ascend_910c")},
    **dict.fromkeys(("h20", "h100_80g", "h200", "h800", "mi300x", "mi325x"), _BY_BLOCK),
    **{name: set(FORMATS) for name in ("b200", "b300", "gb200", "gb300")},
    "mi355x": {*_BY_BLOCK, "mxfp8"},
}


def violations(job: Job) -> list[Violation]:
    context = RuleContext(job=job)
    return [*fp8_runs_on_hardware(context), *fp4_runs_on_hardware(context)]


def test_every_machine_is_judged() -> None:
    missing = sorted(set(HARDWARE) - set(HAS))
    assert not missing, f"HAS of tests/rules/test_number_formats.py: the number formats of {', '.join(missing)}"
    assert set(HAS) <= set(HARDWARE)


@pytest.mark.parametrize("machine", [name for name in HARDWARE if name in HAS])
@pytest.mark.parametrize("name", FORMATS)
def test_what_a_machine_lacks_is_refused_and_the_nearest_works(machine: str, name: str) -> None:
    job = with_values(compose([f"hardware={machine}"]), FORMATS[name])
    found = violations(job)
    assert bool(found) == (name not in HAS[machine])
    if found:
        works = dict(nearest(job.hardware, format_of(job.precision)))
        text = " ".join(f"{path}={'null' if value is None else value}" for path, value in works.items())
        assert f"nearest: {text}" in found[0].message
        assert violations(with_values(job, works)) == []


def test_a_machine_without_figures_refuses_nothing() -> None:
    assert violations(with_values(compose([]), FORMATS["mxfp8"])) == []

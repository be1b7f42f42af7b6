"""What is offered for a misspelt word is what was meant, and composes: it is tried before it is offered."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from launcher.cli import main
from launcher.compose.search_path import search_path
from launcher.job import fields
from launcher.job.schema import FieldInfo
from launcher.job.secret import without_secrets
from launcher.mapping.backend import backend_names, get_backend
from launcher.nearest import nearest
from tests.sampling import examples, sample

JOB = ("+recipe=qwen3_8b", "backend=megatron", "data.paths=[a/b]", "data.format=hub")
FIELDS = [path for path in fields() if not path.startswith(("backend.", "imported.", "name"))]
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
LETTERS = "abcdefghijklmnopqrstuvwxyz_"


def offered(capsys: pytest.CaptureFixture[str], arg: str, *job: str) -> list[str]:
    """Return what `check` offers for a word that it cannot read."""
    code = main(["check", *(job or JOB), arg, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == 2, arg
    return [fix for finding in findings for fix in finding["fix"] if finding["rule"].startswith("JOB-")]


def composes(capsys: pytest.CaptureFixture[str], arg: str, *job: str) -> bool:
    code = main(["check", *(job or JOB), arg, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return code != 2 and not any(finding["rule"].startswith("JOB-") for finding in findings)


def value(info: FieldInfo) -> str:
    """Return a value that the field takes."""
    if info.meta.choices:
        return str(info.meta.choices[-1])
    kind = str(info.type)
    if "tuple" in kind:
        return "[1]"
    if "str" in kind:
        return "abc"
    return "true" if "bool" in kind else f"{max(info.meta.minimum or 0, 1):g}"


@st.composite
def misspelt(draw: st.DrawFn, text: str) -> str:
    """Return a text with one typing error."""
    at = draw(st.integers(0, len(text) - 1))
    letter = draw(st.sampled_from(LETTERS))
    swapped = text[:at] + text[at + 1 : at + 2] + text[at] + text[at + 2 :]
    wrong = (text[:at] + text[at + 1 :], swapped, text[:at] + letter + text[at:], text[:at] + letter + text[at + 1 :])
    return draw(st.sampled_from(wrong))


def same(one: str, two: str) -> int:
    """Return how many letters two texts begin with alike."""
    return next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def is_one_error(wrong: str, known: str) -> bool:
    """Tell whether a name with one typing error can be another: three at most are offered of those that are as near."""
    head = same(wrong, known)
    tail = same(wrong[head:][::-1], known[head:][::-1])
    left, right = wrong[head : len(wrong) - tail], known[head : len(known) - tail]
    return (len(left) <= 1 and len(right) <= 1) or left == right[::-1]


@pytest.mark.slow
@given(data=st.data())
@examples(120, suppress_health_check=SHARED)
def test_a_misspelt_field_is_offered_and_composes(capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(FIELDS))
    info = fields()[path]
    wrong = data.draw(misspelt(path))
    assume(wrong not in fields() and not any(known.startswith(f"{wrong}.") for known in fields()))
    right, typed = f"{path}={value(info)}", f"{wrong}={value(info)}"
    # What stands under an unknown name that tells of secrets is not repeated, so that it cannot be offered either.
    assume(without_secrets([typed])[0] == typed and composes(capsys, right))
    found = offered(capsys, typed)
    assert right in found or sum(is_one_error(wrong, known) for known in fields()) > 3, (wrong, found)
    for each in found:
        assert composes(capsys, each), (wrong, each)


@given(data=st.data())
@examples(60, suppress_health_check=SHARED)
def test_a_misspelt_value_is_offered(capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path in FIELDS if fields()[path].meta.choices]))
    choices = [str(each) for each in fields()[path].meta.choices if len(str(each)) > 3]
    assume(choices)
    right = data.draw(st.sampled_from(choices))
    wrong = data.draw(st.sampled_from((right.upper(), right.title(), right.replace("_", "-"))) | misspelt(right))
    assume(
        wrong.lower() not in (*choices, "null") and wrong not in fields()[path].meta.choices and wrong.isidentifier()
    )
    # Another family than the preset's is refused, and what is refused is not offered.
    assume(composes(capsys, f"{path}={right}"))
    found = offered(capsys, f"{path}={wrong}")
    assert f"{path}={right}" in found, (path, wrong, found)
    for each in found:
        assert composes(capsys, each), each


GROUPS = ("recipe", "model", "hardware", "task", "backend", "cluster")


@given(data=st.data())
@examples(60, suppress_health_check=SHARED)
def test_a_misspelt_option_is_offered(capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(GROUPS))
    options = search_path().options(group)
    right = data.draw(st.sampled_from([each for each in options if len(each) > 4]))
    wrong = data.draw(misspelt(right))
    assume(wrong not in options and not wrong.startswith(("_", "-")))
    sign = "+" if group == "recipe" else ""
    found = offered(capsys, f"{sign}{group}={wrong}", *([] if group == "recipe" else JOB))
    assert f"{sign}{group}={right}" in found, (wrong, found)


EXACT: dict[str, list[str]] = {
    "precision.dtype=BF16": ["precision.dtype=bf16"],
    "hardware=h100": ["hardware=h100_80g"],
    "lr=1e-4": ["optimizer.lr=1e-4"],
    "max_epochs=3": ["schedule.epochs=3", "evaluation.epochs=3"],
    "expert_tensor_parallel_size=2": ["parallel.etp=2"],
    "--tensor-model-parallel-size=2".lstrip("-"): ["parallel.tp=2"],
    "bf16=true": ["precision.dtype=bf16"],
    "truncation_strategy=split": ["backend.args.truncation_strategy=split"],
    "micro_batch_size=1": ["batch.micro_batch_size=1"],
    # The name is right and the value is not.
    "model.ihdden_act=abc": ["model.hidden_act=silu", "model.hidden_act=gelu", "model.hidden_act=quick_geglu"],
}


@pytest.mark.parametrize("arg", EXACT)
def test_the_intended_name_comes_first(capsys: pytest.CaptureFixture[str], arg: str) -> None:
    assert offered(capsys, arg) == EXACT[arg]


def _native(backend: str) -> list[tuple[str, str]]:
    """Return arguments of a backend with values that it takes."""
    version = get_backend(backend).default_version
    texts: dict[str, Any] = {"int": 2, "float": 0.5, "bool": "true"}
    return [
        (argument.name, str(argument.choices[0] if argument.choices else texts[argument.type]))
        for argument in get_backend(backend).catalogue(version).arguments
        if (argument.choices or argument.type in texts) and argument.name.isidentifier()
    ]


@pytest.mark.parametrize("backend", backend_names())
def test_a_native_name_is_what_the_job_calls_it(capsys: pytest.CaptureFixture[str], backend: str) -> None:
    """Also where its field is of another name: no native name of a backend is left without an answer."""
    args = [f"{name}={text}" for name, text in _native(backend) if name not in fields()]
    job = ("+recipe=qwen3_8b", f"backend={backend}")
    for arg in sample(args, 15, f"native names of {backend}"):
        found = offered(capsys, arg, *job)
        assert found, arg
        assert all(composes(capsys, each, *job) for each in found), (arg, found)


@given(name=st.text(LETTERS, min_size=1, max_size=12), names=st.lists(st.text(LETTERS, min_size=1), max_size=20))
def test_a_known_name_is_its_own_nearest(name: str, names: list[str]) -> None:
    found = nearest(name, [*names, name])
    assert name in found
    assert all(each in [*names, name] for each in found)

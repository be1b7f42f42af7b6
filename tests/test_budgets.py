"""Limits: each is named with its number before anything is expanded, whatever the input comes through."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.budgets import BUDGETS, FIELDS, BeyondBudget, check_yaml, load_json, read_limited, written_out
from launcher.cli import main
from launcher.job import fields
from tests.conftest import ROOT
from tests.sampling import examples

JOB = ("+recipe=tiny_qwen3", "backend=megatron_lm")
# name: words, the limit that is named.
BEYOND = {
    "layers of a layout": (("check", *JOB, "parallel.layout=Et*99999999999|tL"), "layers"),
    "layers of a layout, in groups": (("check", *JOB, "parallel.layout=E(t*9999|)*9999L"), "layers"),
    "layers of a model": (("dry-run", *JOB, "model.num_hidden_layers=1000000000"), "layers"),
    "experts of a model": (("check", *JOB, "model.num_experts=1000000000"), "experts"),
    "nodes of a plan": (("dry-run", *JOB, "cluster.nodes=1000000000"), "nodes"),
    "devices of a node": (("dry-run", *JOB, "cluster.devices_per_node=1000000000"), "devices"),
    "pipeline stages": (("estimate", *JOB, "hardware=h100_80g", "parallel.pp=1000000000"), "stages"),
    "digits of a number": (("check", *JOB, f"batch.seq_length={'9' * 5000}"), "digits"),
    "digits of a number in a list": (("check", *JOB, f"+backend.args.x=[{'9' * 5000}]"), "digits"),
    "jobs of a sweep": (("check", *JOB, "-m", "seed=range(1,9999999)"), "jobs"),
    "jobs of a sweep over several fields": (
        ("check", *JOB, "-m", "seed=range(1,999)", "parallel.tp=range(1,999)", "parallel.pp=range(1,999)"),
        "jobs",
    ),
    "jobs of a shuffled sweep": (("check", *JOB, "-m", "seed=range(0,1,1e-12)"), "jobs"),
}


@pytest.mark.parametrize("name", BEYOND)
def test_the_limit_is_named(capsys: pytest.CaptureFixture[str], name: str) -> None:
    args, limit = BEYOND[name]
    assert main(list(args)) in (1, 2)
    assert f"the limit is {BUDGETS[limit].limit:,}" in capsys.readouterr().err
    assert main([*args, "--json"]) in (1, 2)
    out, err = capsys.readouterr()
    tree = json.loads(out)
    assert err == ""
    assert not (tree[0] if isinstance(tree, list) else tree)["ok"]


def test_every_limited_field_is_one() -> None:
    assert set(FIELDS) <= set(fields())
    assert set(FIELDS.values()) <= set(BUDGETS)


def test_every_shipped_file_is_far_within_its_limits() -> None:
    for path in [*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "recipes").glob("*.yaml")]:
        text = path.read_text(encoding="utf-8")
        check_yaml(text, str(path))
        assert 10 * len(text) < BUDGETS["yaml bytes"].limit


def _bomb(width: int, height: int, kind: str) -> str:
    """Return YAML of `height` levels, each of which names the one below `width` times."""
    lines = ["a0: &a0 [x]" if kind == "list" else "a0: &a0 {k: x}"]
    for level in range(1, height):
        inner = ", ".join(f"*a{level - 1}" if kind == "list" else f"k{n}: *a{level - 1}" for n in range(width))
        lines.append(f"a{level}: &a{level} " + (f"[{inner}]" if kind == "list" else f"{{{inner}}}"))
    return "\n".join(lines)


@given(width=st.integers(1, 12), height=st.integers(1, 12), kind=st.sampled_from(["list", "map"]))
def test_aliases_count_as_what_they_expand_to(width: int, height: int, kind: str) -> None:
    text = _bomb(width, height, kind)
    written = sum((width**level) for level in range(height))  # leaves of all levels together
    if written > BUDGETS["yaml values"].limit:
        with pytest.raises(BeyondBudget, match="aliases written out"):
            check_yaml(text, "x.yaml")
    elif written < BUDGETS["yaml values"].limit // 20:
        check_yaml(text, "x.yaml")
        yaml.safe_load(text)


NESTED: dict[str, Callable[[int], str]] = {
    "flow lists": lambda depth: "[" * depth + "]" * depth,
    "flow lists without an end": lambda depth: "[" * depth,
    "flow mappings": lambda depth: "{a: " * depth + "1" + "}" * depth,
    "lists": lambda depth: "- " * depth + "x",
    "keys": lambda depth: "? " * depth + "x",
    "mappings": lambda depth: "".join(" " * level + "a:\n" for level in range(depth)),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("depth", [100, 1000])
def test_yaml_of_any_kind_is_not_too_deep(kind: str, depth: int) -> None:
    with pytest.raises(BeyondBudget, match="levels of nesting"):
        check_yaml(NESTED[kind](depth), "x.yaml")


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, "[" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000])
def test_json_is_not_too_deep(text: str) -> None:
    with pytest.raises(BeyondBudget, match="levels of nesting"):
        load_json(text, "x.json")


@examples(20)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3)))
def test_json_within_the_limits_is_what_it_is(tree: Any) -> None:
    assert load_json(json.dumps(tree), "x") == tree


def test_files_without_an_end_are_not_read_to_it(tmp_path: Path) -> None:
    with pytest.raises(BeyondBudget, match="bytes of YAML"):
        read_limited(Path("/dev/zero"), "yaml bytes")


_PARTS = st.lists(
    st.one_of(st.sampled_from(["t", "tt", "t|", "|", "E", "m"]), st.builds("t*{}".format, st.integers(0, 30))),
    max_size=6,
)


@given(parts=_PARTS, times=st.integers(0, 20))
def test_a_layout_within_the_limit_is_written_out(parts: list[str], times: int) -> None:
    """Against Megatron-core's own two substitutions, done one after the other."""
    inner = "".join(part for part in parts if "*" not in part) or "t"
    text = f"E{''.join(parts)}({inner})*{times}L"
    plain = text.replace(f"({inner})*{times}", inner * times)
    for part in parts:
        if "*" in part:
            plain = plain.replace(part, "t" * int(part[2:]), 1)
    assert written_out(text).count("t") == plain.count("t")


@given(st.integers(100_001, 10**30))
def test_a_layout_beyond_the_limit_is_never_made(times: int) -> None:
    for text in (f"Et*{times}L", f"E(t|)*{times}L", f"E(tt*{times}|)*9L"):
        with pytest.raises(BeyondBudget, match="layers"):
            written_out(text)


@pytest.mark.parametrize("text", [f"batch:\n  seq_length: {'9' * 5000}\n", f"batch: {{seq_length: {'9' * 5000}}}\n"])
def test_a_number_that_python_does_not_convert_has_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    for words in ((f"+job={file}",), (str(file),)):
        assert main(["check", *words]) in (1, 2)
        err = capsys.readouterr().err
        assert f"job.yaml:{text.count(chr(10))}" in err
        assert "5,000 digits of a whole number" in err
        assert "set_int_max_str_digits" not in err


def test_a_number_of_json_that_python_does_not_convert_is_refused_in_the_same_words() -> None:
    with pytest.raises(BeyondBudget, match="digits of a whole number"):
        load_json(f'{{"x": {"9" * 5000}}}', "config.json")


@pytest.mark.parametrize("verb", ["check", "diff"])
def test_an_override_may_be_longer_than_the_name_of_a_file(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    files = "[" + ",".join(f"part_{number}" for number in range(400)) + "]"
    more = ("--backends", "megatron_lm,mindspeed") if verb == "diff" else ()
    main([verb, *JOB[: 1 if more else 2], f"data.paths={files}", "data.format=megatron", *more])
    assert "File name too long" not in capsys.readouterr().err
    assert main(["check", *JOB, "model=" + "a" * 300]) == 2
    assert "no model named" in capsys.readouterr().err

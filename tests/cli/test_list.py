"""`launch list`: one line each, filtered, as JSON, within the terminal's width; an unknown group names the nearest."""

from pathlib import Path

import pytest

from launcher.cli.listed import GROUPS
from launcher.job.shipped import shipped
from launcher.mapping.backend import backend_names, get_backend
from tests.commands import in_terminal
from tests.conftest import Launch


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_has_one_line_each(launch: Launch, group: str) -> None:
    done = launch("list", group, env={"COLUMNS": "60"})  # which a pipe does not depend on
    tree = launch("list", group, "--json").json
    assert done.code == 0
    assert all(each["what"] in done.out for each in tree)
    assert [line.split()[0] for line in done.out.splitlines()] == [each["name"] for each in tree]
    assert len({each["name"] for each in tree}) == len(tree) > 3
    assert all(each["what"] and "\n" not in each["what"] for each in tree)


def test_recipes_are_the_shipped_ones_with_what_each_is(launch: Launch) -> None:
    tree = {each["name"]: each for each in launch("list", "recipes", "--json").json}
    assert set(tree) == {path.stem for path in shipped("recipes").glob("*.yaml")}
    assert tree["qwen3_moe"]["what"] == "Qwen3-30B-A3B, pre-training on 2 x 8 devices"
    assert tree["qwen3_moe"]["override"] == "+recipe=qwen3_moe"


def test_backends_have_all_their_versions(launch: Launch) -> None:
    tree = {each["name"]: each for each in launch("list", "backends", "--json").json}
    assert list(tree) == list(backend_names())
    for name, each in tree.items():
        assert each["versions"] == list(get_backend(name).versions)
        assert f"{each['default_version']} (default)" in each["what"]


def test_a_text_filters_by_all_words_in_any_case(launch: Launch) -> None:
    whole = launch("list", "models", "--json").json
    found = launch("list", "models", "QWEN3", "experts", "--json").json
    assert 0 < len(found) < len(whole)
    assert all("qwen3" in str(each).lower() and "experts" in each["what"] for each in found)


def test_own_recipes_are_listed_with_their_first_sentence(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "# @package _global_\n# Our run of May. Second sentence.\nbatch: {seq_length: 8}\n"
    )
    done = launch("list", "recipes", "mine", "--config-dir", str(tmp_path))
    assert done.out.split(maxsplit=1)[1].strip() == "Our run of May"


@pytest.mark.parametrize(
    "words, message, works",
    [
        (["recipies"], "no list of 'recipies'", "launch list recipes"),
        (["model"], "no list of 'model'", "launch list models"),
        ([], "which list?", "launch list hardware"),
    ],
)
def test_an_unknown_group_names_the_nearest(launch: Launch, words: list[str], message: str, works: str) -> None:
    done = launch("list", *words)
    assert done.code == 2
    assert message in done.err
    assert works in done.err


def test_a_text_that_nothing_holds_is_refused(launch: Launch) -> None:
    done = launch("list", "hardware", "h1000")
    assert done.code == 1
    assert "h100_80g" in done.err
    long = launch("list", "recipes", "z" * 3000)
    assert (long.code, len(long.err) < 300) == (1, True)
    assert "works: launch list recipes" in long.err


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_the_terminal(columns: int) -> None:
    lines = in_terminal(columns, "list", "recipes").splitlines()
    assert max(map(len, lines)) <= columns
    first = next(number for number, line in enumerate(lines) if line.startswith("…"))
    assert any(line.endswith("…") for line in lines[:first])
    assert all("  " in line for line in lines[:first])
    assert "less -S" in " ".join(lines[first:])  # what is cut is not cut silently
    few = in_terminal(columns, "list", "backends").splitlines()
    assert max(map(len, few)) <= columns
    assert "3.5-dev" in " ".join(few)  # few lines are wrapped: nothing is cut

"""A recipe, model or other option by name that no folder of the search path has, but a folder nearby."""

import json
import shlex
from pathlib import Path

import pytest

from launcher.cli import main

# A file of a group that fills a section has its fields without the section's name.
RECIPE, MODEL = "parallel:\n  tp: 1\n", "num_hidden_layers: 2\n"


def offered(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["check", *words, "--json"]) == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [fix for finding in findings if finding["rule"] == "JOB-OPTION" for fix in finding["fix"]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(path: str, text: str = RECIPE) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


@pytest.mark.parametrize(
    ("file", "word", "expected"),
    [
        ("conf/recipe/ours.yaml", "+recipe=ours", ["--config-dir conf"]),
        ("conf/recipes/ours.yaml", "+recipe=ours", ["--config-dir conf"]),
        ("recipe/ours.yaml", "+recipe=ours", ["--config-dir ."]),
        ("recipes/ours.yaml", "+recipe=ours", ["--config-dir ."]),
        ("ours.yaml", "+recipe=ours", ["--config-dir ."]),
        ("our recipes/ours.yaml", "+recipe=ours", ["--config-dir 'our recipes'"]),
        ("conf/model/ours.yaml", "model=ours", ["--config-dir conf"]),
        ("conf/strategy/ours.yaml", "+strategy=ours", ["--config-dir conf"]),
    ],
)
def test_the_folder_is_offered_and_works(
    capsys: pytest.CaptureFixture[str], file: str, word: str, expected: list[str]
) -> None:
    write(file, MODEL if word.startswith("model") else RECIPE)
    job = ("+recipe=tiny_qwen3", "backend=megatron")[word.startswith("+recipe") :]
    assert offered(capsys, *job, word) == expected
    assert main(["check", *job, word, *shlex.split(expected[0])]) != 2


def test_a_broken_file_is_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    write("conf/recipe/ours.yaml", "nonsense: 3\n")
    assert not any(each.startswith("--") for each in offered(capsys, "+recipe=ours", "backend=megatron"))


def test_each_of_two_folders(capsys: pytest.CaptureFixture[str]) -> None:
    write("a/recipe/ours.yaml")
    write("b/model/own.yaml", MODEL)
    assert offered(capsys, "+recipe=ours", "model=own", "backend=megatron") == ["--config-dir a", "--config-dir b"]
    words = ("+recipe=ours", "model=own", "backend=megatron", "--config-dir", "a")
    assert offered(capsys, *words) == ["--config-dir b"]
    assert main(["check", *words, "--config-dir", "b"]) != 2


def test_several_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    write("conf/recipe/ours.yaml")
    words = ("check", "-m", "+recipe=ours", "backend=megatron", "parallel.tp=1,2")
    assert main([*words]) == 2
    assert "works: --config-dir conf\n" in capsys.readouterr().err
    assert main([*words, "--config-dir", "conf"]) != 2
    assert "no recipe" not in capsys.readouterr().err


def test_a_shipped_name_needs_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    write("conf/recipe/tiny_qwen3x.yaml")
    assert offered(capsys, "+recipe=tiny_qwen", "backend=megatron")[0] == "+recipe=tiny_qwen3"

"""What completes a word, from the index of this program: no shell is asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cli.completion_index import make, make_part
from launcher.cli.dispatch import VERBS
from launcher.completion import index as stored
from launcher.completion.candidates import candidates
from launcher.completion.index import Index
from launcher.compose.overrides import parse
from launcher.compose.search_path import GROUPS, search_path
from launcher.job import field_at, fields
from tests.conftest import Launch
from tests.sampling import examples


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of these tests."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def whole(cache: Path) -> Index:
    return make()


def completed(index: Index, line: str) -> list[str]:
    """Return what completes the last word of a line."""
    *words, prefix = line.split(" ")
    return [text for text, _ in candidates(index, words, prefix, make_part)]


def test_the_first_word_is_a_verb(whole: Index) -> None:
    assert completed(whole, "") == [*VERBS, "--help", "--version"]
    assert completed(whole, "dry") == ["dry-run"]


def test_every_verb_has_its_options(whole: Index, launch: Launch) -> None:
    for verb in ("dry-run", "logs", "schema", "convert hf-to-mcore"):
        found = completed(whole, f"{verb} --")
        shown = launch(*verb.split(), "--help").out
        assert "--json" in found
        assert all(name in shown for name in found), verb


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_the_options_of_its_folder(whole: Index, group: str) -> None:
    sign = "+" if group in ("recipe", "job", "strategy") else ""
    found = {text.partition("=")[2] for text in completed(whole, f"check {sign}{group}=") if "/" not in text}
    assert {name for name in found if not name.endswith((".yaml", ".yml"))} == set(search_path().options(group))


@examples(60)
@given(data=st.data())
def test_any_beginning_of_a_field_leads_to_it(whole: Index, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(fields())))
    sign = data.draw(st.sampled_from(["", "+", "++"]))
    prefix = path[: data.draw(st.integers(1, len(path)))]
    found = completed(whole, f"check {sign}{prefix}")
    assert f"{sign}{path}=" in found
    assert all(text.startswith(f"{sign}{prefix}") for text in found)
    assert f"~{path}" in completed(whole, f"check ~{prefix}")


@examples(60)
@given(data=st.data())
def test_every_choice_of_a_field_is_a_value_that_it_takes(whole: Index, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path, info in fields().items() if info.meta.choices]))
    found = [text.partition("=")[2] for text in completed(whole, f"check {path}=")]
    assert set(field_at(path).meta.choices) <= set(found)
    assert not parse([f"{path}={value}" for value in found])[1]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("check parallel.sequence_parallel=", ["true", "false", "null"]),
        ("check parallel.sequence_parallel=t", ["true"]),
        ("check backend.name=mega", ["megatron", "megatron_lm"]),
        ("check backend=mindformers backend.version=1.6", ["1.6.0"]),
        ("check backend=megatron backend.args.advantage_estimator=rl", ["rloo"]),
        ("check cluster.executor=slu", ["slurm"]),
        ("check rules.disable=[BATCH-VPP,MOE-TP-S", ["[BATCH-VPP,MOE-TP-SP"]),
        ("check 'x parallel.cp_algorithm='uly", ["'ulysses"]),
    ],
)
def test_values(whole: Index, line: str, expected: list[str]) -> None:
    assert [text.partition("=")[2] for text in completed(whole, line)] == expected


def test_words_that_other_options_take(whole: Index) -> None:
    assert completed(whole, "dry-run --format sh") == ["shell"]
    assert completed(whole, "dry-run --format=sh") == ["--format=shell"]
    assert completed(whole, "search --backends megatron,minds") == ["megatron,mindspeed"]
    assert "hf-to-mcore" in completed(whole, "convert ")
    assert completed(whole, "list rec") == ["recipes"]
    assert completed(whole, "completion ") == ["bash", "zsh", "fish"]
    assert completed(whole, "explain MOE-TP-S") == ["MOE-TP-SP"]
    assert completed(whole, "args megatron --backend-version 3.12") == ["3.12.6"]


def test_own_recipes_and_files(whole: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine_at_home.yaml").write_text("batch: {seq_length: 8}\n")
    (tmp_path / "job of may.yaml").write_text("batch: {seq_length: 8}\n")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "a\nb").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = [text for text, _ in candidates(whole, ["check", "--config-dir", "own"], "+recipe=mine", make_part)]
    assert found == ["+recipe=mine_at_home"]
    found = [text for text, _ in candidates(whole, ["check"], "+job=", make_part)]
    assert found == ["+job=job of may.yaml", "+job=own/"]
    assert [text for text, _ in candidates(whole, ["check"], "model.path=~/o", make_part)] == ["model.path=~/own/"]
    found = [text for text, _ in candidates(whole, ["check"], "data.paths=[own/mine_at_home.yaml,n", make_part)]
    assert found == ["data.paths=[own/mine_at_home.yaml,notes.txt"]
    assert [text for text, _ in candidates(whole, ["import"], "", make_part)] == [
        "job of may.yaml",
        "notes.txt",
        "own/",
    ]


def test_ids_of_runs_are_those_of_this_user(whole: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    for number, name in enumerate(("old-1", "new-1")):
        (tmp_path / "runs" / f"{name}.json").write_text("{}")
        os.utime(tmp_path / "runs" / f"{name}.json", (number, number))
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path))
    assert completed(whole, "logs ") == ["new-1", "old-1"]
    assert completed(whole, "stop old-1 n") == ["new-1"]


def answered(line: str, cache: Path) -> tuple[str, str]:
    """Return what `launch` answers a shell, and the modules that it imported."""
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "fish",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "XDG_CACHE_HOME": str(cache),
    }
    done = subprocess.run(
        ["bash", "-c", '"$1" -X importtime -m launcher 8>&1 1>/dev/null', "bash", sys.executable],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


def test_an_answer_imports_no_more_than_it_needs(whole: Index, cache: Path) -> None:
    stored.write(whole)
    out, imported = answered("launch check parallel.sequence_par", cache)
    assert out == "parallel.sequence_parallel="
    modules = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "launcher.completion.candidates" in modules
    heavy = {"hydra", "omegaconf", "rich", "yaml", "torch", "numpy", "launcher.job", "launcher.compose", "backends"}
    assert not {name for name in modules if name.partition(".")[0] in heavy or name in heavy}


def test_without_an_index_one_is_made(tmp_path: Path) -> None:
    assert answered("launch dry-r", tmp_path)[0] == "dry-run"
    assert list(tmp_path.glob("launch/completion-*/index.json"))


def test_an_index_of_another_program_is_not_current(whole: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.write(whole)
    found = stored.read()
    assert found is not None
    assert stored.is_current(found)
    assert not stored.is_current({**found, "stamp": [*found["stamp"][:-1], 0]})
    assert not stored.is_current({**found, "made": found["made"] - 2 * 24 * 3600})
    monkeypatch.setattr(stored, "__version__", "0.0.9")
    assert stored.read() is None


def test_a_damaged_index_is_made_again(cache: Path, whole: Index) -> None:
    stored.write(whole)
    Path(stored.folder(), "index.json").write_text("{")
    assert stored.read() is None


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_says_how_to_install_it(launch: Launch, shell: str) -> None:
    done = launch("completion", shell)
    assert done.code == 0
    assert f"launch completion {shell}" in done.out
    assert "_ARGCOMPLETE" in done.out
    assert launch("completion", shell, "--json").json["script"] == done.out


@pytest.mark.parametrize("words", [["tcsh"], ["powershell"], []])
def test_another_shell_is_a_wrong_command_line(launch: Launch, words: list[str]) -> None:
    done = launch("completion", *words)
    assert done.code == 2
    assert "launch completion" in done.err
    assert not done.out

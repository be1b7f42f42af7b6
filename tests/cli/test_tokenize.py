"""`launch tokenize`: what a sample predicts, which conversations are refused, and how the file reaches MindFormers."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cli import main
from launcher.job import Job, value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back, translate
from launcher.tokenized import IGNORED, sample
from tests.backends.mindformers.jobs import NEWEST, OLD, make, tree
from tests.conftest import ROOT

TOKENIZER = ROOT / "launcher" / "rehearse" / "assets" / "tokenizer"
JOB = ("+recipe=tiny_qwen3", "backend=mindformers", "task=sft", "data.template=null", "batch.seq_length=64")


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=40), st.integers(1, 48))
def test_a_label_is_the_next_token_of_an_answer(parts: list[tuple[int, bool]], length: int) -> None:
    tokens = [token for token, _ in parts]
    made = sample(tokens, [token if wanted else IGNORED for token, wanted in parts], length=length, pad=7)
    assert len(made["input_ids"]) == len(made["labels"]) == length
    for place in range(length):
        assert made["input_ids"][place] == (tokens[place] if place < len(tokens) else 7)
        follows = place + 1 < len(parts) and parts[place + 1][1]
        assert made["labels"][place] == (tokens[place + 1] if follows else IGNORED)


def chats(folder: Path, *lines: Any) -> Path:
    path = folder / "chats.jsonl"
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
    return path


def talk(*turns: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[number % 2], "content": text} for number, text in enumerate(turns)]}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["tokenize", *words])
    out, err = capsys.readouterr()
    return code, out + err


def test_answers_are_learned_with_their_end_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    job = (*JOB, f"tokenizer.path={TOKENIZER}")
    path = chats(tmp_path, talk("ab", "cd", "e", "fgh"), talk("a", "x" * 100))
    code, text = run(capsys, *job, f"data.paths=[{path}]", "-o", "out.jsonl", "--json")
    assert code == 0, text
    assert json.loads(text)["cut"] == 1
    first, second = (json.loads(line) for line in Path("out.jsonl").read_text().splitlines())
    learned = bytes(label for label in first["labels"] if 0 <= label < 256)
    # ChatML: the line end after <|im_end|> (258) belongs to the answer, as its template writes it.
    assert learned == b"cd\nfgh\n"
    assert all(label in (IGNORED, first["input_ids"][place + 1]) for place, label in enumerate(first["labels"][:-1]))
    assert len(second["input_ids"]) == 64
    # The same file is replaced; another one is not.
    assert run(capsys, *job, f"data.paths=[{path}]", "-o", "out.jsonl")[0] == 0
    for lines, said in (
        (("no json",), "chats.jsonl:1: no JSON object with messages"),
        (({"messages": [{"role": "user", "content": "a"}]},), "nothing to learn"),
        ((), "no conversation"),
        ((talk("a" * 100, "b"),), "no token of an answer is within 64 tokens"),
    ):
        code, text = run(capsys, *job, f"data.paths=[{chats(tmp_path, *lines)}]", "-o", "other.jsonl")
        assert (code, said in text) == (1, True), text
        assert not Path("other.jsonl").exists()
        assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "data.paths: one file"),
        (("data.paths=[a.jsonl,b.jsonl]",), 2, "data.paths: one file"),
        (("data.paths=[a.jsonl]", "tokenizer.path=null", "model.path=null"), 2, "tokenizer is not known"),
        (("data.paths=[a.jsonl]", f"tokenizer.path={TOKENIZER}", "data.template=chatml"), 1, "data.template=null"),
        (("data.paths=[a.jsonl]", f"tokenizer.path={TOKENIZER}", "-o", "mine.jsonl"), 1, "mine.jsonl"),
    ],
)
def test_what_cannot_be_tokenized_is_refused_before_anything_is_read(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text('{"messages": []}\n')
    out = () if "-o" in words else ("-o", "out.jsonl")
    found, text = run(capsys, *JOB, *out, *words)
    assert (found, said in text) == (code, True), text
    assert (tmp_path / "mine.jsonl").read_text() == '{"messages": []}\n'


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_the_file_is_the_job_s_data_there_and_back(version: str) -> None:
    data = {"format": "tokenized", "paths": ["tokenized.jsonl"]}
    backend = get_backend("mindformers")
    job: Job = make(tree(task={"type": "sft"}, data=data, batch={"packing": False}))
    native = translate(job, backend, version).native
    back = read_back({arg.flag: arg.value for arg in native}, backend, version).job
    assert value_at(back, "data.format") == "tokenized"
    assert value_at(back, "data.paths") == ("tokenized.jsonl",)

"""Commands that are offered or named as the next one take paths with blanks: copied into a shell they work."""

import shlex
from pathlib import Path

import pytest

from launcher.cli import main

SCRIPT = (
    "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
    "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 2 --lr 1e-4 "
    "--train-iters 2 --bf16 --mock-data --tokenizer-type NullTokenizer --vocab-size 512\n"
)
JOB = ("+recipe=tiny_qwen3", "backend=megatron_lm")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    return folder


def works(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Return the words of the first command that a refusal offers."""
    assert main(list(words)) in (1, 2)
    return shlex.split(capsys.readouterr().err.partition("works: ")[2].partition("·")[0])


def test_the_next_command_after_an_import(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train ours.sh").write_text(SCRIPT)
    assert main(["import", "train ours.sh", "-o", "our job.yaml"]) == 0
    line = capsys.readouterr().out.partition("next: ")[2].partition("\n")[0]
    assert shlex.split(line)[:2] == ["launch", "dry-run"]
    assert main(shlex.split(line)[1:]) == 0


def test_a_job_that_is_imported_again(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.sh").write_text(SCRIPT)
    main(["import", "t.sh", "-o", "our job.yaml"])
    capsys.readouterr()
    assert main(works(capsys, "import", "our job.yaml")[1:]) == 0


def test_a_file_where_an_override_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.sh").write_text(SCRIPT)
    main(["import", "t.sh", "-o", "our job.yaml"])
    capsys.readouterr()
    assert main(["check", *works(capsys, "estimate", "our job.yaml")[:1]]) == 0


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("no such/x y.yaml", ["mkdir", "-p", "no such"]),
        ("x y.txt", ["-o", "x y.yaml"]),
        ("a b", ["-o", "a b/NAME"]),
    ],
)
def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], file: str, expected: list[str]) -> None:
    Path("t.sh").write_text(SCRIPT)
    Path("a b").mkdir()
    endings = ("search", *JOB) if file.endswith(".txt") else ("import", "t.sh")
    assert works(capsys, *endings, "-o", file) == expected


def test_a_strategy_to_add(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("+recipe=qwen3_8b", "backend=megatron", "data.paths=[a/b]", "data.format=hub", "parallel.tp=3")
    assert main(["check", *job, "--fix", "-o", "fixed job.yaml"]) in (0, 1)
    added = capsys.readouterr().out.partition("(add ")[2].partition(" instead")[0]
    assert shlex.split(added) == ["+strategy=fixed job.yaml"]


def test_the_fix_of_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    job = (*JOB, "logging.wandb_project=my runs", "output_dir=our out", "name=one two")
    assert main(["check", *job]) == 1
    (named,) = shlex.split(capsys.readouterr().out.partition("works: ")[2].partition("\n")[0])
    assert named == "logging.wandb_name=one two"
    assert main(["check", *job, named]) == 0
    (written,) = shlex.split(capsys.readouterr().out.partition("works: ")[2].partition("\n")[0])
    assert written == "logging.tensorboard_dir=our out/tensorboard"
    assert main(["check", *job, named, written]) == 0
    assert "works" not in capsys.readouterr().out

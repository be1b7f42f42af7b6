"""Overrides that a session may send to the planner, and those that would read the server."""

import pytest

from launcher.ui.words import LONGEST_STATE, LONGEST_WORD, MOST_WORDS, refused

ACCEPTED = (
    "+recipe=qwen3_moe",
    "model=qwen3_8b",
    "model=Qwen/Qwen3-8B",
    "backend=megatron",
    "hardware=h100_80g",
    "parallel.tp=2",
    "model.path=/data/models/mine",
    "data.paths=[/data/a,/data/b]",
    r"data.paths=[\${DATA_PATH}]",
    "backend.args.log_interval=5",
    "backend.env.NCCL_DEBUG=INFO",
    "data.split=99,1,0",
    "parallel.tpp=2",
)
REFUSED = {
    "a job file": ("+job=/etc/passwd", "files of the server"),
    "a job file in the working folder": ("+job=job.yaml", "files of the server"),
    "a recipe by path": ("+recipe=/etc/passwd", "takes the name"),
    "a recipe by relative path": ("+recipe=../../etc/passwd", "takes the name"),
    "a recipe file": ("+recipe=mine.yaml", "takes the name"),
    "a strategy file": ("+strategy=/tmp/best.yaml", "takes the name"),
    "a model file": ("model=/etc/passwd", "takes the name"),
    "a folder like a name on a hub": ("model=../etc", "takes the name"),
    "a deeper folder": ("model=a/b/c", "takes the name"),
    "a hidden folder": ("model=.ssh/id", "takes the name"),
    "several options": ("model=[qwen3_8b,/etc/x]", "takes the name"),
    "a sweep of options": ("model=choice(a,b)", "takes the name"),
    "all files of a folder": ("model=glob(*)", "takes the name"),
    "Hydra's own settings": ("hydra.searchpath=[file:///etc]", "one field"),
    "Hydra's folder": ("hydra.run.dir=/tmp/x", "one field"),
    "a section": ("parallel={tp:2}", "one field"),
    "an environment variable": ("name=${oc.env:HOME}", "interpolations"),
    "an environment variable after a backslash that is text": (r"name=\\${oc.env:HOME}", "interpolations"),
    "an environment variable in a list": ("data.paths=[${oc.env:AWS_SECRET_ACCESS_KEY}]", "interpolations"),
    "a file by a resolver": ("name=${oc.create:${oc.env:X}}", "interpolations"),
    "an option": ("--config-dir=/etc", "key=value"),
    "removal": ("~model", "removed"),
    "a word": ("qwen3_moe", "key=value"),
    "a control character": ("name=a\x1b[31mb", "control"),
    "a line break": ("name=a\nb", "control"),
    "a secret": ("backend.env.WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "secret"),
    "a long value": ("name=" + "a" * LONGEST_WORD, "at most"),
}


@pytest.mark.parametrize("word", ACCEPTED)
def test_what_a_job_needs_is_accepted(word: str) -> None:
    assert refused([word]) == []


@pytest.mark.parametrize("word, why", REFUSED.values(), ids=REFUSED)
def test_what_reads_the_server_is_refused(word: str, why: str) -> None:
    assert [why in each.why for each in refused([word])] == [True]


def test_the_value_of_a_secret_is_not_shown() -> None:
    (found,) = refused(["backend.env.WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567"])
    assert "0123456789" not in found.word


@pytest.mark.parametrize(
    "words", [["parallel.tp=2"] * (MOST_WORDS + 1), [f"name={'a' * 7000}"] * (LONGEST_STATE // 7000 + 1)]
)
def test_a_state_is_bounded(words: list[str]) -> None:
    assert [each.word for each in refused(words)] == [""]

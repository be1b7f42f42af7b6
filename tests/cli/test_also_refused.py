"""Verbs that answer a job which `launch check` refuses say so in one line, and with --json by the rules' ids."""

import json
from pathlib import Path

import pytest

from launcher.cli import main

JOB = [
    *("model=qwen3_8b", "backend=megatron", "hardware=h100_80g", "cluster.devices_per_node=8", "parallel.pp=4"),
    *("data.format=sample", "batch.global_batch_size=64", "batch.seq_length=4096", "schedule.train_iters=10"),
]
REFUSED, ACCEPTED = [*JOB, "optimizer.lr=null"], [*JOB, "optimizer.lr=1e-5"]
VERBS = {
    "estimate": ["estimate"],
    "balance": ["balance", "--quick"],
    "diff": ["diff", "--backends", "megatron@4.6.0,megatron@4.5.3"],
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS.keys())
def test_a_job_that_check_refuses_is_answered_with_one_line_on_it(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*words, *REFUSED])
    said = capsys.readouterr()
    assert code == main([*words, *ACCEPTED])
    [line] = said.err.replace("\n  ", " ").splitlines()
    assert line.startswith(f"launch {words[0]}: launch check refuses ")
    assert "(REQ-LR)" in line
    assert "refuses" not in capsys.readouterr().err


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS.keys())
def test_programs_get_the_rules(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    def refused_by(job: list[str]) -> list[list[str]]:
        main([*words, "--json", *job])
        tree = json.loads(capsys.readouterr().out)
        return [each["refused_by"] for each in tree.get("sides", [tree])]

    assert all(each == ["REQ-LR"] for each in refused_by(REFUSED))
    assert all(each == [] for each in refused_by(ACCEPTED))


def test_a_file_is_judged_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --use-mcore-models\n"
    )
    main(["check", "--json", str(script)])
    errors = {each["rule"] for each in json.loads(capsys.readouterr().out)["findings"] if each["severity"] == "error"}
    main(["diff", "--json", str(script), str(script)])
    assert errors
    assert all(set(side["refused_by"]) == errors for side in json.loads(capsys.readouterr().out)["sides"])

"""What a verb says works, added to its command, removes the error; found by drawn jobs with wrong values."""

import json
import re
import shlex
from pathlib import Path

import pytest

from launcher.cli import main

TINY, WHOLE = "+recipe=tiny_qwen3", "+recipe=qwen3_8b"
CASES = {
    "hardware of the backend, for a search": (
        ("search", TINY, "backend=mindspeed", "--top", "1"),
        "the device's memory is not known",
        ["hardware=ascend_910b", "hardware=ascend_910c"],
    ),
    "hardware of the backend, for a balance": (
        ("balance", WHOLE, "backend=mindspeed", "--quick"),
        "peak FLOP/s and memory",
        ["hardware=ascend_910b", "hardware=ascend_910c"],
    ),
    "stages to balance": (
        ("balance", WHOLE, "backend=mindspeed", "hardware=ascend_910b", "parallel.pp=1", "--quick"),
        "no stages to balance",
        ["parallel.pp=2"],
    ),
    "a length in steps, in place of epochs": (
        ("check", "+recipe=qwen2_5_7b_lora", "backend=mindspeed"),
        "cannot express schedule.epochs=1.0",
        ["schedule.train_iters=1000 schedule.epochs=null"],
    ),
    "the format that the files have": (
        ("check", "+recipe=qwen3_8b_sft", "backend=mindspeed", "data.paths=[our chats.jsonl]", "data.format=hub"),
        "cannot express data.format=hub",
        ["data.format=messages"],
    ),
    "backends that train the model, where the proposal does not help": (
        ("check", "+recipe=qwen1_5_moe_sft", "backend=mindformers", "model.num_nextn_predict_layers=7"),
        "cannot express model.num_nextn_predict_layers=7",
        [
            "backend=megatron",
            "backend=megatron_lm batch.packing=false data.format=messages data.template=nemotron-h-aligned",
            "backend=mindspeed data.format=megatron",
        ],
    ),
    "an empty list, in place of a list": (
        ("check", TINY, "backend=mindformers", "model.compress_ratios=3"),
        "cannot express model.compress_ratios=[3]",
        ["model.compress_ratios=[]"],
    ),
    "rows of the embedding": (
        ("check", WHOLE, "backend=megatron", "tokenizer.padded_vocab_size=2"),
        "padded_vocab_size 2 is less",
        ["tokenizer.padded_vocab_size=null", "tokenizer.padded_vocab_size=151936"],
    ),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chat = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
    Path("our chats.jsonl").write_text(f"{json.dumps(chat)}\n" * 200)
    monkeypatch.setenv("COLUMNS", "300")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(list(words))
    shown = capsys.readouterr()
    return shown.out + shown.err


def offers(text: str, error: str) -> list[str]:
    """Return what works for an error."""
    line = re.split(r"^(?:error|warning|change) ", text.partition(error)[2], flags=re.M)[0]
    line = line.partition("works: ")[2].partition("\n")[0]
    return [each.strip().removesuffix(" (changes training)") for each in filter(None, line.split("·"))]


@pytest.mark.parametrize(("words", "error", "expected"), CASES.values(), ids=CASES)
def test_what_works(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str, expected: list[str]
) -> None:
    assert offers(said(capsys, *words), error) == expected
    for offered in expected:
        assert error not in said(capsys, *words, *offered.split())


def test_a_device_without_stages_is_offered_none(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "balance", TINY, "backend=megatron", "hardware=h100_80g")
    assert "no stages to balance" in text
    assert "works" not in text


def test_a_program_of_another_backend(capsys: pytest.CaptureFixture[str]) -> None:
    """Of two backends with the program, the one whose arguments these are; a port to the one that was named."""
    Path("our script.sh").write_text(
        "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
        "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 2 --lr 1e-4 --train-iters 2 --bf16 "
        "--mock-data --tokenizer-type NullTokenizer --vocab-size 512 --use-fused-rmsnorm --use-fused-swiglu\n"
    )
    text = said(capsys, "import", "our script.sh", "--backend", "mindformers")
    assert offers(text, "not of MindFormers") == ["--backend mindspeed", "--to mindformers"]
    for offered in ("--backend mindspeed", "--to mindformers"):
        assert "not of MindFormers" not in said(capsys, "import", "our script.sh", *shlex.split(offered))


@pytest.mark.parametrize(
    ("backend", "field", "asked"),
    [
        ("mindspeed", "data.split_paths_file=x", ["data.paths=[…]", "data.split_paths_file=null"]),
        ("megatron_lm", "profiler.path=x", ["logging.tensorboard_dir=…", "profiler.path=null"]),
    ],
)
def test_a_value_that_only_the_user_knows_is_asked_for(
    capsys: pytest.CaptureFixture[str], backend: str, field: str, asked: list[str]
) -> None:
    main(["check", "+recipe=tiny_qwen3", f"backend={backend}", field, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [each for each in findings if field in each["message"]]
    assert (found["fix"], found["ask"]) == ([], asked)
    assert not [fix for each in findings for fix in each["fix"] if "…" in fix]


def test_arguments_of_a_recipe_for_another_backend_are_one_paragraph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    words = ("check", "+recipe=glm4_7_flash_grpo", "backend=mindspeed")
    main([*words, "--json"])
    one_each = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["rule"] == "ARG-UNKNOWN"]
    near = [each for each in one_each if "did you mean" in each["message"]]
    text = said(capsys, *words)
    assert text.count("error ARG-UNKNOWN") == 1 + len(near) < len(one_each)
    assert all(field in text for each in one_each for field in each["fields"])
    (works,) = offers(text, "none of these ")
    assert said(capsys, *words, *works.split()).count("error ARG-UNKNOWN") == len(near)


@pytest.mark.parametrize("field", ["seed", "model.compress_ratios", "precision.dtype", "optimizer.weight_decay"])
def test_a_field_that_always_has_a_value_is_offered_with_its_default(
    capsys: pytest.CaptureFixture[str], field: str
) -> None:
    job = ("check", "+recipe=tiny_qwen3", "backend=mindformers")
    (works,) = offers(said(capsys, *job, f"{field}=null"), f"{field} needs ")
    assert f"{field} needs " not in said(capsys, *job, f"{field}=null", works)

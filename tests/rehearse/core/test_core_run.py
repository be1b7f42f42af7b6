"""What a run reads and what it leaves behind."""

import json
import shutil
from pathlib import Path

import pytest
from core_world import DENSE, MOE, Zygote, split_args
from token_files import write_tokens

from launcher.rehearse.core.data.tokenizer import bundled_directory, load
from launcher.rehearse.core.options import DataOptions, FakeWorld

pytestmark = pytest.mark.slow

TURNS = [{"role": "user", "content": "Call me?"}, {"role": "assistant", "content": "Ishmael. Some years ago"}]


def write_lines(path: Path, records: list[object]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_a_run_leaves_result_log_picture_and_events(zygote: Zygote) -> None:
    run = zygote.run([*DENSE, *split_args("--eval-interval 3 --eval-iters 2 --moe-permute-fusion")])
    assert len(run.losses) == 6
    assert run.summary["what"] == "megatron-core 0.16.1 rehearsal on cpu, gloo, 1 process"
    assert run.summary["final_loss"] == run.losses[-1]
    assert [iteration for iteration, _loss in run.summary["validation_losses"]] == [3, 6]
    assert [row["flag"] for row in run.summary["not_honoured"]] == ["--moe-permute-fusion"]
    assert run.summary["interrupted"] is None
    assert (run.output_dir / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((run.output_dir / "tensorboard").glob("events*"))
    assert "iteration 6/6 | loss" in (run.output_dir / "log.txt").read_text()


def test_the_seed_decides(zygote: Zygote) -> None:
    first = zygote.run([*DENSE, "--seed", "1"], ranks=2).losses
    assert zygote.run([*DENSE, "--seed", "1"], ranks=2).losses == first
    assert zygote.run([*DENSE, "--seed", "2"], ranks=2).losses != first


def test_text_and_messages(zygote: Zygote, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.jsonl", [{"text": "Call me Ishmael. " * 40}] * 8)
    assert zygote.run(DENSE, data=DataOptions(kind="text", paths=(text,))).losses[-1] < 5.3
    chats = write_lines(tmp_path / "chats.jsonl", [{"messages": TURNS}] * 16)
    tokenizer = str(bundled_directory())
    data = DataOptions(kind="messages", paths=(chats,), tokenizer=tokenizer)
    alone = zygote.run([*DENSE, "--seq-length", "64", "--max-position-embeddings", "64"], data=data)
    assert alone.losses[-1] < alone.losses[0]


def test_megatron_files_train_the_same_at_every_layout(zygote: Zygote, tmp_path: Path) -> None:
    prefix = write_token_file(tmp_path / "tokens")
    data = DataOptions(kind="megatron", paths=(prefix,))
    argv = [*DENSE, *split_args(f"--split 100,0,0 --vocab-size 256 --data-cache-path {tmp_path}/cache")]
    alone = zygote.run(argv, data=data).losses
    assert alone[-1] < alone[0] - 0.2
    assert zygote.run([*argv, "--pipeline-model-parallel-size", "2"], ranks=2, data=data).losses == pytest.approx(
        alone, abs=1e-5
    )


def write_token_file(prefix: Path) -> str:
    import numpy

    return write_tokens(prefix, [numpy.frombuffer(b"Call me Ishmael. Some years ago. " * 8, dtype=numpy.uint8)] * 30)


def test_documents_are_kept_separate_when_asked(zygote: Zygote, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text.jsonl", [{"text": "Call me Ishmael. Some years ago"}] * 40)
    data = DataOptions(kind="text", paths=(text,))
    joined = zygote.run(DENSE, data=data).losses
    # Per token, because megatron averages the halves of a sequence otherwise, however many tokens of each are learned.
    apart = [
        *DENSE,
        *split_args("--reset-attention-mask --reset-position-ids --eod-mask-loss --calculate-per-token-loss"),
    ]
    alone = zygote.run(apart, data=data).losses
    assert alone != joined
    for layout in ("--context-parallel-size 2", "--pipeline-model-parallel-size 2"):
        assert zygote.run([*apart, *layout.split()], ranks=2, data=data).losses == pytest.approx(alone, abs=1e-5)


BAD_DATA = {
    "too few samples": ([{"text": "short"}], "text", "fewer than a global batch"),
    "no text": ([{"txt": "x"}], "text", "data.jsonl:1"),
    "messages without role": ([{"messages": [{"content": "x"}]}], "messages", "data.jsonl:1"),
}


@pytest.mark.parametrize("records,kind,message", BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data_is_refused(zygote: Zygote, tmp_path: Path, records: list[object], kind: str, message: str) -> None:
    path = write_lines(tmp_path / "data.jsonl", records)
    run = zygote.run(DENSE, data=DataOptions(kind=kind, paths=(path,)))  # type: ignore[arg-type]
    assert run.exit_codes == [1]
    assert message in run.output
    assert "Traceback" not in run.output


def test_a_result_is_not_overwritten_but_continued(zygote: Zygote, tmp_path: Path) -> None:
    out, saved = tmp_path / "out", f"{tmp_path}/saved"
    half = [*DENSE, "--save", saved, *split_args("--save-interval 3 --exit-interval 3")]
    first = zygote.run(half, output_dir=out)
    assert len(first.losses) == 3
    again = zygote.run(half[: len(DENSE)], output_dir=out)
    assert again.exit_codes == [1]
    assert "nothing is overwritten" in again.output
    rest = zygote.run([*DENSE, "--load", saved], output_dir=out)
    assert len(rest.losses) == 3
    assert json.loads((out / "result.before-4.json").read_text())["losses"] == first.losses
    done = zygote.run([*DENSE, "--load", saved, "--train-iters", "3", "--override-opt_param-scheduler"], output_dir=out)
    assert "nothing to do" in done.output


def test_documents_of_token_files_end_with_the_tokenizers_eos(zygote: Zygote, tmp_path: Path) -> None:
    import numpy

    folder = tmp_path / "tokenizer"
    shutil.copytree(bundled_directory(), folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "<|endoftext|>"}))
    eos = load(None).encode("<|im_end|>")
    prefix = write_tokens(tmp_path / "tokens", [numpy.array([*b"Call me Ishmael.", *eos])] * 40)
    argv = [*DENSE, *split_args("--split 100,0,0 --vocab-size 259 --calculate-per-token-loss --exit-interval 1")]
    losses = [
        zygote.run(
            [*argv, "--eod-mask-loss"], data=DataOptions(kind="megatron", paths=(prefix,), tokenizer=tokenizer)
        ).losses[0]
        for tokenizer in (str(bundled_directory()), str(folder))
    ]
    assert losses[0] != losses[1] == zygote.run(argv, data=DataOptions(kind="megatron", paths=(prefix,))).losses[0]


def test_transformers_and_the_trainer_read_the_same_tokens() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(bundled_directory())
    ours = load(None)
    text = "Call me Ishmael — é <|im_start|>"
    assert theirs(text)["input_ids"] == ours.encode(text)
    assert ours.encode("é") == list("é".encode())
    assert len(theirs) == ours.size == 259
    rendered = theirs.apply_chat_template(TURNS, tokenize=False)
    tokens, learned = ours.encode_messages(TURNS)
    assert theirs.decode(tokens) == rendered
    answer = [token for token, learn in zip(tokens, learned, strict=True) if learn]
    assert theirs.decode(answer) == "Ishmael. Some years ago<|im_end|>\n"


def test_exit_codes_of_refusals_and_usage(zygote: Zygote) -> None:
    refused = zygote.run([*DENSE, "--fp8-format", "hybrid", "--fim-data"])
    assert refused.exit_codes == [1]
    assert refused.output.count("error:") == 2
    unknown = zygote.run([*DENSE, "--num-layer", "4"])
    assert unknown.exit_codes == [2]
    assert "did you mean --num-layers" in unknown.output
    small = zygote.run([*DENSE, "--vocab-size", "100"])
    assert small.exit_codes == [1]
    assert "--vocab-size 259" in small.output


def test_a_fake_world_plays_any_rank(zygote: Zygote) -> None:
    topology = (
        "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --context-parallel-size 2 "
        "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --global-batch-size 256 "
        "--use-distributed-optimizer"
    )
    run = zygote.run([*DENSE, *MOE, *topology.split()], fake_world=FakeWorld(world_size=1024, ranks=(0, 777)), ranks=1)
    assert run.exit_codes == [0], run.output
    assert [(rank["rank"], rank["place"]["pp"]) for rank in run.summary["ranks"]] == [(0, 0), (777, 1)]


def test_a_fake_world_says_what_megatron_refuses(zygote: Zygote) -> None:
    layers = "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3"
    run = zygote.run([*DENSE, *layers.split()], fake_world=FakeWorld(world_size=8, ranks=(3,)))
    assert run.exit_codes == [1]
    assert "error: rank 3" in run.output
    assert "Traceback" not in run.output

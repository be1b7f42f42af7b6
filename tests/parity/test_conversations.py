"""The shared conversations fit a sequence, and transformers' label mask leaves out everything but the answers."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose import compose
from launcher.job import Job, Origin, with_values
from launcher.parity.conversations import (
    CONVERSATIONS,
    IGNORED,
    PACKED,
    TEMPLATES,
    labelled,
    template_of,
    write_conversations,
)
from launcher.parity.model import write_tokenizer
from launcher.parity.reference import Options, padded
from tests.parity.test_reference import options
from tests.rehearse.native.environments import swift_python
from tests.sampling import examples

_LINE_END = "<|im_end|>\n"


def job_with(**values: object) -> Job:
    return with_values(compose(["+recipe=tiny_qwen3", "task=sft"]), values, Origin(kind="override", where="test"))  # type: ignore[arg-type]


@given(samples=st.integers(1, 60), length=st.integers(128, 512), name=st.sampled_from([*TEMPLATES, "unknown"]))
@examples(20)
def test_conversations_are_shorter_than_a_sequence_and_of_different_lengths(
    tmp_path_factory: pytest.TempPathFactory, samples: int, length: int, name: str
) -> None:
    folder, job = tmp_path_factory.mktemp("data"), job_with(**{"data.template": name})
    write_conversations(folder, job, samples=samples, seq_length=length)
    lines = (folder / CONVERSATIONS).read_text(encoding="utf-8").splitlines()
    template = template_of(job)
    assert len(lines) == samples
    if template is not None:
        sizes = [template.length(json.loads(line)["messages"]) for line in lines]
        assert max(sizes) < length
        assert samples < 10 or len(set(sizes)) > 3


@given(packs=st.integers(1, 40), length=st.integers(128, 512), name=st.sampled_from(["chatml", "qwen3"]))
@examples(20)
def test_packed_conversations_fill_their_sequences_with_as_many_predictions_each(
    tmp_path_factory: pytest.TempPathFactory, packs: int, length: int, name: str
) -> None:
    folder, job = tmp_path_factory.mktemp("data"), job_with(**{"data.template": name, "batch.packing": True})
    write_conversations(folder, job, samples=packs, seq_length=length)
    made = [json.loads(line)["messages"] for line in (folder / CONVERSATIONS).read_text(encoding="utf-8").splitlines()]
    sizes = sorted(TEMPLATES[name].length(messages) for messages in made)
    assert len(made) == PACKED * packs
    assert [small + large for small, large in zip(sizes, reversed(sizes), strict=True)] == [length - 1] * len(sizes)
    assert len({len(messages[1]["content"]) for messages in made}) == 1


def test_a_sequence_too_short_for_a_conversation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few for a conversation"):
        write_conversations(tmp_path, job_with(), samples=1, seq_length=32)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("thinking", [None, True])
def test_only_the_answers_and_their_ends_are_predicted(tmp_path: Path, name: str, thinking: bool | None) -> None:
    transformers = pytest.importorskip("transformers")
    job = job_with(**{"data.template": name, "data.enable_thinking": thinking})
    write_conversations(tmp_path, job, samples=6, seq_length=192)
    write_tokenizer(tmp_path / "tokenizer", 512)
    tokens, labels = labelled(tmp_path, tmp_path / "tokenizer", job)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "tokenizer"))
    template = template_of(job)
    assert template is not None
    lines = (tmp_path / CONVERSATIONS).read_text(encoding="utf-8").splitlines()
    for line, sample, row in zip(lines, tokens, labels, strict=True):
        messages = json.loads(line)["messages"]
        answers = [each["content"] for each in messages if each["role"] == "assistant"]
        thought = template.thought if thinking else ""
        assert len(sample) == template.length(messages)
        learned = tokenizer.decode([label for label in row if label != IGNORED])
        assert learned == "".join(f"{thought}{answer}{_LINE_END}" for answer in answers)
        assert all(label in (token, IGNORED) for token, label in zip(sample, row, strict=True))


def test_a_micro_batch_is_padded_to_its_longest_sample_and_padding_is_not_predicted() -> None:
    given: Options = options(samples=[[5, 6, 7], [8]], labels=[[IGNORED, 6, 7], [IGNORED]])
    assert padded(given, 0, 2) == (
        [[5, 6, 7], [8, 0, 0]],
        [[IGNORED, 6, 7], [IGNORED, IGNORED, IGNORED]],
        [[1, 1, 1], [1, 0, 0]],
    )


_ENCODE = """
import json, sys
from types import SimpleNamespace
import torch
from transformers import AutoTokenizer
from swift.template import TEMPLATE_MAPPING

tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])
tokenizer.model_info = SimpleNamespace(
    max_model_len=4096, config=None, model_type="qwen3", torch_dtype=torch.float32, task_type="causal_lm"
)
tokenizer.model_meta = SimpleNamespace(is_multimodal=False)
found = {}
for name in sys.argv[3:]:
    meta = TEMPLATE_MAPPING[name]
    # swift/arguments/base_args/template_args.py:177 appends the strategy for templates of hybrid models.
    scale = "default+ignore_empty_think" if meta.non_thinking_prefix else "default"
    template = meta.template_cls(tokenizer, meta, loss_scale=scale)
    template.set_mode("train")
    rows = [template.encode(json.loads(line)) for line in open(sys.argv[1] + "/" + name + "/conversations.jsonl")]
    found[name] = [[row["input_ids"] for row in rows], [row["labels"] for row in rows]]
print("FOUND" + json.dumps(found))
"""


@pytest.mark.slow
def test_ms_swift_formats_and_masks_conversations_as_the_reference_does(tmp_path: Path) -> None:
    names = [name for name in TEMPLATES if name != "qwen_lf"]  # MindSpeed-LLM's name of qwen2_5
    write_tokenizer(tmp_path / "tokenizer", 512)
    expected = {}
    for name in names:
        job = job_with(**{"data.template": name})
        write_conversations(tmp_path / name, job, samples=8, seq_length=192)
        expected[name] = list(labelled(tmp_path / name, tmp_path / "tokenizer", job))
    argv = [str(swift_python()), "-c", _ENCODE, str(tmp_path), str(tmp_path / "tokenizer"), *names]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.rpartition("FOUND")[2])
    assert found == expected

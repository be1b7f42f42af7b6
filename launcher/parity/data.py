"""One data set in the formats that backends read, so that all of them train on the same samples in the same order.

Every document has `seq_length` tokens, the last of which ends it, and is one sample. A backend that reads text adds
that token itself and predicts all tokens but the first; Megatron-core would also predict the first token of the next
document from the last one of this, which `eod_mask_loss` leaves out. So all see the same tokens (the load-balancing
loss of a router counts them) and predict the same ones.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.rehearse.sample_data import END_OF_DOCUMENT, documents, write_token_file

# A blend of files, as MindFormers writes even one, asks each for half a percent more; of fewer samples it would make
# two epochs, in another order (megatron/core/datasets/blended_megatron_dataset_builder.py,
# _get_size_per_split_per_dataset).
_MORE = 1.005
TOKENS, TEXT, STRIDED_TEXT = "tokens_text_document", "texts.jsonl", "texts_strided.jsonl"


def sample_order(count: int, seed: int) -> list[int]:
    """Return the documents in the order in which Megatron-core's GPTDataset reads them in the first epoch.

    Args:
        count: documents in the file, each as long as a sample; the last one of the shuffled order completes no sample.
        seed: `--seed` of the run.

    Source: megatron/core/datasets/gpt_dataset.py, _build_document_index and _build_shuffle_index (the same in core
    0.12.1 and 0.16.1).
    """
    import numpy

    draw = numpy.random.RandomState(seed)
    shuffled: Any = numpy.arange(count, dtype=numpy.int32)
    draw.shuffle(shuffled)
    samples: Any = numpy.arange(count - 1, dtype=numpy.uint32)
    draw.shuffle(samples)
    return [int(shuffled[sample]) for sample in samples]


def write_data(folder: Path, *, samples: int, seq_length: int, seed: int, micro: int = 1, ranks: int = 1) -> None:
    """Write `tokens_text_document.{bin,idx}` and, in the order in which those are read, `texts.jsonl`.

    `texts_strided.jsonl` has the same lines in the order that gives a backend with `strided_samples` the same
    micro-batches.

    Args:
        samples: samples of the whole training.
        seq_length: tokens of a sample; it predicts all but the first.
        micro: samples of a micro-batch.
        ranks: data-parallel ranks.
    """
    texts = _texts(math.ceil(samples * _MORE) + 1, seq_length - 1)
    folder.mkdir(parents=True, exist_ok=True)
    write_token_file(folder / TOKENS, [[*text.encode("ascii"), END_OF_DOCUMENT] for text in texts])
    ordered = (texts[number] for number in sample_order(len(texts), seed)[:samples])
    lines = [json.dumps({"text": text}) + "\n" for text in ordered]
    (folder / TEXT).write_text("".join(lines), encoding="utf-8")
    (folder / STRIDED_TEXT).write_text("".join(strided(lines, micro, ranks)), encoding="utf-8")


def strided(lines: Sequence[str], micro: int, ranks: int) -> list[str]:
    """Return samples in another order: rank r of n reads the samples r, r + n, r + 2n, … of what is returned.

    Args:
        lines: samples, of which rank r reads `micro` after one another, starting r * `micro` after rank 0.
    """
    whole = micro * ranks
    starts = range(0, len(lines), whole)
    places = [start + rank * micro + each for start in starts for each in range(micro) for rank in range(ranks)]
    return [lines[place] for place in places if place < len(lines)]


def read_samples(folder: Path) -> list[list[int]]:
    """Return the tokens of the samples in the order of the training."""
    lines = (folder / TEXT).read_text(encoding="utf-8").splitlines()
    return [[*json.loads(line)["text"].encode("ascii"), END_OF_DOCUMENT] for line in lines]


def shipped_text() -> str:
    """Return the shipped text on one line, in ASCII characters, each of which is a token of the shipped tokenizer."""
    return " ".join(documents()).encode("ascii", "ignore").decode("ascii").replace("\n", " ")


def _texts(count: int, length: int) -> Sequence[str]:
    """Return different texts of `length` ASCII characters, which are tokens of the shipped tokenizer."""
    whole = shipped_text()
    stride = min(length, (len(whole) - length) // count)
    if stride < 1:
        raise ValueError(f"{count} samples of {length + 1} tokens exceed the shipped text of {len(whole)} characters")
    return [whole[start : start + length] for start in range(0, count * stride, stride)]

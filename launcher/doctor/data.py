"""Checks that the files of a job exist and hold at least one global batch."""

import glob
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from launcher.doctor.check import ERROR, OK, SKIPPED, WARNING, Check
from launcher.job import Job

# Header of a token file's index: magic, version, dtype, sequences, documents (Megatron-core's indexed_dataset.py).
_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<QBQQ")
# Bytes per token by dtype code (DType).
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}
_TEXT = (".jsonl", ".json", ".txt", ".csv")


def paths(job: Job, *, here: bool, mounted: Sequence[str] = ()) -> list[Check]:
    """Return checks that every path that the job reads exists.

    Args:
        here: the job reads them on this machine, so that a missing one is an error.
        mounted: folders of the nodes that this machine does not see.
    """
    named = [
        ("model.path", job.model.path),
        ("tokenizer.path", job.tokenizer.path),
        ("checkpoint.load", job.checkpoint.load),
        ("lora.load", job.lora.load),
        ("task.reference_model", job.task.reference_model),
    ]
    checks = [_path(field, text, here=here, mounted=mounted) for field, text in named if text and "${" not in text]
    for field, words in (("data.paths", job.data.paths), ("data.validation_paths", job.data.validation_paths)):
        if job.data.format in ("hub", "sample", "mock"):
            continue
        for word in words:
            if "${" not in word and not word.replace(".", "", 1).isdigit():
                checks.append(_path(field, word, here=here, mounted=mounted, data=job.data.format or "any"))
    return checks


def _path(field: str, text: str, *, here: bool, mounted: Sequence[str], data: str = "") -> Check:
    if any(PurePosixPath(text).is_relative_to(folder) for folder in mounted):
        return Check(
            what=field, verdict=SKIPPED, found=f"{text} is on a volume of the nodes, which is not seen from here"
        )
    files = files_of(text) if data else [Path(text)] if Path(text).exists() else []
    if files:
        return Check(what=field, verdict=OK, found=text)
    where = "does not exist" if here else "does not exist on this machine; the nodes must have it"
    return Check(
        what=field,
        verdict=ERROR if here else WARNING,
        found=f"{text} {where}",
        works=f"{field}=… of existing files" + (" (of PREFIX.bin and .idx: PREFIX)" if data == "megatron" else ""),
    )


def files_of(word: str) -> list[Path]:
    """Return the files of an entry of data.paths: the path itself, or all files with that prefix."""
    plain = Path(word.partition("#")[0]).expanduser()
    if plain.exists():
        return [plain]
    return [Path(each) for each in sorted(glob.glob(glob.escape(str(plain)) + "*.idx"))]


def global_batch(job: Job, *, here: bool) -> Iterator[Check]:
    """Check that the data hold one global batch; with fewer samples a job hangs or silently repeats them."""
    wanted = job.batch.global_batch_size
    files = [file for word in job.data.paths if "${" not in word for file in files_of(word)]
    if wanted is None or not files or job.data.format in ("hub", "sample", "mock"):
        return
    samples, why = 0, ""
    for file in files:
        count = samples_of(file, job, wanted - samples)
        if count is None:
            why = f"{file}: files of this kind are not counted"
            break
        samples += count
        if samples >= wanted:
            break
    if why:
        yield Check(what="data", verdict=SKIPPED, found=why)
        return
    if samples >= wanted:
        yield Check(what="data", verdict=OK, found=f"at least one global batch ({wanted} samples)")
        return
    yield Check(
        what="data",
        verdict=ERROR if here else WARNING,
        found=f"{samples} samples, fewer than one global batch of {wanted}",
        works=f"more data, or batch.global_batch_size={samples}" if samples else "data.paths=… of files with samples",
        source="Megatron-Bridge#3464: fewer samples than one global batch hang without an error",
    )


def samples_of(file: Path, job: Job, enough: int) -> int | None:
    """Return the number of samples in a file, counting at most to `enough`; None for formats that are not read."""
    index = file if file.suffix == ".idx" else file.with_name(file.name + ".idx")
    if index.is_file():
        return _of_index(index, job)
    if file.suffix in _TEXT and file.is_file():
        return _of_lines(file, job, enough)
    return None


def _of_index(index: Path, job: Job) -> int | None:
    """Return the samples of Megatron's files: whole sequences of tokens for pre-training, else documents."""
    try:
        with index.open("rb") as stream:
            head = stream.read(len(_MAGIC) + _HEAD.size)
        if not head.startswith(_MAGIC):
            return None
        _, kind, sequences, _ = _HEAD.unpack(head[len(_MAGIC) :])
        tokens = index.with_suffix(".bin").stat().st_size // _BYTES.get(kind, 4)
    except (OSError, struct.error):
        return None
    length = job.batch.seq_length
    if job.task.type != "pretrain" or length is None:
        return int(sequences)
    return max(0, tokens - 1) // length


def _of_lines(file: Path, job: Job, enough: int) -> int | None:
    if file.suffix not in (".jsonl", ".txt") or job.task.type == "pretrain":
        return None  # one JSON document, or packed text: known only after tokenization
    count = 0
    try:
        with file.open("rb") as stream:
            for line in stream:
                count += bool(line.strip())
                if count >= enough:
                    break
    except OSError:
        return None
    return count

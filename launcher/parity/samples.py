"""The data set of a comparison by its task: what is written for all backends, and what the reference trains on."""

from dataclasses import replace
from pathlib import Path

from launcher.job import Job, with_values
from launcher.parity import reference_dpo
from launcher.parity.conversations import PACKED, labelled, write_conversations, write_tokenized
from launcher.parity.data import read_samples, write_data
from launcher.parity.preference import read_pairs, write_pairs
from launcher.parity.reference import Options, options_of, unsupported
from launcher.parity.reference_dpo import preference_options
from launcher.parity.sides import SEQUENCE


def write_samples(folder: Path, job: Job, iterations: int, model: Path) -> None:
    """Write the data of a small job for so many iterations.

    Args:
        model: folder with the tokenizer.

    Raises:
        ValueError: the shipped text is too short, or a sequence is too short for a sample.
    """
    batch, length = job.batch.global_batch_size or 1, job.batch.seq_length or 0
    samples = iterations * batch
    if job.task.type == "sft":
        write_conversations(folder, job, samples=batch if job.batch.packing else samples, seq_length=length)
        if not job.batch.packing:
            write_tokenized(folder, model, job)
    elif job.task.type == "dpo":
        write_pairs(folder, job, samples=samples, seq_length=length)
    else:
        micro, ranks = job.batch.micro_batch_size, job.parallel.dp or 1
        write_data(folder, samples=samples, seq_length=length, seed=job.seed or 0, micro=micro, ranks=ranks)


def what_fits(folder: Path, job: Job, iterations: int, model: Path) -> list[str]:
    """Return a change of the command line for which `write_samples` has samples; [] where none was found."""

    def fits(changed: Job, count: int) -> bool:
        try:
            write_samples(folder, changed, count, model)
        except ValueError:
            return False
        return True

    fewer = (iterations >> halvings for halvings in range(1, iterations.bit_length()))
    found = next((count for count in fewer if fits(job, count)), None)
    if found is not None:
        return [f"--iterations {found}"]
    longer = with_values(job, {"batch.seq_length": SEQUENCE})
    return [f"batch.seq_length={SEQUENCE}"] if fits(longer, iterations) else []


def reference_options(job: Job, folder: Path, *, model: Path, out: Path) -> Options:
    """Return what the reference trains, with the samples that `write_samples` left in a folder."""
    if job.task.type == "sft":
        options = options_of(job, model, out, *labelled(folder, model, job))
        return _unpacked(options) if job.batch.packing else options
    if job.task.type == "dpo":
        return preference_options(job, model, out, read_pairs(folder, model, job))
    return options_of(job, model, out, read_samples(folder))


def _unpacked(options: Options) -> Options:
    """Return options with the samples of packed sequences one by one, and all of them in each iteration."""
    assert options.labels is not None
    return replace(
        options,
        samples=[*options.samples] * options.iterations,
        labels=[*options.labels] * options.iterations,
        global_batch_size=PACKED * options.global_batch_size,
        micro_batch_size=PACKED * options.micro_batch_size,
    )


def reference_lacks(job: Job) -> list[tuple[str, object, str]]:
    """Return the values that the reference does not compute, each with an override without it."""
    if job.task.type == "dpo":
        return [*unsupported(job, reference_dpo.COMPUTED), *reference_dpo.unsupported(job)]
    return list(unsupported(job))

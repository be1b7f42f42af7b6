"""Samples of a step: a function of the seed and the samples consumed, never of the layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from launcher.rehearse.core.data import megatron_files
from launcher.rehearse.core.data.documents import end_of_document, hidden_from, positions_within
from launcher.rehearse.core.data.preferences import bundled_conversations, preference_samples
from launcher.rehearse.core.data.samples import (
    MessageSamples,
    Samples,
    StreamSamples,
    bundled_text,
    read_records,
    text_stream,
)
from launcher.rehearse.core.data.tokenizer import TextTokenizer
from launcher.rehearse.core.errors import RehearsalError, StageError
from launcher.rehearse.core.options import DataOptions
from launcher.rehearse.core.settings import Settings

_HELD_OUT = 0.05


class ShuffledSamples:
    """An endless sequence of samples; each epoch has another order, which depends on the seed only."""

    def __init__(self, samples: Samples, seed: int, *, shuffle: bool, vocab_size: int, eod: int | None = None) -> None:
        self.samples, self.seed, self.shuffle = samples, seed, shuffle
        self.vocab_size, self.eod = vocab_size, eod
        self._epoch, self._order = -1, None

    def get(self, number: int) -> tuple[Any, Any]:
        """Return the `number`-th sample of the run, counted from its beginning."""
        import numpy

        epoch, index = divmod(number, len(self.samples))
        if not self.shuffle:
            return self.samples.get(index)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = numpy.random.Generator(numpy.random.PCG64([self.seed, epoch])).permutation(len(self.samples))
        assert self._order is not None
        return self.samples.get(int(self._order[index]))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What a run trains and evaluates on."""

    train: ShuffledSamples
    valid: ShuffledSamples | None


def evaluates(settings: Settings) -> bool:
    """Return whether the run evaluates: --eval-interval given, and --eval-iters above 0."""
    return bool(settings.value("eval_interval") and settings.value("eval_iters"))


def build(settings: Settings, options: DataOptions, tokenizer: TextTokenizer, *, vocab_size: int) -> TrainingData:
    """Build the samples of a run; RehearsalError where there are fewer than one global batch."""
    eod = end_of_document(settings, options, tokenizer)
    if options.kind == "megatron":
        rounds = settings.train_iters // settings.value("eval_interval") + 1 if evaluates(settings) else 0
        sizes = (
            settings.train_iters * settings.global_batch_size,
            rounds * settings.value("eval_iters") * settings.global_batch_size,
        )
        train, valid = megatron_files.build(settings, options.paths, eod=eod, sizes=sizes)
    else:
        train, valid = _split(_samples(settings, options, tokenizer), evaluates(settings))
    _check_size(train, settings, "training")
    if evaluates(settings):
        _check_size(valid, settings, "validation")
    seed, shuffle = settings.value("seed"), options.kind != "megatron"
    return TrainingData(
        train=ShuffledSamples(train, seed, shuffle=shuffle, vocab_size=vocab_size, eod=eod),
        valid=ShuffledSamples(valid, seed, shuffle=False, vocab_size=vocab_size, eod=eod)
        if evaluates(settings) and valid is not None
        else None,
    )


def _samples(settings: Settings, options: DataOptions, tokenizer: TextTokenizer) -> Samples:
    length = settings.seq_length
    if options.kind == "preferences":
        return preference_samples(options.paths, tokenizer, length)
    if options.kind == "messages":
        records = read_records(options.paths, "messages") if options.paths else bundled_conversations()
        conversations = tuple(tokenizer.encode_messages(messages) for messages in records)
        return MessageSamples(conversations=conversations, seq_length=length, padding=tokenizer.eod)
    texts = iter([bundled_text()]) if options.kind == "sample" else read_records(options.paths, "text")
    eod = tokenizer.eod if settings.value("eod_mask_loss") else None
    return StreamSamples(tokens=text_stream(texts, tokenizer), seq_length=length, eod=eod)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A contiguous part of other samples."""

    samples: Samples
    start: int
    count: int

    def __len__(self) -> int:
        return self.count

    def get(self, index: int) -> tuple[Any, Any]:
        return self.samples.get(self.start + index)


def _split(samples: Samples, hold_out: bool) -> tuple[Samples, Samples | None]:
    """Hold out the last 5 % for evaluation, at least one sample, where the run evaluates."""
    if not hold_out:
        return samples, None
    held = max(1, round(len(samples) * _HELD_OUT))
    kept = len(samples) - held
    return _Part(samples=samples, start=0, count=max(0, kept)), _Part(samples=samples, start=kept, count=held)


def _check_size(samples: Samples | None, settings: Settings, name: str) -> None:
    count = len(samples) if samples is not None else 0
    needed = 1 if name == "validation" else settings.global_batch_size
    if count < needed:
        raise RehearsalError(
            f"the {name} data has {count} sample(s) of {settings.seq_length} tokens, fewer than a global batch of "
            f"{settings.global_batch_size}; works: more data, a shorter batch.seq_length, or "
            f"batch.global_batch_size={count} or less"
        )


def micro_batches(settings: Settings, samples: ShuffledSamples, first_sample: int) -> Iterator[dict[str, Any]]:
    """Yield this rank's micro batches from sample `first_sample` on, in megatron's order, on the device.

    Of pairs, the chosen answers come first, then the rejected ones: rows = 2 x micro_batch_size, else
    micro_batch_size. Tensors: tokens, labels, position_ids int64 and loss_mask float32, each [rows, seq_length / cp];
    with --reset-attention-mask also attention_mask (bool, True where hidden), [rows, 1, seq_length / cp, seq_length].
    """
    import numpy
    import torch
    from megatron.core import parallel_state
    from megatron.core.utils import get_batch_on_this_cp_rank

    device = torch.cuda.current_device()
    micro, replicas = settings.micro_batch_size, settings.layout.dp
    replica = parallel_state.get_data_parallel_rank()
    positions = torch.arange(settings.seq_length, device=device)
    first = first_sample + replica * micro
    while True:
        pairs = [samples.get(first + offset) for offset in range(micro)]
        numbers, masks = (_rows([pair[part] for pair in pairs]) for part in (0, 1))
        if numbers.max() >= samples.vocab_size:
            raise StageError(
                f"data: token {numbers.max()} in samples {first} to {first + micro - 1}, but the vocabulary has "
                f"{samples.vocab_size}; works: --vocab-size {numbers.max() + 1} or more"
            )
        tokens = torch.from_numpy(numbers.astype(numpy.int64)).to(device)
        batch = {
            "tokens": tokens[:, :-1].contiguous(),
            "labels": tokens[:, 1:].contiguous(),
            "loss_mask": torch.from_numpy(masks).to(device),
            "position_ids": positions.expand(len(numbers), -1).contiguous(),
        }
        if settings.value("reset_position_ids"):
            batch["position_ids"] = positions_within(batch["tokens"], samples.eod or 0)
        if settings.value("reset_attention_mask"):
            batch["attention_mask"] = hidden_from(batch["tokens"], samples.eod or 0)
        yield get_batch_on_this_cp_rank(batch)
        first += micro * replicas


def _rows(samples: list[Any]) -> Any:
    """Stack samples; of pairs, all first halves come before all second ones."""
    import numpy

    stacked = numpy.stack(samples, axis=-2)
    return numpy.ascontiguousarray(stacked.reshape(-1, stacked.shape[-1]))

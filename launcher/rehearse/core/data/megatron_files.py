"""Samples from Megatron's .bin/.idx files through megatron-core's GPTDataset."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MegatronSamples:
    """A GPTDataset (or a blend), which shuffles by the seed itself."""

    dataset: Any

    def __len__(self) -> int:
        return len(self.dataset)

    def get(self, index: int) -> tuple[Any, Any]:
        import numpy

        sample = self.dataset[index]
        tokens, labels = sample["tokens"].numpy(), sample["labels"].numpy()
        return numpy.concatenate([tokens, labels[-1:]]), sample["loss_mask"].numpy()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _TokenNumbers:
    """The tokenizer attributes that GPTDataset needs for tokenised data."""

    eod: int
    vocab_size: int
    unique_identifiers: dict[str, str]
    pad: int = -1


def build(settings: Settings, paths: tuple[str, ...], *, eod: int | None, sizes: tuple[int, int]) -> tuple[Any, Any]:
    """Build training and validation samples; `sizes` are the numbers of samples that the run needs of each."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.utils import get_blend_from_list

    per_split = [settings.value(f"{name}_data_path") for name in ("train", "valid", "test")]
    blend = list(paths) or settings.value("data_path")
    lists = [blend] if blend else per_split
    check_files([word for words in lists for word in words or ()])
    config = GPTDatasetConfig(
        random_seed=settings.value("seed"),
        sequence_length=settings.seq_length,
        blend=get_blend_from_list(blend) if blend else None,
        blend_per_split=None if blend else [get_blend_from_list(words) for words in per_split],
        split=(settings.value("split") or "969,30,1") if blend else None,
        path_to_cache=settings.value("data_cache_path"),
        mmap_bin_files=settings.value("mmap_bin_files"),
        tokenizer=_TokenNumbers(
            eod=-1 if eod is None else eod, vocab_size=0, unique_identifiers={"class": "TokenNumbers"}
        ),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=settings.value("eod_mask_loss"),
        create_attention_mask=False,
    )
    builder = BlendedMegatronDatasetBuilder(GPTDataset, [*sizes, 0], lambda: True, config)
    train, valid, _test = builder.build()
    return (
        MegatronSamples(dataset=train) if train is not None else None,
        MegatronSamples(dataset=valid) if valid is not None else None,
    )


def check_files(words: list[str]) -> None:
    """Raise an error if a file of a list of prefixes and weights is missing."""
    prefixes = [word for word in words if not _is_number(word)]
    if not prefixes:
        raise RehearsalError("data of kind megatron needs a prefix; works: --data-path PREFIX (of PREFIX.bin and .idx)")
    missing = [prefix + end for prefix in prefixes for end in (".bin", ".idx") if not Path(prefix + end).is_file()]
    if missing:
        raise RehearsalError(*(f"{name}: no such file" for name in missing))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True

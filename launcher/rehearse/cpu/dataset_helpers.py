"""Megatron's compiled data set index builder (helpers.cpp) in numpy, for source trees where it is not compiled."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np


def _build_sample_idx(
    dtype: Any,
    sizes: Any,
    document_indices: Any,
    sequence_length: int,
    num_epochs: int,
    tokens_per_epoch: int,
    drop_last_partial_sequence: bool = True,
    add_extra_token_to_sequence: int = 1,
) -> Any:
    """Return [samples + 1, 2]: for each sample boundary, the place in ``document_indices`` and the offset there.

    ``sizes`` are tokens of each document, ``document_indices`` the order in which documents are read (all epochs).
    As helpers.cpp:build_sample_idx (core_v0.12.1): a sample begins ``sequence_length`` tokens after the last one.
    """
    available = num_epochs * tokens_per_epoch - add_extra_token_to_sequence
    if drop_last_partial_sequence:
        samples = available // sequence_length
    else:
        samples = int(np.ceil(np.float32(available) / np.float32(sequence_length)))
    starts = np.concatenate(([0], np.cumsum(sizes[document_indices], dtype=np.int64)))
    boundaries: Any = np.arange(samples + 1, dtype=np.int64) * sequence_length
    # A boundary belongs to the document that holds the token before the extra one, as the compiled loop leaves it.
    documents: Any = np.searchsorted(starts, boundaries + add_extra_token_to_sequence, side="left") - 1
    documents[0] = 0
    last = len(document_indices) - 1
    beyond = boundaries + add_extra_token_to_sequence > starts[-1]
    documents = np.where(beyond, last, np.clip(documents, 0, last))
    offsets = boundaries - starts[documents]
    offsets = np.where(beyond, sizes[document_indices[last]] - add_extra_token_to_sequence, offsets)
    return np.stack([documents, offsets], axis=1).astype(dtype)


def build_sample_idx_int32(*args: Any) -> Any:
    """Return the sample index as int32; arguments as in Megatron's build_sample_idx."""
    return _build_sample_idx(np.int32, *args)


def build_sample_idx_int64(*args: Any) -> Any:
    """Return the sample index as int64; arguments as in Megatron's build_sample_idx."""
    return _build_sample_idx(np.int64, *args)


def build_blending_indices(
    dataset_index: Any, dataset_sample_index: Any, weights: Any, num_datasets: int, size: int, verbose: bool
) -> None:
    """Fill both arrays: for each of ``size`` samples, the data set furthest behind its weight, and its next sample."""
    taken: Any = np.zeros(num_datasets, dtype=np.int64)
    weights = np.asarray(weights[:num_datasets], dtype=np.float64)
    for sample in range(size):
        chosen = int(np.argmax(weights * max(float(sample), 1.0) - taken))
        dataset_index[sample] = chosen
        dataset_sample_index[sample] = taken[chosen]
        taken[chosen] += 1


def build_exhaustive_blending_indices(
    dataset_index: Any, dataset_sample_index: Any, sizes: Any, num_datasets: int
) -> None:
    """Fill both arrays so that exactly ``sizes[i]`` samples of each data set are taken, interleaved in proportion."""
    taken: Any = np.zeros(num_datasets, dtype=np.int64)
    sizes = np.asarray(sizes[:num_datasets], dtype=np.int64)
    weights = sizes / float(sizes.sum())
    for sample in range(int(sizes.sum())):
        behind = np.where(taken < sizes, weights * max(float(sample), 1.0) - taken, -np.inf)
        chosen = int(np.argmax(behind))
        dataset_index[sample] = chosen
        dataset_sample_index[sample] = taken[chosen]
        taken[chosen] += 1


def _not_for_gpt(name: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(
            f"{name} (sentence pairs, for BERT and T5) has no stand-in; "
            "run `make` in megatron/core/datasets of the checkout"
        )

    return refuse


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides these functions under the compiled module's name; searched last, to prefer a compiled one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname == self.name else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(
            build_sample_idx=build_sample_idx_int32,  # the only name in copies of helpers.cpp from before core 0.8
            build_sample_idx_int32=build_sample_idx_int32,
            build_sample_idx_int64=build_sample_idx_int64,
            build_blending_indices=build_blending_indices,
            build_exhaustive_blending_indices=build_exhaustive_blending_indices,
            build_mapping=_not_for_gpt("build_mapping"),
            build_blocks_mapping=_not_for_gpt("build_blocks_mapping"),
        )


def install(package: str = "megatron.core.datasets", compiled: str = "helpers_cpp", compiler: str = "utils") -> None:
    """Provide ``package.compiled`` where no compiled module is found, and never start a compiler.

    ``package.compiler`` holds the function ``compile_helpers`` that would run ``make`` inside the source tree.
    """
    from launcher.rehearse.cpu.after_import import after_import

    sys.meta_path.append(_Finder(f"{package}.{compiled}"))
    after_import(f"{package}.{compiler}", _do_not_compile)


def _do_not_compile(module: ModuleType) -> None:
    module.__dict__["compile_helpers"] = lambda: None

"""Hugging Face checkpoints on disk: safetensors shards with an index, config.json, tokenizer and generation files."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import itemsize, nbytes
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.formats.format import Draft, Format, Layout, Target
from launcher.convert.fp8 import quantisation
from launcher.convert.layouts.content import Stored, Wanted
from launcher.convert.layouts.huggingface import huggingface_read, huggingface_wanted
from launcher.convert.logical import Logical
from launcher.convert.scales import SCALE, scale_shape

_SHARD = 5 * 10**9
# Files of a model besides its weights; everything else in a model's folder is ignored.
_ALONG = (".json", ".model", ".txt", ".jinja", ".py", ".tiktoken")
_ALSO_ALONG = ("merges", "vocab", "LICENSE")
_NOT_ALONG = (".index.json", "adapter_config.json", "conversion.json")
# Configuration, tokenizer and generation files as transformers and the hubs name them (transformers utils/__init__.py,
# tokenization_utils_base.py; configuration.json is ModelScope's).
CONFIGURATION = (
    *("config.json", "configuration.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "*.tiktoken"),
    *("chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json"),
    *("video_preprocessor_config.json", "adapter_config.json"),
)
# safetensors' order of dtypes, smaller ones first (its enum Dtype).
_ORDER = ("U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64")
_TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def _recognises(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.safetensors"))


def _read(path: Path, logical: Logical, _layout: Layout) -> tuple[Logical, Stored]:
    if not _recognises(path) and any(path.glob("*.bin")):
        raise ConvertError(f"{path}: pickled weights (*.bin) are not read; works: the same model in safetensors")
    return huggingface_read(logical, safetensors.read(path).slots)


def _draft(target: Target) -> Draft:
    wanted = _in_file_order(list(_with_scales(huggingface_wanted(target.logical), target)), target)
    dtypes = tuple(_dtype(tensor, target) for tensor in wanted)
    specs = [
        TensorSpec(name=tensor.name, shape=tensor.shape, dtype=dtype)
        for tensor, dtype in zip(wanted, dtypes, strict=True)
    ]

    def create(directory: Path) -> list[Slot]:
        copy_along(target.donor, directory, target)
        return safetensors.create(directory, specs, shard_bytes=_SHARD)

    files = 2 + sum(nbytes(spec) for spec in specs) // _SHARD
    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=files)


def _in_file_order(wanted: list[Wanted], target: Target) -> tuple[Wanted, ...]:
    """Order the tensors of a single file as safetensors does, so that equal weights give equal bytes.

    safetensors/src/tensor.rs prepare: larger formats first, then by name. Several files follow the model's layers.
    """
    total = sum(math.prod(tensor.shape) * itemsize(_dtype(tensor, target)) for tensor in wanted)
    if total > _SHARD:
        return tuple(wanted)
    return tuple(sorted(wanted, key=lambda tensor: (-_ORDER.index(_dtype(tensor, target)), tensor.name)))


def _with_scales(wanted: list[Wanted], target: Target) -> Iterator[Wanted]:
    """Yield every tensor; each one to quantise is followed by its scales."""
    for tensor in wanted:
        if tensor.boxes[0].logical not in target.fp8:
            yield tensor
            continue
        yield replace(tensor, scale=tensor.name + SCALE)
        shape = scale_shape(tensor.shape)
        yield Wanted(name=tensor.name + SCALE, shape=shape, boxes=(), fill=math.prod(shape))


def _dtype(tensor: Wanted, target: Target) -> str:
    if tensor.scale is not None:
        return "F8_E4M3"
    return target.dtype(tensor) if tensor.boxes else "F32"


def files_along(donor: Path | None) -> list[Path]:
    """Return the files of a model besides its weights."""
    return sorted(
        file
        for file in (donor.iterdir() if donor is not None and donor.is_dir() else ())
        if file.name.endswith(_ALONG) or file.name.startswith(_ALSO_ALONG) or file.name == "README.md"
        if not file.name.endswith(_NOT_ALONG) and file.is_file()
    )


def copy_along(donor: Path | None, directory: Path, target: Target | None = None) -> None:
    """Copy configuration, tokenizer and generation files of a model; update the number format in config.json.

    Without a donor, config.json is written from the job's model description.

    Raises:
        ConvertError: no config.json can describe this model.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if donor is None:
        if target is not None:
            _write_config(directory / "config.json", target)
        return
    for file in files_along(donor):
        shutil.copyfile(file, directory / file.name)
    config = directory / "config.json"
    if target is not None and config.is_file():
        tree = json.loads(config.read_text(encoding="utf-8"))
        if _updated(tree, target):
            config.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_config(file: Path, target: Target) -> None:
    from launcher.families.config_json import config_from_model
    from launcher.families.source import ModelConfigError

    try:
        tree = config_from_model(target.logical.model)
    except ModelConfigError as error:
        raise ConvertError([f"{error.where}: {problem}" for problem in error.problems]) from None
    _updated(tree, target)
    file.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _updated(tree: dict[str, Any], target: Target) -> bool:
    """Update the number format and `quantization_config`; return whether anything changed."""
    before = json.dumps(tree)
    named = _TORCH_NAMES.get(target.matrix_dtype or "")
    for key in ("torch_dtype", "dtype"):
        if named is not None and key in tree:
            tree[key] = named
    if target.fp8:
        already = {name for name, dtype in target.dtypes.items() if dtype == "F8_E4M3"}
        tree.setdefault("quantization_config", quantisation(target.logical, target.fp8 | already))
    elif "F8_E4M3" not in target.dtypes.values():
        for key in ("quantization_config", "expert_dtype"):
            tree.pop(key, None)
    return json.dumps(tree) != before


FORMAT = Format(
    name="hf",
    title="Hugging Face safetensors",
    kind="hf",
    recognises=_recognises,
    read=_read,
    draft=_draft,
    config=lambda path: path if (path / "config.json").is_file() else None,
    holds=(*CONFIGURATION, "*.safetensors", "*.safetensors.index.json"),
    requires=("config.json",),
)

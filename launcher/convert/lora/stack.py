"""Shared parts of training stacks' adapter formats: layers with factors, and arguments that describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Layout, Target
from launcher.convert.formats.huggingface import copy_along
from launcher.convert.logical import Logical
from launcher.convert.lora.adapter import CONFIG
from launcher.convert.lora.logical import AdapterLogical, Shared, adaptable, adapter_logical, without_unused_mtp
from launcher.records import dataclass

# Option for alpha, which no factor contains.
ALPHA = "alpha"
KEPT = "huggingface"
"""Folder of a checkpoint with the configurations of model and adapter, for the reverse conversion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStack:
    """How one training stack stores adapters.

    Attributes:
        arguments: maps a target to additional attributes of the stored `args`.
        files: maps a target to additional files beside the checkpoint: name and text.
        refused: maps a target to the reasons why the stack cannot load it.
        shared: modules that it fuses into one layer, besides the table's rows.
    """

    arguments: Callable[[Target], Mapping[str, Any]]
    files: Callable[[Target], Mapping[str, str]] = lambda target: {}
    refused: Callable[[Target], Iterable[str]] = lambda target: ()
    shared: Shared = ()


def adapter_of(target: Target) -> AdapterLogical:
    """Return the adapter to write."""
    assert isinstance(target.logical, AdapterLogical)
    return target.logical


def every_module(base: Logical) -> list[str]:
    """Return every module that could have factors."""
    return [part for _, parts in adaptable(base) for part in parts]


def keep_for_export(target: Target, directory: Path) -> None:
    """Write what the reverse conversion needs besides factors: config.json, tokenizer, adapter configuration."""
    copy_along(target.donor, directory / KEPT)
    (directory / KEPT).mkdir(exist_ok=True)
    text = adapter_of(target).config
    if text:
        (directory / KEPT / CONFIG).write_text(text, encoding="utf-8")


def kept_config(path: Path) -> str:
    """Return the adapter_config.json stored in a checkpoint; empty if there is none."""
    file = path / KEPT / CONFIG
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def given_alpha(layout: Layout) -> Mapping[str, Any]:
    """Return the alpha set by the user (`--set alpha=NUMBER`), as a training argument.

    Raises:
        ConvertError: it is not a number.
    """
    word = layout.options.get(ALPHA)
    if word is None:
        return {}
    try:
        value = float(word)
    except ValueError:
        raise ConvertError(f"--set alpha={word}: must be a number") from None
    return {"lora_alpha": int(value) if value.is_integer() else value}


def found_adapter(
    path: Path,
    base: Logical,
    modules: Iterable[str],
    ranks: Iterable[int],
    arguments: Mapping[str, Any],
    *,
    shared: Shared = (),
) -> AdapterLogical:
    """Return the adapter that a checkpoint holds.

    Args:
        path: the checkpoint.
        base: its model.
        modules: those with factors.
        ranks: ranks of all factors.
        arguments: arguments of the training; needed for alpha, which no factor contains.
        shared: modules that the stack fuses into one layer.

    Raises:
        ConvertError: alpha is unknown, or factors have several ranks.
    """
    different = sorted(set(ranks))
    if len(different) != 1:
        raise ConvertError(f"{path}: factors of ranks {different}: an adapter has one for all layers")
    alpha = arguments.get("lora_alpha")
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool):
        raise ConvertError(f"{path}: its arguments and factors have no lora_alpha; works: --set alpha=NUMBER")
    held = list(modules)
    return adapter_logical(
        without_unused_mtp(base, held),
        held,
        rank=different[0],
        alpha=alpha,
        rslora=bool(arguments.get("use_rslora")),
        config=kept_config(path),
        shared=shared,
    )

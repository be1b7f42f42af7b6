"""MindFormers classes that load each model family, per version: mcore graph, legacy classes, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from backends.mindformers.checkpoint.options import is_old, truth
from backends.mindformers.families import older, trainable
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Layout
from launcher.convert.logical import Logical
from launcher.job.model import Model
from launcher.mapping.backend import get_backend

Network = Literal["mcore", "older"]

VERSIONS: Final = ("2.1.0", "1.6.0")
_WHY: Final[Mapping[Network, str]] = {
    "mcore": "its mcore graph (use_legacy: False) trains {trained}",
    "older": "its older classes (use_legacy: True) train {trained}",
}


def version_of(layout: Layout) -> str:
    """Return the version of a layout, mapped to one whose classes are known."""
    return "1.6.0" if is_old(layout) else "2.1.0"


def loaders(kind: str) -> dict[str, dict[Network, str]]:
    """Return the classes that train a family, by version and network (mcore graph or legacy classes)."""
    found: dict[str, dict[Network, str]] = {}
    for version in VERSIONS:
        tables: dict[Network, Mapping[str, str]] = {"mcore": trainable(version), "older": older(version)}
        found[version] = {network: table[kind] for network, table in tables.items() if kind in table}
    return found


def network_of(logical: Logical, layout: Layout) -> Network:
    """Return the network whose parameters are written: the layout's choice, else the one that the version has.

    Raises:
        ConvertError: the version has no such class for the family; the message names versions that have one.
    """
    kind, version = logical.model.model_type or "", version_of(layout)
    has = loaders(kind)
    asked = layout.options.get("use_legacy", layout.legacy)
    if asked is None:
        network: Network = "mcore" if "mcore" in has[version] else "older"
    else:
        network = "older" if truth("use_legacy", asked) else "mcore"
    if network not in has[version]:
        raise ConvertError(_refused(logical.model, layout, network if asked is not None else None, has))
    problems = list(_unsupported(logical.model)) if network == "older" else []
    if problems:
        works = _other_backends(logical.model, layout)
        raise ConvertError([f"MindFormers' older classes: {problem}; works: {works}" for problem in problems])
    return network


def title_of(logical: Logical, layout: Layout) -> str:
    """Return the name of the class whose parameters are written."""
    return loaders(logical.model.model_type or "")[version_of(layout)][network_of(logical, layout)]


def _other_backends(model: Model, layout: Layout) -> str:
    # Imported here: it asks the formats of all backends, this one among them.
    from launcher.convert.builds import other_backends

    return other_backends(model, get_backend("mindformers"), layout)


def _refused(model: Model, layout: Layout, asked: Network | None, has: Mapping[str, Mapping[Network, str]]) -> str:
    version = version_of(layout)
    tables: Mapping[Network, Mapping[str, str]] = {"mcore": trainable(version), "older": older(version)}
    why = "; ".join(
        _WHY[network].format(trained=", ".join(tables[network])) for network in tables if asked in (None, network)
    )
    works = [
        f"--set version={other[:3]} --set use_legacy={'true' if network == 'older' else 'false'} ({title})"
        for other, titles in has.items()
        for network, title in titles.items()
    ]
    if not works:
        why += "; no version that is known here has a class for it"
    shown = " · ".join(works) or _other_backends(model, layout)
    return f"MindFormers {version} cannot train {model.model_type}: {why}; works: {shown}"


def _unsupported(model: Model) -> Iterator[str]:
    """Yield what the older classes do not have."""
    if model.is_mla:
        if not model.q_lora_rank:
            yield f"{model.model_type} without q_lora_rank: DeepseekV2Attention always has a low-rank query"
    else:
        heads, head = model.num_attention_heads or 0, model.head_size or 0
        if heads * head != model.hidden_size:
            yield f"head_dim {head} x {heads} heads: LLamaAttention's queries are hidden_size wide"
        if model.mixes_dense_layers:
            yield "dense layers among those with experts: LLamaDecodeLayer has experts in all of them"
    shared, each = model.shared_expert_intermediate_size, model.moe_intermediate_size
    if shared and each and shared % each:
        yield f"shared experts of {shared}: LlamaFeedForwardWithMoE has a multiple of moe_intermediate_size {each}"

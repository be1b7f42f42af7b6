"""MindFormers classes that load each model family, per version: mcore graph, legacy classes, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from backends.mindformers.checkpoint.options import is_old, truth
from backends.mindformers.families import older, trainable
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Layout
from launcher.convert.logical import Logical

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
        raise ConvertError(_refused(kind, version, network if asked is not None else None, has))
    if network == "older":
        _refuse_unsupported_parameters(logical)
    return network


def title_of(logical: Logical, layout: Layout) -> str:
    """Return the name of the class whose parameters are written."""
    return loaders(logical.model.model_type or "")[version_of(layout)][network_of(logical, layout)]


def _refused(kind: str, version: str, asked: Network | None, has: Mapping[str, Mapping[Network, str]]) -> str:
    tables: Mapping[Network, Mapping[str, str]] = {"mcore": trainable(version), "older": older(version)}
    why = "; ".join(
        _WHY[network].format(trained=", ".join(tables[network])) for network in tables if asked in (None, network)
    )
    works = [
        f"--set version={other[:3]} --set use_legacy={'true' if network == 'older' else 'false'} ({title})"
        for other, titles in has.items()
        for network, title in titles.items()
    ]
    works = works or ["another backend: no version of MindFormers that is known here has a class for it"]
    return f"MindFormers {version} cannot train {kind}: {why}; works: {' · '.join(works)}"


def _refuse_unsupported_parameters(logical: Logical) -> None:
    model, kind = logical.model, logical.model.model_type
    problems = []
    if model.is_mla:
        if not model.q_lora_rank:
            problems.append(f"{kind} without q_lora_rank: DeepseekV2Attention always has a low-rank query")
    else:
        heads, head = model.num_attention_heads or 0, model.head_size or 0
        if heads * head != model.hidden_size:
            problems.append(f"head_dim {head} x {heads} heads: LLamaAttention's queries are hidden_size wide")
        if model.mixes_dense_layers:
            problems.append("dense layers among those with experts: LLamaDecodeLayer has experts in all of them")
    shared, each = model.shared_expert_intermediate_size, model.moe_intermediate_size
    if shared and each and shared % each:
        problems.append(
            f"shared experts of {shared}: LlamaFeedForwardWithMoE has a multiple of moe_intermediate_size {each}"
        )
    if problems:
        raise ConvertError([f"MindFormers' older classes: {problem}" for problem in problems])

"""Merges configuration files and overrides with Hydra.

Hydra composes the chosen files; overrides of fields are read by its parser and set in the result. A process that
composes many jobs of the same files (tests, sweeps, tried offers) so pays for Hydra's defaults list once.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from launcher.compose.overrides import FileOption, Override, for_hydra, quote
from launcher.compose.search_path import SECTION_GROUPS, SearchPath
from launcher.compose.variables import secrets_unread, with_references
from launcher.job.shipped import shipped
from launcher.records import dataclass

_NO_FOLDER = "installed"
# What only OmegaConf resolves: an interpolation, and a value that must be given.
_RESOLVED = ("${", "???")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Merged configuration files.

    Attributes:
        tree: plain data; interpolations are resolved.
        files: source files as (group, path), in the order of the defaults list.
        is_literal: no value of the files is an interpolation or missing.
    """

    tree: Mapping[str, Any]
    files: tuple[tuple[str, Path], ...]
    is_literal: bool


def merged(overrides: Sequence[Override], places: SearchPath) -> tuple[Mapping[str, Any], Sequence[tuple[str, Path]]]:
    """Return the tree that Hydra makes of files and overrides, and its source files.

    Raises:
        HydraException, OmegaConfBaseException, YAMLError: Hydra refuses them.
    """
    groups = [override for override in overrides if override.is_group]
    values = [override for override in overrides if not override.is_group]
    if not any(sign in (override.value or "") for override in values for sign in _RESOLVED):
        files = _files_merged(groups, places)
        tree = _with_values(files.tree, values) if files is not None and (files.is_literal or not values) else None
        if files is not None and tree is not None:
            return tree, files.files
    whole = _by_hydra(*for_hydra(list(overrides)), places)
    return whole.tree, whole.files


def chosen_sections(overrides: Sequence[Override]) -> list[str]:
    """Return the sections whose group the command line sets: it overrides a job file, which has every section."""
    return [override.key for override in overrides if override.key in SECTION_GROUPS]


# -- files


def _files_merged(groups: list[Override], places: SearchPath) -> Merged | None:
    """Return the merged files of the chosen options; None where Hydra needs the fields as well."""
    from omegaconf.errors import OmegaConfBaseException

    words, aliases = for_hydra(groups)
    try:
        if aliases or places.has_user_folders:
            return _by_hydra(words, aliases, places)  # files that may change while the process runs
        return _of_shipped_files(tuple(words), places)
    except OmegaConfBaseException:
        return None


@lru_cache(maxsize=64)
def _of_shipped_files(words: tuple[str, ...], places: SearchPath) -> Merged:
    return _by_hydra(list(words), [], places)


def _by_hydra(words: list[str], aliases: list[FileOption], places: SearchPath) -> Merged:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    from launcher.compose.config_source import register

    register()
    paths = ",".join(map(quote, _search_path(words, aliases, places)))
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(shipped("conf")), version_base="1.3"):
        config = hydra_compose("config", overrides=[*words, f"hydra.searchpath=[{paths}]"], return_hydra_config=True)
    choices = {str(key): value for key, value in config.hydra.runtime.choices.items()}
    tree, is_literal = _plain(config)
    return Merged(tree=tree, files=tuple(_files(choices, places, aliases)), is_literal=is_literal)


def _search_path(words: list[str], aliases: list[FileOption], places: SearchPath) -> Iterator[str]:
    from launcher.compose.config_source import FOLDER, PLUGINS, SCHEME

    sections = (word.partition("=")[0] for word in words)
    chosen = "".join(f"!{section}" for section in sections if section in SECTION_GROUPS)
    for alias in aliases:
        without = chosen if alias.group == "job" else ""
        yield f"{SCHEME}://{alias.group}/{alias.alias}{without}={alias.path}"
    yield from (f"{SCHEME}://{mount.group}={mount.folder}" for mount in places.mounts)
    yield from (f"{FOLDER}://{root}" for root in places.roots[:-1])
    yield f"{PLUGINS}://{_NO_FOLDER}"


def _plain(config: Any) -> tuple[dict[str, Any], bool]:
    """Return a composed configuration as plain data, and whether it is literal."""
    from omegaconf import OmegaConf, flag_override

    with flag_override(config, ["readonly", "struct"], False):
        del config["hydra"]
    written = OmegaConf.to_container(config)
    with secrets_unread():
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    tree = with_references(tree, written)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}, not any(map(_is_resolved, _leaves(written)))


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, Mapping):
        yield from (leaf for value in node.values() for leaf in _leaves(value))
    elif isinstance(node, list):
        yield from (leaf for value in node for leaf in _leaves(value))
    else:
        yield node


def _is_resolved(value: Any) -> bool:
    return isinstance(value, str) and any(sign in value for sign in _RESOLVED)


def _files(choices: Mapping[str, Any], places: SearchPath, aliases: list[FileOption]) -> Iterator[tuple[str, Path]]:
    yield "", shipped("conf") / "config.yaml"
    by_alias = {alias.alias: alias.path for alias in aliases}
    for group, option in choices.items():
        if not isinstance(option, str) or group.startswith("hydra/"):
            continue
        path = by_alias.get(option) or places.find(group, option)
        if path is not None:
            yield group, path


# -- fields


def _with_values(tree: Mapping[str, Any], overrides: list[Override]) -> Mapping[str, Any] | None:
    """Return a tree with the values of fields; None for a value that is not one of a field (a sweep, a list's item)."""
    if not overrides:
        return tree
    from hydra.core.override_parser.overrides_parser import OverridesParser

    words, _ = for_hydra(overrides)
    for override in OverridesParser.create().parse_overrides(words):
        if override.is_sweep_override():
            return None
        changed = _set(tree, override.key_or_group.split("."), override.value())
        if changed is None:
            return None
        tree = changed
    return tree


def _set(tree: Mapping[str, Any], path: list[str], value: Any) -> Mapping[str, Any] | None:
    """Return a copy of the tree with one value; None where the path leads through a value, or a mapping meets one."""
    name, *rest = path
    old = tree.get(name)
    if rest:
        value = _set({} if old is None else old, rest, value) if old is None or isinstance(old, Mapping) else None
        return None if value is None else {**tree, name: value}
    if isinstance(value, Mapping) or isinstance(old, Mapping):
        return None
    return {**tree, name: value}

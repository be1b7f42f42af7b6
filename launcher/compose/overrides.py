"""Command-line overrides: select a group's option, set a field, or sweep; text fields are taken as typed."""

import os
import re
import shlex
import types
import typing
from pathlib import Path
from typing import Any

from launcher.compose.errors import NAME, OPTION, Mistake
from launcher.compose.search_path import GROUPS, SECTION_GROUPS, WHOLE_JOB_GROUPS, SearchPath
from launcher.job import fields, suggest_field
from launcher.job.secret import without_secrets
from launcher.records import dataclass

_WORD = re.compile(r"^(?P<sign>\+\+|\+|~)?(?P<key>[\w/.@\-]+)(=(?P<value>.*))?$", re.DOTALL)
_NAME = re.compile(r"\w[\w.-]*")
_FILES = (".sh", ".bash", ".yaml", ".yml", ".json")
_FREE = ("backend.args.", "backend.env.", "cluster.options.", "cluster.pod_patch.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One override of the command line.

    Attributes:
        raw: as typed.
        sign: `+`, `++`, `~` or empty.
        key: group or dotted field path.
        value: text after `=`; None where there is no `=`.
    """

    raw: str
    sign: str
    key: str
    value: str | None

    @property
    def is_group(self) -> bool:
        """Whether the override selects an option of a group (`model=qwen3_8b`) instead of setting a field."""
        return self.key in GROUPS


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOption:
    """A YAML file given by path instead of an option's name; passed to Hydra under an alias."""

    group: str
    alias: str
    path: Path


def parse(words: list[str]) -> tuple[list[Override], list[Mistake]]:
    """Split words into sign, key and value; words that are not overrides are mistakes."""
    overrides: list[Override] = []
    mistakes: list[Mistake] = []
    for word in words:
        match = _WORD.match(word)
        if match is None or (match["value"] is None and match["sign"] != "~"):
            mistakes.append(_no_override(without_secrets([word])[0]))
            continue
        if match["sign"] == "~":
            works = (f"{match['key']}=null",)
            shown = without_secrets([word])[0]
            mistakes.append(Mistake(what=f"{shown}: fields cannot be removed; set a value instead", works=works))
            continue
        overrides.append(Override(raw=word, sign=match["sign"] or "", key=match["key"], value=match["value"]))
    return overrides, mistakes


def _no_override(word: str) -> Mistake:
    """Return the mistake for a word without `=`, which may be an option, a file, or a recipe's name."""
    if word.startswith("-"):
        return Mistake(what=f"{word!r} is not of the form key=value", works=("-o FILE", "--help"))
    if os.path.isfile(word):
        works = _imported(word)
        if looks_like_yaml(word):
            works = (shlex.quote(f"+job={word}"), *works)
        return Mistake(what=f"{word} is a file; expected an override (key=value)", works=works)
    if os.path.isdir(word):
        works = (f"--config-dir {shlex.quote(word)}",)
        return Mistake(what=f"{word} is a folder; expected an override (key=value)", works=works)
    if os.path.exists(word) or word.endswith(_FILES) or "/" in word:
        return Mistake(what=_no_file(word))
    return Mistake(what=f"{word!r} is not of the form key=value", works=_completed(word))


def _no_file(word: str, missing: str = "") -> str:
    """Return what a path is at which a file was expected; `missing`: what is said where there is nothing."""
    path = os.path.expanduser(word)
    if os.path.isdir(path):
        return f"{word} is a folder, not a file"
    return f"{word} is a pipe or device, not a file" if os.path.exists(path) else missing or f"there is no file {word}"


def _completed(word: str) -> tuple[str, ...]:
    """Return overrides that complete a word without a value."""
    name = word.lstrip("+")
    if name in GROUPS:
        return (f"{'+' if name in WHOLE_JOB_GROUPS else ''}{name}=NAME",)
    if _is_field(name):
        return (f"{name}=VALUE",)
    return (f"+recipe={word}" if _NAME.fullmatch(word) else "+recipe=NAME", "section.field=value")


def _imported(file: str) -> tuple[str, ...]:
    """Return the command that converts a script or another program's configuration to a job."""
    return (f"launch import {shlex.quote(file)} -o job.yaml, then +job=job.yaml",)


def check_names(overrides: list[Override], places: SearchPath) -> list[Mistake]:
    """Return a mistake for every unknown field and every unknown option of a group."""
    return [*check_fields(overrides), *check_options(overrides, places)]


def check_fields(overrides: list[Override]) -> list[Mistake]:
    """Return a mistake for every unknown field."""
    unknown = [override for override in overrides if not override.is_group and not _is_field(override.key)]
    return [
        Mistake(
            what=f"{each.key} is not a field of the job",
            where=each.raw,
            works=suggest_field(each.key),
            rule=NAME,
            field=each.key,
        )
        for each in unknown
    ]


def check_options(overrides: list[Override], places: SearchPath) -> list[Mistake]:
    """Return a mistake for every unknown option of a group."""
    groups = [override for override in overrides if override.is_group]
    return [mistake for override in groups for mistake in _unknown_options(override, places)]


def _is_field(key: str) -> bool:
    return key in fields() or key.startswith(_FREE) or any(path.startswith(f"{key}.") for path in fields())


def _unknown_options(override: Override, places: SearchPath) -> list[Mistake]:
    mistakes = []
    for option in _options(override):
        if override.key in WHOLE_JOB_GROUPS and _is_script(option):
            if os.path.isfile(os.path.expanduser(option)):
                what = f"{option} is not a job in YAML"
                mistakes.append(Mistake(what=what, where=override.raw, works=_imported(option)))
            else:
                mistakes.append(Mistake(what=_no_file(option), where=override.raw, field=override.key))
            continue
        if looks_like_file(option):
            if not os.path.isfile(os.path.expanduser(option)):
                what = _no_file(option, f"{option} does not exist")
                mistakes.append(Mistake(what=what, where=override.raw, field=override.key))
            continue
        if override.key in SECTION_GROUPS and override.value is not None and override.value.startswith(("{", "[")):
            mistakes.append(
                Mistake(
                    what=f"{override.key}= takes the name of a file", where=override.raw, works=(f"{override.key}.…=",)
                )
            )
        elif not places.has(override.key, option):
            name, at, version = option.partition("@")  # as `--to` and `--backends` name a version
            versioned = override.key == "backend" and bool(at) and places.has("backend", name)
            near = (name,) if versioned else places.near(override.key, option)
            rest = f": a version is backend.version={version}" if versioned else ""
            what = f"no {override.key} named {option!r}{rest}"
            mistakes.append(Mistake(what=what, where=override.raw, works=near, rule=OPTION, field=override.key))
    return mistakes


def is_one_file(override: Override) -> bool:
    """Return whether a value, as typed, is one file: its path may have a comma or an apostrophe."""
    value = override.value or ""
    return looks_like_file(value) and os.path.isfile(os.path.expanduser(value))


def _options(override: Override) -> list[str]:
    if is_one_file(override):
        return [override.value or ""]
    value = (override.value or "").strip()
    inner = value.removeprefix("choice(").removesuffix(")") if value.startswith("choice(") else value
    return [part.strip().strip("'\"") for part in inner.split(",")] if inner else [""]


def merged_at(group: str) -> int:
    """Return the position of a group's file in the merge order: sections, recipe, job, strategy."""
    return WHOLE_JOB_GROUPS.index(group) + 1 if group in WHOLE_JOB_GROUPS else 0


def looks_like_file(option: str) -> bool:
    """Return whether a group's option is a path to a YAML file instead of a name."""
    return looks_like_yaml(option) or "/" in option


def looks_like_yaml(name: str) -> bool:
    """Return whether a name is that of a YAML file."""
    return name.endswith((".yaml", ".yml"))


def _is_script(option: str) -> bool:
    """Return whether an option is a file that only `launch import` reads; JSON with a folder counts as YAML."""
    return option.endswith((".sh", ".bash")) or (option.endswith(".json") and "/" not in option)


def for_hydra(overrides: list[Override], *, multirun: bool = False) -> tuple[list[str], list[FileOption]]:
    """Return the overrides in Hydra's grammar, and the files that must be mounted under aliases.

    Fields are forced (`++`): the schema defines which exist, not the YAML files. Text fields are quoted, so that
    `data.split=99,1,0` and `backend.version=3.10` are literal. A strategy is merged over a recipe regardless of its
    position on the command line.
    """
    words: list[str] = []
    files: list[FileOption] = []
    for override in sorted(overrides, key=lambda each: merged_at(each.key)):
        if override.sign == "~":
            words.append(override.raw)
        elif override.is_group:
            words.append(_group_word(override, files))
        else:
            value = _quoted(override.key, override.value or "", multirun=multirun)
            words.append(f"++{override.key}={value}")
    return words, files


def _group_word(override: Override, files: list[FileOption]) -> str:
    sign = "+" if override.key in WHOLE_JOB_GROUPS else ""
    option = override.value or ""
    if not is_one_file(override):
        option = option.strip("'\"")
    if looks_like_file(option):
        alias = f"file{len(files)}_{re.sub(r'[^A-Za-z0-9_]', '_', Path(option).stem)}"
        files.append(FileOption(group=override.key, alias=alias, path=Path(option).expanduser().resolve()))
        return f"{sign}{override.key}={alias}"
    return f"{sign}{override.key}={override.value}"


def _quoted(key: str, value: str, *, multirun: bool) -> str:
    kind = kind_of(key)
    as_typed = value in ("", "null") or value[:1] in "'\"[{" or "${" in value or (multirun and "," in value)
    if as_typed or kind is None:
        return value if value or kind is not str else "''"
    if kind is str:
        return quote(value)
    if kind is tuple and "," in value:
        return "[" + ",".join(quote(part) if not part.strip().isdigit() else part for part in value.split(",")) + "]"
    return value


def is_text(key: str) -> bool:
    """Return whether a field holds text, which is taken as typed."""
    return kind_of(key) is str


def quote(text: str) -> str:
    """Return a text as a quoted value in Hydra's grammar."""
    escaped = re.sub(r"(\\*)'", lambda match: match.group(1) * 2 + "\\'", text)
    tail = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * tail}'"


def kind_of(key: str) -> Any:
    """Return str, tuple, or None for every other kind of field."""
    if key.startswith("backend.env."):
        return str
    info = fields().get(key)
    if info is None:
        return None
    parts = typing.get_args(info.type) if isinstance(info.type, types.UnionType) else (info.type,)
    if str in parts:
        return str
    return tuple if any(typing.get_origin(part) is tuple for part in parts) else None

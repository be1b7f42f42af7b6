"""Compose a job: Hydra merges files and overrides, then the tree is typed and the model's config.json is read."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.budgets import check_digits
from launcher.compose.errors import BOUND, NAME, VALUE, ComposeError, Mistake, first_line
from launcher.compose.merge import chosen_sections, merged
from launcher.compose.model import ModelFiles
from launcher.compose.nearby import with_nearby
from launcher.compose.overrides import Override, check_names, for_hydra, looks_like_file, merged_at, parse
from launcher.compose.presets import Preset, preset_named
from launcher.compose.resolve import resolve
from launcher.compose.search_path import SECTION_GROUPS, WHOLE_JOB_GROUPS, SearchPath, search_path
from launcher.compose.suggestions import mistakes_of_word, verified
from launcher.compose.user_files import check_files
from launcher.compose.yaml_lines import key_lines, shown
from launcher.job import Job, Origin, Problem, build
from launcher.job.migrations import JOB_FILES, KEY, current_path
from launcher.job.secret import without_secrets

# Prefixes of messages in which Hydra's parser names its grammar rules instead of the user's mistake.
_GRAMMAR = ("LexerNoViableAlt", "no viable alternative", "mismatched input", "extraneous input")
# Hydra's messages for several values where one is expected; they name the group or field as passed to Hydra.
_SWEEP = re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '\+*(?P<key>[^=']+)=")
_TWICE = re.compile(r"Multiple values for (?P<key>[\w/]+)\.")


def compose(words: Sequence[str], config_dirs: Sequence[str] = (), *, here: bool = True) -> Job:
    """Compose one job from overrides in Hydra's grammar.

    Args:
        words: overrides such as `+recipe=qwen3_moe`, `backend=NAME`, `parallel.tp=2`.
        config_dirs: user folders with groups or recipes, searched before the built-in ones.
        here: paths are of this machine; False: a model.path that does not exist here is one where the job runs.

    Raises:
        ComposeError: the overrides or files do not describe a job; lists every mistake.
    """
    try:
        return _compose(words, config_dirs, here=here)
    except ComposeError as error:
        mistakes = verified(error.mistakes, words, lambda others: _compose(others, config_dirs, here=here))
        mistakes = with_nearby(mistakes, config_dirs, lambda folders: _compose(words, folders, here=here))
        raise ComposeError(mistakes, words) from None


def composes_with(word: str, others: Sequence[str]) -> bool:
    """Return whether an override composes together with others, ignoring mistakes in the others."""
    return not mistakes_of_word(word, others, lambda words: _compose(words, ()))


def _compose(words: Sequence[str], config_dirs: Sequence[str], *, here: bool = True) -> Job:
    places = search_path(config_dirs)
    overrides, named = _parsed(words, places)
    check_files(overrides, places)
    tree, files = _merged(overrides, places)
    origins = _origins(files, overrides)
    job, problems = build(tree, origins)
    if problems:
        raise ComposeError([_mistake(problem, origins) for problem in problems])
    model = ModelFiles(
        preset=next((path for group, path in files if group == "model"), None),
        chosen="model" in chosen_sections(overrides),
        whole=tuple(path for group, path in files if group in WHOLE_JOB_GROUPS),
        places=places,
        named=named,
        here=here,
    )
    return resolve(job, model, _default_name(overrides))


def _parsed(words: Sequence[str], places: SearchPath) -> tuple[list[Override], Preset | None]:
    """Return the overrides, and the model that `model=` names by its name on a hub."""
    overrides, mistakes = parse(list(words))
    named = None
    for at, override in enumerate(overrides):
        if not (override.value or "").startswith(("'", '"')):
            check_digits(override.value or "", override.key)
        found = _named_on_a_hub(override, places)
        if found is not None:
            named = found
            overrides[at] = dataclasses.replace(override, value=found.name)
    mistakes += check_names(overrides, places)
    if mistakes:
        raise ComposeError(mistakes)
    return overrides, named


def _named_on_a_hub(override: Override, places: SearchPath) -> Preset | None:
    """Return the preset of `model=OWNER/NAME` or `model=NAME`, unless that is a file or an option."""
    option = (override.value or "").strip("'\"")
    if override.key != "model" or not option or places.has("model", option):
        return None
    if os.path.exists(os.path.expanduser(option)):
        return None
    return preset_named(option)


def _merged(overrides: list[Override], places: SearchPath) -> tuple[Mapping[str, Any], Sequence[tuple[str, Path]]]:
    """Merge files and overrides; what Hydra refuses is a mistake in the user's terms."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return merged(overrides, places)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ComposeError([_hydra_mistake(error, overrides)]) from None
    except (RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ComposeError([_unread(error, overrides)]) from None


def _origins(files: Sequence[tuple[str, Path]], overrides: list[Override]) -> dict[str, Origin]:
    chosen = tuple(f"{section}." for section in chosen_sections(overrides))
    origins: dict[str, Origin] = {}
    # Whole jobs are merged after sections, regardless of the order of the defaults list.
    for group, path in sorted(files, key=lambda item: merged_at(item[0])):
        prefix = f"{group}." if group in SECTION_GROUPS else ""
        file = shown(path)
        for key, line in key_lines(path).items():
            if (group == "job" and f"{key}.".startswith(chosen)) or key == KEY:
                continue
            name = f"{prefix}{key}" if prefix else current_path(key, JOB_FILES)
            origins[name] = Origin(kind="recipe", where=f"{file}:{line}")
    for override in overrides:
        if not override.is_group:
            origins[override.key] = Origin(kind="override", where=override.raw)
    return origins


def _default_name(overrides: list[Override]) -> str | None:
    chosen = [override.value for override in overrides if override.key in ("recipe", "job") and override.value]
    return Path(chosen[-1].strip("'\"")).stem if chosen else None


def _mistake(problem: Problem, origins: Mapping[str, Origin]) -> Mistake:
    origin = origins.get(problem.path)
    return Mistake(
        what=f"{problem.path} {problem.message}",
        where=origin.where if origin else "",
        works=problem.works,
        rule={"unknown": NAME, "section": NAME, "bound": BOUND}.get(problem.kind, VALUE),
        field=problem.path,
    )


def _unread(error: Exception, overrides: list[Override]) -> Mistake:
    """Return the mistake for YAML that PyYAML or OmegaConf cannot read: a circular alias, a tag unfit for its value."""
    circular = isinstance(error, RecursionError)
    what = "an alias refers to the value that contains it" if circular else first_line(error)
    where = next((each.value for each in overrides if each.value and looks_like_file(each.value)), "")
    works = () if circular else ("values without tags (!!…)",)
    return Mistake(what=f"a file cannot be read as YAML: {what}", where=where, works=works)


def _several(text: str, overrides: list[Override]) -> Mistake | None:
    """Reword the message in the user's terms: several values where one is expected; None for other messages."""
    twice = _TWICE.match(text)
    if twice is not None:
        key = twice["key"]
        given = tuple(override.raw for override in overrides if override.key == key)
        return Mistake(what=f"{key} is given {len(given)} times; a job takes one", where=" ".join(given), works=given)
    sweep = _SWEEP.match(text)
    guilty = [override for override in overrides if sweep is not None and override.key == sweep["key"]]
    if not guilty:
        return None
    key, value = guilty[-1].key, guilty[-1].value or ""
    works = ["-m, one job for each value (check, dry-run, estimate, run)"]
    if key.startswith("backend.args.") and "(" not in value:
        works.append(f"{key}=[{value}], a list")
    elif not value.startswith(("choice(", "range(", "glob(", "interval(")):
        first = value.split(",")[0].strip()
        works.append(f"{guilty[-1].sign}{key}={first}")
    typed = without_secrets([guilty[-1].raw])[0]
    works = works if typed == guilty[-1].raw else works[:1]
    return Mistake(what=f"{typed} expands to several values; a job takes one", works=tuple(works))


def _ungrammatical(overrides: list[Override]) -> Iterator[str]:
    """Yield the overrides that Hydra's parser rejects on their own."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for override in overrides:
        try:
            OverridesParser.create().parse_override(for_hydra([override])[0][0])
        except HydraException:
            yield override.raw


def _quoted(word: str) -> Iterator[str]:
    """Yield an override with the elements of its list, or its value, in quotes, for a shell, if it is read."""
    name, _, value = word.partition("=")
    if not value or set(value.removeprefix("[").removesuffix("]")) & set("'\"\\[]{}()$`!"):
        return
    if value.startswith("[") and value.endswith("]"):
        value = f"[{','.join(repr(part.strip()) for part in value[1:-1].split(','))}]"
    else:
        value = repr(value)
    mended = f"{name}={value}"
    if not list(_ungrammatical(parse([mended])[0])):
        yield f'"{mended}"'


def _hydra_mistake(error: Exception, overrides: list[Override]) -> Mistake:
    from yaml import MarkedYAMLError

    text = first_line(error)
    several = _several(text, overrides)
    if several is not None:
        return several
    if any(sign in text for sign in _GRAMMAR):
        guilty = [each.raw for each in overrides if f"{each.key}=" in str(error)] or list(_ungrammatical(overrides))
        works = tuple(_quoted(guilty[0])) if guilty else ()
        works = works or ("key='quoted value'", "key=[a,b]")
        return Mistake(what="a value is not in Hydra's grammar", where=guilty[0] if guilty else "", works=works)
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        file = next((o.value for o in overrides if o.value and looks_like_file(o.value)), error.problem_mark.name)
        return Mistake(what=f"not YAML: {error.problem}", where=f"{file}:{error.problem_mark.line + 1}")
    where = next((override.raw for override in overrides if override.raw in str(error)), "")
    text = text.partition(" raised while resolving interpolation: ")[2] or text
    key = getattr(error, "full_key", None)
    return Mistake(what=f"{key}: {text}" if key else text, where=where)

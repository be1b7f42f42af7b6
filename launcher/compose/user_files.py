"""Checks user YAML files before they are read: text, within budget, a mapping of fields."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from launcher.budgets import check_yaml, read_limited
from launcher.compose.errors import ComposeError, Mistake
from launcher.compose.overrides import Override, looks_like_file
from launcher.compose.search_path import SearchPath
from launcher.compose.yaml_lines import shown
from launcher.job.migrations import JOB_FILES, KEY, WrongSchema, check_schema
from launcher.job.shipped import shipped

_MAPPING = ("section: {field: value}",)


def check_files(overrides: Iterable[Override], places: SearchPath) -> None:
    """Check every user file that the overrides name.

    Raises:
        ComposeError: a file cannot be part of a job.
        BeyondBudget: a file is larger, deeper or has more values than any job.
    """
    for override in overrides:
        if override.is_group and override.value:
            option = override.value.strip("'\"")
            path = Path(option).expanduser() if looks_like_file(option) else places.find(override.key, option)
            if path is not None and not _is_shipped(path):
                check_file(path)


def check_file(path: Path) -> None:
    """Check one file; raises the same errors as `check_files`."""
    import yaml

    where = shown(path.absolute()) if path.is_absolute() else str(path)
    try:
        content = read_limited(path, "yaml bytes", where)
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise _mistake("is not text but binary", where)
        check_yaml(text, where)
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        _check_circular(root, where, set())
        if isinstance(root, yaml.MappingNode):
            yaml.SafeLoader("").flatten_mapping(root)
    except UnicodeDecodeError as error:
        raise _mistake(f"is not UTF-8 text (byte {error.start + 1})", where) from None
    except UnicodeEncodeError:
        raise _mistake("is not UTF-8 text", where) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise _mistake(f"not YAML: {error.problem}", f"{where}:{mark.line + 1}" if mark else where) from None
    except yaml.YAMLError as error:
        raise _mistake(f"not YAML: {' '.join(str(error).split())}", where) from None
    if isinstance(root, yaml.MappingNode):
        _check_keys(root, where)
        return
    if root is None or _is_null(root):
        return
    holds = "a list" if isinstance(root, yaml.SequenceNode) else repr(str(root.value)[:40])
    mistake = Mistake(what=f"{where} holds {holds}; expected a mapping of fields", works=_MAPPING)
    raise ComposeError([mistake])


def _check_circular(node: Any, where: str, above: set[int], seen: set[int] | None = None) -> None:
    """Reject an alias of a collection that contains it, which is within every budget but infinite."""
    seen = set() if seen is None else seen
    if id(node) in above:
        message = "a file cannot be read as YAML: an alias refers to the value that contains it"
        raise ComposeError([Mistake(what=message, where=f"{where}:{node.start_mark.line + 1}")])
    if id(node) in seen or not isinstance(getattr(node, "value", None), list):
        return
    seen.add(id(node))
    for child in node.value:
        for each in child if isinstance(child, tuple) else (child,):
            _check_circular(each, where, above | {id(node)}, seen)


def _check_keys(root: Any, where: str) -> None:
    """Reject the section `hydra`, which configures Hydra, not the job, and files of a newer version."""
    import yaml

    for key, value in root.value:
        place = f"{where}:{key.start_mark.line + 1}"
        if key.value == "hydra":
            raise _mistake("sets hydra, which is not a section of a job", place)
        if key.value == KEY:
            written = yaml.safe_load(value.value) if isinstance(value, yaml.ScalarNode) else value.tag
            try:
                check_schema(written, JOB_FILES, place)
            except WrongSchema as error:
                raise ComposeError([Mistake(what=str(error), where=place)]) from None


def _is_null(root: Any) -> bool:
    return str(root.tag) == "tag:yaml.org,2002:null"


def _is_shipped(path: Path) -> bool:
    return path.is_relative_to(shipped("conf")) or path.is_relative_to(shipped("recipes"))


def _mistake(what: str, where: str) -> ComposeError:
    return ComposeError([Mistake(what=what if what.startswith("not YAML") else f"{where} {what}", where=where)])

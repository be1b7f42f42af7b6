"""Values of a job as an override file that `+strategy=FILE` takes."""

from collections.abc import Mapping
from pathlib import Path

from launcher.job import Value


def strategy_text(values: Mapping[str, Value], comment: str) -> str:
    """Return canonical values as YAML, sections nested, under a comment that says where they came from."""
    import yaml

    tree: dict[str, object] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            inner = node.setdefault(section, {})
            assert isinstance(inner, dict)
            node = inner
        node[name] = list(value) if isinstance(value, tuple) else value
    body = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True) if tree else ""
    return f"# @package _global_\n# {comment}\n{body}"


def write_strategy(path: Path, values: Mapping[str, Value], comment: str) -> None:
    """Write an override file.

    Raises:
        OSError: the file cannot be written.
    """
    write_text(path, strategy_text(values, comment))


def write_text(path: Path, text: str) -> None:
    """Write a file under another name first, so that it is whole or not there; a device or pipe is written at once.

    Raises:
        OSError: the file cannot be written.
    """
    at_once = path.exists() and not path.is_file()
    beside = path if at_once else path.with_name(f".{path.name}.partial")
    beside.write_text(text, encoding="utf-8")
    if not at_once:
        beside.replace(path)

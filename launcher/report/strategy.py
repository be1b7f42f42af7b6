"""Values of a job as an override file that `+strategy=FILE` takes."""

from collections.abc import Mapping

from launcher.job import Value
from launcher.job.file_text import job_file_text
from launcher.syntax import PACKAGE


def strategy_text(values: Mapping[str, Value], comment: str) -> str:
    """Return canonical values as YAML, sections nested, under a comment that names their source."""
    tree: dict[str, object] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            inner = node.setdefault(section, {})
            assert isinstance(inner, dict)
            node = inner
        node[name] = list(value) if isinstance(value, tuple) else value
    return f"{PACKAGE}\n# {comment}\n{job_file_text(tree)}"

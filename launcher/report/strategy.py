"""Values of a job as an override file that `+strategy=FILE` takes."""

from collections.abc import Mapping

from launcher.job import Value
from launcher.job.migrations import JOB_FILES, versioned


def strategy_text(values: Mapping[str, Value], comment: str) -> str:
    """Return canonical values as YAML, sections nested, under a comment that names their source."""
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
    body = yaml.safe_dump(versioned(tree, JOB_FILES), sort_keys=False, allow_unicode=True)
    return f"# @package _global_\n# {comment}\n{body}"

"""Values of a job as an override file that `+strategy=FILE` takes."""

from collections.abc import Mapping

from launcher.job import Job, Value, fields, value_at
from launcher.job.file_text import job_file_text
from launcher.plan.shell import quote
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


def written_text(file: str, values: Mapping[str, Value], job: Job) -> str:
    """Return how to use a written file of values: with the job's overrides, but for those that it replaces.

    An override on the command line counts more than a file.
    """
    typed = {path: value for path, value in values.items() if job.origin(path).kind == "override"}
    replaced = [job.origin(path).where for path, value in typed.items() if _replaces(path, value, job)]
    instead = f" instead of {' '.join(map(quote, replaced))}" if replaced else ""
    return f"written: {file} (add {quote(f'+strategy={file}')}{instead})"


def _replaces(path: str, value: Value, job: Job) -> bool:
    """Return whether a value is not the job's; one of `backend.args` or `backend.env` is written where it changes."""
    return path not in fields() or value_at(job, path) != value

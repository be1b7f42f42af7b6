"""The canonical job: a typed, frozen tree that is independent of any backend."""

from launcher.job.build import Problem, build, convert, suggest_field
from launcher.job.derive import derive, output_dir, with_values
from launcher.job.schema import (
    FieldInfo,
    Job,
    Origin,
    Scalar,
    Value,
    as_tree,
    field_at,
    field_paths,
    fields,
    override_text,
    value_at,
)

__all__ = [
    "FieldInfo",
    "Job",
    "Origin",
    "Problem",
    "Scalar",
    "Value",
    "as_tree",
    "build",
    "convert",
    "derive",
    "field_at",
    "field_paths",
    "fields",
    "output_dir",
    "override_text",
    "suggest_field",
    "value_at",
    "with_values",
]

"""Declares canonical fields: one call sets the default and all metadata for docs, completion and checks."""

import dataclasses
from typing import Any

from launcher.records import record

_KEY = "launch"


@record()
class Meta:
    """Metadata of a canonical field besides its type and default.

    Attributes:
        doc: one-line meaning.
        unit: unit of a number ("layers", "bytes", "iterations"), empty where it has none.
        source: where the meaning comes from (upstream class and attribute, paper, or "launch" for our own).
        choices: the values that are valid on at least one backend; empty: anything of the type.
        minimum: smallest allowed number, inclusive; None: no bound.
        affects_training: the value changes what is learned, so its canonical default is written out to every backend.
    """

    doc: str
    unit: str = ""
    source: str = "launch"
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    affects_training: bool = False


def option(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    source: str = "launch",
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    affects_training: bool = False,
) -> Any:
    """Declare a canonical field (a `dataclasses.field` with its `Meta`)."""
    meta = Meta(doc=doc, unit=unit, source=source, choices=choices, minimum=minimum, affects_training=affects_training)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata={_KEY: meta})
    return dataclasses.field(default=default, metadata={_KEY: meta})


def meta_of(field: "dataclasses.Field[Any]") -> Meta:
    """Return the `Meta` that `option` attached to a dataclass field."""
    meta = field.metadata[_KEY]
    assert isinstance(meta, Meta)
    return meta

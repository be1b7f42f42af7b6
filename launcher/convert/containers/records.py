"""Records of containers: tensors stored or to be stored, and unpickled Python objects that are not instantiated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from launcher.records import dataclass, record


@record()
class Slot:
    """One stored tensor, row-major and contiguous.

    `dtype` is safetensors' name (BF16, F32, F8_E4M3 …); `offset` is in bytes from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    path: Path
    offset: int


@record()
class TensorSpec:
    """A tensor to allocate: its name, shape and safetensors' name of its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dtype:
    """A torch.dtype stored as a value (such as args.params_dtype), by safetensors' name."""

    name: str


@dataclass(slots=True, kw_only=True, eq=False)
class Inert:
    """A pickled object of a known class, read but not instantiated: `name` is "module.Class".

    `made` is how it was pickled: "new" (a class with arguments of __new__, then its state), "call" (a class or
    function called with arguments: enums, paths), "reference" (the class or function itself).
    """

    name: str
    made: Literal["new", "call", "reference"] = "new"
    arguments: tuple[Any, ...] = ()
    state: Any = field(default=None)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Return the attributes by name; empty if the state is not a mapping of attributes."""
        return self.state if isinstance(self.state, dict) else {}


def namespace(**values: Any) -> Inert:
    """Describe an argparse.Namespace with these attributes, as Megatron stores its arguments."""
    return Inert(name="argparse.Namespace", state=values)

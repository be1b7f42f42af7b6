"""Records which values of a job and of native arguments a function reads."""

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

from launcher.job import Job
from launcher.mapping.native import NativeArgs

EVERY_FLAG = "--*"
_T = TypeVar("_T")


class _Current(threading.local):
    """Set in which reads are recorded, one for each thread."""

    def __init__(self) -> None:
        self.found: set[str] = set()


_current = _Current()


@contextmanager
def reading() -> Iterator[set[str]]:
    """Collect what is read inside the context: canonical paths, and `--flag` for native arguments."""
    before, _current.found = _current.found, set()
    try:
        yield _current.found
    finally:
        _current.found = before


def flag_token(flag: str) -> str:
    """Return the token that records a native argument; it is never a canonical path."""
    return f"--{flag}"


class TrackedMapping(Mapping[str, _T], Generic[_T]):
    """A mapping by native argument that records which names are looked up; iteration records all."""

    def __init__(self, values: Mapping[str, _T]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> _T:
        _current.found.add(flag_token(name))
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        _current.found.add(flag_token(str(name)))
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        _current.found.add(EVERY_FLAG)
        return iter(self._values)

    def __len__(self) -> int:
        _current.found.add(EVERY_FLAG)
        return len(self._values)


def tracked(job: Job) -> Job:
    """Return an equal job that records which leaves are read."""
    found = _tracked(job, "")
    assert isinstance(found, Job)
    return found


def tracked_native(native: NativeArgs) -> NativeArgs:
    """Return equal arguments that, whichever of them is read, record that all were read."""
    copied: NativeArgs = object.__new__(_TrackedNative)
    for field in dataclasses.fields(native):
        object.__setattr__(copied, field.name, getattr(native, field.name))
    return copied


class _TrackedNative(NativeArgs):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name == "args":
            _current.found.add(EVERY_FLAG)
        return object.__getattribute__(self, name)


def _tracked(node: Any, prefix: str) -> Any:
    cls: Any = type(node)
    copied: Any = object.__new__(_tracked_class(cls, prefix))
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = _tracked(value, f"{prefix}{field.name}.")
        object.__setattr__(copied, field.name, value)
    return copied


@cache
def _tracked_class(cls: Any, prefix: str) -> type:
    """Return a subclass whose leaves record their path when they are read; its properties read leaves as well."""
    sections = {field.name for field in dataclasses.fields(cls) if dataclasses.is_dataclass(field.type)}
    tokens = {
        field.name: prefix + field.name
        for field in dataclasses.fields(cls)
        if field.name not in sections and field.name != "origins"
    }

    def __getattribute__(self: Any, name: str) -> Any:
        if name in tokens:
            _current.found.add(tokens[name])
        return object.__getattribute__(self, name)

    return type(cls.__name__, (cls,), {"__slots__": (), "__getattribute__": __getattribute__})


def changed_leaves(one: Any, two: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the leaves that differ; sections that are the same object are skipped."""
    cls: Any = type(one)
    for name, is_section in _parts(cls):
        first, second = getattr(one, name), getattr(two, name)
        if first is second:
            continue
        if is_section:
            yield from changed_leaves(first, second, f"{prefix}{name}.")
        elif type(first) is not type(second) or first != second:
            yield prefix + name


@cache
def _parts(cls: Any) -> tuple[tuple[str, bool], ...]:
    return tuple(
        (field.name, dataclasses.is_dataclass(field.type))
        for field in dataclasses.fields(cls)
        if field.name != "origins"
    )

"""The backend: name, version, arguments and environment passed through."""

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.job.option import option
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The training stack that runs the job."""

    name: str | None = option(None, "Backend.")
    version: str | None = option(None, "Version whose arguments are written; none: the backend's default.")
    args: Mapping[str, Any] = option({}, "Native arguments passed through as they are, checked against the catalogue.")
    env: Mapping[str, str] = option({}, "Environment variables for every node.")

    @property
    def passed(self) -> "Passed":
        """The values of `args` by the backend's names of its arguments."""
        return Passed(self.args)


class Passed(Mapping[str, Any]):
    """Passed-through arguments by name, however it is spelled: `a-b` is `a_b`, and `{a: {b: 1}}` has `a` and `a.b`."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._values = dict(_leaves("", args)) if args else {}

    def __getitem__(self, name: str) -> Any:
        return self._values[name.replace("-", "_")]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _leaves(prefix: str, args: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in args.items():
        path = prefix + str(name).replace("-", "_")
        yield path, value
        if isinstance(value, Mapping):
            yield from _leaves(f"{path}.", value)

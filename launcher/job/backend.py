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
    def passthrough(self) -> "PassthroughArgs":
        """The values of `args` by the backend's names of its arguments."""
        return PassthroughArgs(self.args)


class PassthroughArgs(Mapping[str, Any]):
    """Pass-through arguments by name in any spelling: `a-b` is `a_b`, and `{a: {b: 1}}` has `a` and `a.b`."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._values = {spelling(path): value for path, value in leaves(args)}

    def __getitem__(self, name: str) -> Any:
        return self._values[spelling(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def spelling(name: str) -> str:
    """Return the spelling under which names of arguments are compared."""
    return name.replace("-", "_")


def leaves(args: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested arguments: of sections, and of the keys within them."""
    for name, value in args.items():
        yield f"{prefix}{name}", value
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")

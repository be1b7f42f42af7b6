"""A backend's own arguments as data: what is written, its value, and where that value came from."""

from collections.abc import Iterable, Iterator

from launcher.job import Value
from launcher.records import record


@record()
class NativeArg:
    """One native argument.

    Attributes:
        flag: name in the backend's own spelling, without leading dashes; a dotted path for YAML backends.
        value: True for a bare switch, a tuple for an argument of several values.
        field: canonical path that it expresses; None for arguments that only the backend has.
        origin: `override`, `recipe`, `default`, `derived`, `pass-through` or `rule:<id>`.
        where: file:line or override text of the value, empty where there is none.
        key: its key in `backend.args`, as it is spelled there, dotted within a section; empty for others.
    """

    flag: str
    value: Value
    field: str | None = None
    origin: str = "derived"
    where: str = ""
    key: str = ""


@record()
class NativeArgs:
    """The arguments of one command of one backend version, in the order in which they are written."""

    backend: str
    version: str
    args: tuple[NativeArg, ...]

    def __iter__(self) -> Iterator[NativeArg]:
        return iter(self.args)

    def get(self, flag: str, default: Value = None) -> Value:
        """Return the value of `flag`; the last one wins, as in every parser here."""
        for arg in reversed(self.args):
            if arg.flag == flag:
                return arg.value
        return default

    def has(self, flag: str) -> bool:
        """Return whether `flag` is written."""
        return any(arg.flag == flag for arg in self.args)

    def with_args(self, args: Iterable[NativeArg]) -> "NativeArgs":
        """Return the same command with other arguments."""
        return NativeArgs(backend=self.backend, version=self.version, args=tuple(args))


def value_text(value: Value) -> str:
    """Return a native value as text for people; None: unset."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(value_text, value)) if isinstance(value, tuple) else str(value)

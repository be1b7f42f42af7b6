"""Pickle interpreter that executes nothing: it never imports a name or instantiates an object.

The opcodes are those of Lib/pickle.py (protocols 0 to 5) that checkpoints use; others are rejected. A call in the
pickle is looked up in a table of replacement functions, becomes an `Inert` record if its class is known, and is
rejected otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launcher.convert.containers.errors import Damaged, Unsafe
from launcher.convert.containers.records import Inert

Build = Callable[..., Any]
# Module names in protocols 0 to 2 (Lib/_compat_pickle.py).
_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_SCALARS = (str, int, float, bool, bytes, type(None))
_LONGEST_INTEGER = 1024
_BROKEN = (
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    EOFError,
    struct.error,
)


class _Mark:
    """The stack marker pushed by MARK."""


_MARK = _Mark()


class Machine:
    """One pickle: its bytes, stack and memo. `build` maps names to functions; `known` selects inert classes."""

    def __init__(
        self,
        data: bytes,
        path: Path,
        *,
        build: Mapping[str, Build],
        known: Callable[[str], bool],
        persistent: Callable[[Any], Any] | None = None,
    ) -> None:
        self.data = data
        self.path = path
        self.build = build
        self.known = known
        self.persistent = persistent
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return the pickled value; Damaged if it is malformed, Unsafe if it names an unknown class."""
        opcode = -1
        try:
            while True:
                opcode = self.data[self.at]
                self.at += 1
                if opcode == 0x2E:  # STOP
                    (value,) = self.stack
                    return _checked(value)
                OPCODES[opcode](self)
        except _BROKEN as error:
            what = f"opcode 0x{opcode:02x}, byte {self.at}: {type(error).__name__}"
            raise Damaged(self.path, f"its pickle is malformed ({what})") from None

    def take(self, count: int) -> bytes:
        """Consume `count` bytes."""
        piece = self.data[self.at : self.at + count]
        if len(piece) != count:
            raise EOFError
        self.at += count
        return piece

    def line(self) -> str:
        """Consume a line of text."""
        end = self.data.index(b"\n", self.at)
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece.decode("utf-8")

    def number(self, count: int) -> int:
        """Consume an unsigned number of `count` bytes."""
        return int.from_bytes(self.take(count), "little")

    def pop_mark(self) -> list[Any]:
        """Pop everything above the last mark."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise IndexError

    def name(self, module: str, attribute: str) -> Inert:
        """Resolve a name to a reference; Unsafe if it is not allowed."""
        name = f"{_MODULES.get(module, module)}.{attribute}"
        if name not in self.build and not self.known(name):
            raise Unsafe(
                self.path,
                f"its pickle names {name!r}, which a checkpoint does not need; nothing was executed",
                works="a checkpoint from a source that you trust, saved again as tensors and plain values",
            )
        return Inert(name=name, made="reference")

    def call(self, function: Any, arguments: Any) -> Any:
        """Emulate a call: with the replacement function if there is one, else as an inert record."""
        if not isinstance(function, Inert) or function.made != "reference" or type(arguments) is not tuple:
            raise TypeError
        if function.name in self.build:
            return self.build[function.name](*map(_checked, arguments))
        return Inert(name=function.name, made="call", arguments=arguments)

    def new(self, kind: Any, arguments: Any) -> Inert:
        """Emulate the creation of an object."""
        if not isinstance(kind, Inert) or kind.made != "reference" or type(arguments) is not tuple:
            raise TypeError
        return Inert(name=kind.name, made="new", arguments=arguments)


def _checked(value: Any) -> Any:
    if value is _MARK:
        raise TypeError
    return value


def _push(value: Any) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(value)


def _skip(count: int) -> Callable[[Machine], None]:
    def skip(machine: Machine) -> None:
        machine.take(count)

    return skip


def _unsigned(count: int) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(machine.number(count))


def _signed(size: int) -> Callable[[Machine], None]:
    def signed(machine: Machine) -> None:
        count = size if size == 4 else machine.number(1 if size == 1 else 4)
        if count > _LONGEST_INTEGER:
            raise ValueError
        machine.stack.append(int.from_bytes(machine.take(count), "little", signed=True))

    return signed


def _bytes(width: int) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.number(width)))


def _text(width: int) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.number(width)).decode("utf-8", "surrogatepass"))


def _tuple(count: int) -> Callable[[Machine], None]:
    def make(machine: Machine) -> None:
        items = tuple(map(_checked, machine.stack[-count:]))
        if len(items) != count:
            raise IndexError
        machine.stack[-count:] = [items]

    return make


def _of_mark(kind: Callable[[list[Any]], Any]) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(kind(machine.pop_mark()))


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(map(_key, items[::2]), items[1::2], strict=True))


def _key(value: Any) -> Any:
    """Accept only keys that hash without deep recursion: a million nested tuples would exhaust the C stack."""
    plain = type(value) in _SCALARS or isinstance(value, Inert)
    if plain or (type(value) is tuple and all(type(item) in _SCALARS for item in value)):
        return value
    raise TypeError


def _get(width: int) -> Callable[[Machine], None]:
    return lambda machine: machine.stack.append(machine.memo[machine.number(width)])


def _put(width: int) -> Callable[[Machine], None]:
    def put(machine: Machine) -> None:
        machine.memo[machine.number(width)] = _checked(machine.stack[-1])

    return put


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = _checked(machine.stack[-1])


def _mark(machine: Machine) -> None:
    machine.stack.append(_MARK)


def _pop(machine: Machine) -> None:
    machine.stack.pop()


def _integer_line(machine: Machine) -> None:
    text = machine.line()
    machine.stack.append({"00": False, "01": True}[text] if text in ("00", "01") else int(text))


def _long_line(machine: Machine) -> None:
    machine.stack.append(int(machine.line().removesuffix("L")))


def _float_line(machine: Machine) -> None:
    machine.stack.append(float(machine.line()))


def _float(machine: Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


def _unicode_line(machine: Machine) -> None:
    end = machine.data.index(b"\n", machine.at)
    machine.stack.append(machine.data[machine.at : end].decode("raw-unicode-escape"))
    machine.at = end + 1


def _short_string(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(1)).decode("latin-1"))


def _append(machine: Machine) -> None:
    value = _checked(machine.stack.pop())
    _list(machine.stack[-1]).append(value)


def _appends(machine: Machine) -> None:
    items = machine.pop_mark()
    _list(machine.stack[-1]).extend(items)


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError
    return value


def _set_item(machine: Machine) -> None:
    value, key = _checked(machine.stack.pop()), _checked(machine.stack.pop())
    _dict(machine.stack[-1])[_key(key)] = value


def _set_items(machine: Machine) -> None:
    items = machine.pop_mark()
    _dict(machine.stack[-1]).update(_pairs(items))


def _dict(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise TypeError
    return value


def _add_items(machine: Machine) -> None:
    items = machine.pop_mark()
    if type(machine.stack[-1]) is not set:
        raise TypeError
    machine.stack[-1].update(map(_key, items))


def _global_line(machine: Machine) -> None:
    module = machine.line()
    machine.stack.append(machine.name(module, machine.line()))


def _global_stack(machine: Machine) -> None:
    attribute, module = machine.stack.pop(), machine.stack.pop()
    if type(attribute) is not str or type(module) is not str:
        raise TypeError
    machine.stack.append(machine.name(module, attribute))


def _reduce(machine: Machine) -> None:
    arguments, function = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.call(function, arguments))


def _new(machine: Machine) -> None:
    arguments, kind = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.new(kind, arguments))


def _new_with_keywords(machine: Machine) -> None:
    keywords, arguments, kind = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    if _dict(keywords):
        raise ValueError
    machine.stack.append(machine.new(kind, arguments))


def _set_state(machine: Machine) -> None:
    state, target = _checked(machine.stack.pop()), machine.stack[-1]
    if isinstance(target, Inert) and target.made != "reference":
        target.state = state
    elif type(target) is not dict:  # the state of a dict is the extra attributes of an OrderedDict subclass
        raise TypeError


def _persistent(machine: Machine) -> None:
    if machine.persistent is None:
        raise ValueError
    machine.stack.append(machine.persistent(_checked(machine.stack.pop())))


OPCODES: dict[int, Callable[[Machine], None]] = {
    ord("\x80"): _skip(1),  # PROTO
    ord("\x95"): _skip(8),  # FRAME
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): lambda machine: machine.pop_mark().clear(),
    ord("N"): _push(None),
    ord("\x88"): _push(True),
    ord("\x89"): _push(False),
    ord("I"): _integer_line,
    ord("L"): _long_line,
    ord("F"): _float_line,
    ord("K"): _unsigned(1),
    ord("M"): _unsigned(2),
    ord("J"): _signed(4),
    ord("\x8a"): _signed(1),  # LONG1
    ord("\x8b"): _signed(0),  # LONG4
    ord("G"): _float,
    ord("C"): _bytes(1),
    ord("B"): _bytes(4),
    ord("\x8e"): _bytes(8),
    ord("\x96"): _bytes(8),  # BYTEARRAY8
    ord("\x8c"): _text(1),
    ord("X"): _text(4),
    ord("\x8d"): _text(8),
    ord("U"): _short_string,
    ord("V"): _unicode_line,
    ord(")"): lambda machine: machine.stack.append(()),
    ord("\x85"): _tuple(1),
    ord("\x86"): _tuple(2),
    ord("\x87"): _tuple(3),
    ord("t"): _of_mark(tuple),
    ord("]"): lambda machine: machine.stack.append([]),
    ord("l"): _of_mark(list),
    ord("a"): _append,
    ord("e"): _appends,
    ord("}"): lambda machine: machine.stack.append({}),
    ord("d"): _of_mark(_pairs),
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("\x8f"): lambda machine: machine.stack.append(set()),
    ord("\x90"): _add_items,
    ord("\x91"): _of_mark(lambda items: frozenset(map(_key, items))),
    ord("h"): _get(1),
    ord("j"): _get(4),
    ord("g"): lambda machine: machine.stack.append(machine.memo[int(machine.line())]),
    ord("q"): _put(1),
    ord("r"): _put(4),
    ord("p"): lambda machine: machine.memo.__setitem__(int(machine.line()), _checked(machine.stack[-1])),
    ord("\x94"): _memoize,
    ord("c"): _global_line,
    ord("\x93"): _global_stack,
    ord("R"): _reduce,
    ord("\x81"): _new,
    ord("\x92"): _new_with_keywords,
    ord("b"): _set_state,
    ord("Q"): _persistent,
}

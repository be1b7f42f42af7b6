"""Real command lines with one to three things changed: sizes, switches, what is written at all, the number of devices.

Hand-made bases and drawn jobs miss how people's command lines go wrong: one number changed in one that ran.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# What a size is changed to: factors of itself, steps beside it, and absolute values.
_FACTORS = (2, 2, 4, 0.5, 0.5, 0.25, 3, 1.5)
_STEPS = (1, -1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A command line: what was changed in which one, its words without the program, environment and devices."""

    name: str
    argv: tuple[str, ...]
    world_size: int
    env: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a program's arguments are changed.

    Attributes:
        sizes: arguments that are changed by factors and steps, with absolute values that are drawn too.
        values: arguments and the values that they are set to; None takes the argument out.
        switches: bare switches that are put in or taken out.
        joint: changes that belong together, words as they stand.
        keep: arguments that are not taken out: without them nothing is a training command.
    """

    sizes: Mapping[str, Sequence[int]]
    values: Mapping[str, Sequence[str | None]]
    switches: Sequence[str]
    joint: Sequence[str]
    keep: frozenset[str]


def changed(bases: Sequence[Line], dialect: Dialect, count: int, seed: int) -> Iterator[Line]:
    """Yield each base as it is, then `count` changed ones; the same seed draws the same ones."""
    yield from bases
    for number in range(count):
        draw = random.Random(seed * 1_000_003 + number)
        base = draw.choice(bases)
        words, world, said = Words(base.argv), base.world_size, []
        for _ in range(draw.choice((1, 1, 1, 2, 2, 3))):
            world, change = _change(words, world, dialect, draw)
            said.append(change)
        yield Line(
            name=f"{base.name}: {'; '.join(said)}",
            argv=tuple(words),
            world_size=world,
            env=base.env,
            program=base.program,
        )


def _change(words: "Words", world: int, dialect: Dialect, draw: random.Random) -> tuple[int, str]:
    kind = draw.choice(("size", "size", "size", "size", "value", "value", "switch", "joint", "without", "world"))
    if kind == "world":
        new = max(1, int(world * draw.choice((0.5, 2, 3, 0.25))))
        return new, f"{world} devices -> {new}"
    if kind == "size":
        flag = draw.choice([*dialect.sizes, *(name for name in dialect.sizes if name in words)])
        return world, words.set(flag, [str(_size(words.value(flag), dialect.sizes[flag], draw))])
    if kind == "value":
        flag = draw.choice([*dialect.values, *(name for name in dialect.values if name in words)])
        value = draw.choice(dialect.values[flag])
        return world, words.set(flag, None if value is None else value.split())
    if kind == "switch" and dialect.switches:
        flag = draw.choice([*dialect.switches, *(name for name in dialect.switches if name in words)])
        return world, words.set(flag, None if flag in words else [])
    if kind in ("joint", "switch"):
        joint = draw.choice(dialect.joint)
        for flag, values in Words(joint.split()).items():
            words.set(flag, values)
        return world, joint
    known = [flag for flag in words.flags() if flag not in dialect.keep]
    return world, words.set(draw.choice(known), None) if known else "nothing"


def _size(now: str | None, absolute: Sequence[int], draw: random.Random) -> int:
    if now is None or not now.isdigit() or draw.random() < 0.4:
        return draw.choice(absolute)
    if draw.random() < 0.3:
        return max(1, int(now) + draw.choice(_STEPS))
    return max(1, int(int(now) * draw.choice(_FACTORS)))


class Words:
    """The words of a command line by argument: taken out, replaced and added in place."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._parts: list[tuple[str, list[str]]] = []
        for word in argv:
            if _is_flag(word):
                flag, equals, value = word.partition("=")
                self._parts.append((flag, [value] if equals else []))
            elif self._parts:
                self._parts[-1][1].append(word)
            else:
                self._parts.append(("", [word]))

    def __iter__(self) -> Iterator[str]:
        for flag, values in self._parts:
            yield from ([flag] if flag else [])
            yield from values

    def __contains__(self, flag: object) -> bool:
        return any(name == flag for name, _ in self._parts)

    def flags(self) -> list[str]:
        """Return the arguments in their order."""
        return [name for name, _ in self._parts if name]

    def items(self) -> list[tuple[str, list[str]]]:
        """Return arguments with their values."""
        return list(self._parts)

    def value(self, flag: str) -> str | None:
        """Return the last value of an argument; None where it is not written or has none."""
        found = [values for name, values in self._parts if name == flag]
        return found[-1][0] if found and found[-1] else None

    def set(self, flag: str, values: Sequence[str] | None) -> str:
        """Give an argument these values, or take it out; return what was done."""
        before = self.value(flag)
        self._parts = [(name, each) for name, each in self._parts if name != flag]
        if values is None:
            return f"no {flag}"
        self._parts.append((flag, list(values)))
        return f"{flag} {' '.join(values)}".strip() + (f" (was {before})" if before is not None else "")


def _is_flag(word: str) -> bool:
    return word.startswith("--") and len(word) > 2

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
class Mutations:
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


def changed(bases: Sequence[Line], mutations: Mutations, count: int, seed: int) -> Iterator[Line]:
    """Yield each base as it is, then `count` changed ones; the same seed draws the same ones."""
    yield from bases
    for number in range(count):
        draw = random.Random(seed * 1_000_003 + number)
        base = draw.choice(bases)
        args, world, reported = Words(base.argv), base.world_size, []
        for _ in range(draw.choice((1, 1, 1, 2, 2, 3))):
            world, change = _change(args, world, mutations, draw)
            reported.append(change)
        yield Line(
            name=f"{base.name}: {'; '.join(reported)}",
            argv=tuple(args),
            world_size=world,
            env=base.env,
            program=base.program,
        )


def _change(args: "Words", world: int, mutations: Mutations, draw: random.Random) -> tuple[int, str]:
    kind = draw.choice(("size", "size", "size", "size", "value", "value", "switch", "joint", "without", "world"))
    if kind == "world":
        new = max(1, int(world * draw.choice((0.5, 2, 3, 0.25))))
        return new, f"{world} devices -> {new}"
    if kind == "size":
        flag = draw.choice([*mutations.sizes, *(name for name in mutations.sizes if name in args)])
        return world, args.set(flag, [str(_size(args.value(flag), mutations.sizes[flag], draw))])
    if kind == "value":
        flag = draw.choice([*mutations.values, *(name for name in mutations.values if name in args)])
        value = draw.choice(mutations.values[flag])
        return world, args.set(flag, None if value is None else value.split())
    if kind == "switch" and mutations.switches:
        flag = draw.choice([*mutations.switches, *(name for name in mutations.switches if name in args)])
        return world, args.set(flag, None if flag in args else [])
    if kind in ("joint", "switch"):
        joint = draw.choice(mutations.joint)
        for flag, values in Words(joint.split()).items():
            args.set(flag, values)
        return world, joint
    known = [flag for flag in args.flags() if flag not in mutations.keep]
    return world, args.set(draw.choice(known), None) if known else "nothing"


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
        for arg in argv:
            if _is_flag(arg):
                flag, equals, value = arg.partition("=")
                self._parts.append((flag, [value] if equals else []))
            elif self._parts:
                self._parts[-1][1].append(arg)
            else:
                self._parts.append(("", [arg]))

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


def _is_flag(arg: str) -> bool:
    return arg.startswith("--") and len(arg) > 2

"""Dataclasses that take a third of the standard library's time to create, and records made by the thousand.

For each frozen class, `dataclasses` compiles the text of six methods, one after the other: of the 150 to 220 classes of
a command's start, that took a third of its time. Here only `__init__` is compiled, of a class of which several objects
are made; the rest are functions that exist.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")
_FAST: Final = frozenset({"frozen", "slots", "kw_only", "eq"})
_NOT_GIVEN: Final = object()
# Objects of a class before its `__init__` is compiled, which takes as long as setting the fields of ten.
_FIRST: Final = 6


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass with slots, keyword-only, frozen for the type checker alone.

    The `__init__` of a class that is frozen at run time takes four times as long, a fifth of all estimates.

    Args:
        eq: compare and hash by value, not by identity.
    """

    def made(cls: type[T]) -> type[T]:
        # Without one, dataclasses loads tokenize to write the signature into it.
        cls.__doc__ = cls.__doc__ or cls.__name__
        found: Any = dataclasses.dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)(cls)
        found.__init__, found.__repr__ = _Init(found), _repr
        if eq:
            found.__eq__, found.__hash__ = _by_value(found)
        return found  # type: ignore[no-any-return]

    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """`dataclasses.dataclass`: the same, and fast with slots and kw_only, and no other options than frozen and eq.

        An object of a `record` takes half of the time of a frozen one, or less.
        """
        if _FAST.issuperset(options) and options.get("slots") and options.get("kw_only"):
            return partial(_as_usual, frozen=options.get("frozen", False), eq=options.get("eq", True))
        return dataclasses.dataclass(cls, **options)


class _Init:
    """The `__init__` of a class until it is compiled: after a few objects, or once something else reads it."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._left = _FIRST

    def __get__(self, instance: object, owner: type) -> Any:
        if self._left and owner is self._cls and instance is not None:
            self._left -= 1
            return partial(self._set, instance)
        return self._compiled().__get__(instance, owner)

    def _compiled(self) -> Any:
        made: Any = self._cls.__dict__["__init__"]
        if made is self:
            made = self._cls.__init__ = _compiled(self._cls)
        return made

    def _set(self, instance: object, /, *args: object, **given: object) -> None:
        """Set every field of an object. Of wrong arguments, the compiled function says what is wrong."""
        fields = dataclasses.fields(self._cls)
        missing = [field for field in fields if field.name not in given]
        if args or len(given) + len(missing) != len(fields) or any(map(_is_required, missing)):
            self._compiled()(instance, *args, **given)
            return
        for field in fields:
            name = field.name
            if name in given:
                object.__setattr__(instance, name, given[name])
            elif field.default_factory is not dataclasses.MISSING:
                object.__setattr__(instance, name, field.default_factory())
            else:
                object.__setattr__(instance, name, field.default)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _compiled(cls: Any) -> Callable[..., None]:
    """Return a function that sets every field of a class: from its argument, its default or its factory."""
    names: dict[str, Any] = {"_NOT_GIVEN": _NOT_GIVEN, "__name__": cls.__module__, "_set": object.__setattr__}
    setting = "_set(self, '{}', {})" if cls.__setattr__ is _set_once else "self.{} = {}"
    args, lines = [], []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_made_{name}"] = field.default_factory
            value = f"_made_{name}() if {name} is _NOT_GIVEN else {name}"
            args.append(f"{name}=_NOT_GIVEN")
        elif field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            args.append(f"{name}=_default_{name}")
        else:
            args.append(name)
        lines.append(setting.format(name, value))
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    exec(f"def __init__(self{', *, ' if args else ''}{', '.join(args)}):\n {'; '.join(lines) or 'pass'}", names)
    made: Callable[..., None] = names["__init__"]
    made.__annotations__ = {**{field.name: field.type for field in dataclasses.fields(cls)}, "return": None}
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _as_usual(cls: type[T], *, frozen: bool, eq: bool) -> type[T]:
    """Return what the standard library makes of a class with slots and fields by keyword."""
    found: Any = record(eq=eq)(cls)
    if frozen:
        found.__setattr__, found.__delattr__ = _set_once, _never
    elif eq:
        found.__hash__ = None
    return found  # type: ignore[no-any-return]


def _set_once(self: object, name: str, value: object) -> None:
    """Set a field that has no value yet, as `__init__`, copies and unpickling do."""
    if hasattr(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _never(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _by_value(cls: Any) -> tuple[Callable[[Any, Any], bool], Callable[[Any], int]]:
    """Return `__eq__` and `__hash__` of a class."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    # Always a tuple, whose comparison takes an object to be equal to itself: of one name, attrgetter returns its value.
    values: Callable[[Any], Any] = attrgetter(*names, names[0]) if names else lambda _: ()

    def equal(self: Any, other: Any) -> bool:
        return bool(values(self) == values(other)) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return equal, hashed


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"

"""Records behave as the standard library's dataclasses do, however they are created."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from launcher.job import Job
from launcher.job.schema import Origin
from launcher.records import dataclass, record


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A record."""

    x: float
    names: tuple[str, ...] = ()
    note: str = dataclasses.field(default="", compare=False, repr=False)
    more: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Point):
    """A record that inherits the fields of Point."""

    z: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """A record without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A record of one field."""

    value: float


@dataclass(slots=True, kw_only=True)
class Changing:
    """A record whose fields may be set again."""

    value: int
    more: list[int] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """A frozen record that is compared by identity."""

    value: int


@record(eq=False)
class Counted:
    """A record that is compared by identity."""

    value: int


def standard(cls: Any) -> Any:
    """Return the standard library's dataclass with the same fields."""
    fields = [
        (field.name, field.type, dataclasses.field(default=field.default, compare=field.compare, repr=field.repr))
        if field.default_factory is dataclasses.MISSING
        else (field.name, field.type, dataclasses.field(default_factory=field.default_factory, compare=field.compare))
        for field in dataclasses.fields(cls)
    ]
    return dataclasses.make_dataclass(cls.__name__, fields, frozen=True, slots=True, kw_only=True)


NAN = float("nan")
PAIRS = (
    (Place, {"x": 1.0}, {"x": 1.0, "note": "other", "more": {"a": 1}}),
    (Place, {"x": 1.0}, {"x": 2.0}),
    (Place, {"x": 1.0, "z": 4}, {"x": 1.0}),
    (Nothing, {}, {}),
    (Single, {"value": NAN}, {"value": NAN}),
    (Single, {"value": NAN}, {"value": float("nan")}),
)


@pytest.mark.parametrize(("cls", "one", "other"), PAIRS)
def test_a_record_is_compared_hashed_and_shown_as_the_standard_library_does(cls: Any, one: Any, other: Any) -> None:
    usual = standard(cls)
    assert (cls(**one) == cls(**other)) == (usual(**one) == usual(**other))
    assert (hash(cls(**one)) == hash(cls(**other))) == (hash(usual(**one)) == hash(usual(**other)))
    assert repr(cls(**other)) == repr(usual(**other))


def test_a_record_equals_none_of_another_class():
    assert Point(x=1.0) != Place(x=1.0)
    assert Nothing() != ()
    assert Counted(value=1) != Counted(value=1)


def test_a_record_cannot_be_changed():
    for changed in (Place(x=1.0), copy.deepcopy(Place(x=1.0)), pickle.loads(pickle.dumps(Place(x=1.0)))):
        for name in ("x", "note", "z"):
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(changed, name, 2)
            with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(changed, name)
        with pytest.raises(AttributeError):
            changed.other = 1
        assert changed == Place(x=1.0)


def test_a_record_that_is_not_frozen_is_changed_and_compared_and_has_no_hash():
    for _ in range(10):  # the first objects are made by another function
        one = Changing(value=1)
        one.value, one.more = 2, [3]
        assert one == Changing(value=2, more=[3]) != Changing(value=2)
        with pytest.raises(TypeError, match="unhashable type: 'Changing'"):
            hash(one)
        with pytest.raises(AttributeError):
            one.other = 1  # type: ignore[attr-defined]


def test_a_frozen_record_may_be_compared_by_identity():
    for _ in range(10):
        one = Known(value=1)
        assert one != Known(value=1)
        assert len({one, Known(value=1)}) == 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'value'"):
            one.value = 2  # type: ignore[misc]


def test_a_record_takes_its_fields_by_name_and_no_others():
    for args, names in (((1.0,), {}), ((), {}), ((), {"x": 1.0, "y": 2.0})):
        with pytest.raises(TypeError):
            Point(*args, **names)  # type: ignore[arg-type, misc]


def test_the_first_objects_of_a_record_are_made_as_those_that_follow():
    @record()
    class Fresh:
        """A record of which no instance was made."""

        value: int
        note: str = "a"
        more: list[int] = dataclasses.field(default_factory=list)

    made: list[Any] = []
    for number in range(20):
        made.append(Fresh(value=number))
        assert made[-1].more == []
        made[-1].more.append(number)
        with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required keyword-only argument: 'value'"):
            Fresh(note="b")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'notes'"):
            Fresh(value=number, notes="b")  # type: ignore[call-arg]
    assert [(each.value, each.note, each.more) for each in made] == [(number, "a", [number]) for number in range(20)]


def test_a_record_shows_its_fields_in_its_signature():
    class Usual:
        """A class whose signature is known."""

        def __init__(self, *, value: float, note: str = "a") -> None:
            """Set nothing."""

    @record()
    class Unused:
        """A record of which no instance was made."""

        value: float
        note: str = "a"

    assert inspect.signature(Unused) == inspect.signature(Usual)


def test_a_record_runs_what_follows_its_fields():
    @record()
    class Doubled:
        """A record that changes a field."""

        value: int

        def __post_init__(self) -> None:
            self.value *= 2

    assert [Doubled(value=2).value, Doubled(value=3).value] == [4, 6]


def test_a_class_without_fields_of_its_own_takes_those_of_its_record():
    class Further(Single):
        """A class that is no record itself."""

    assert (Further(value=1.0).value, Single(value=2.0).value, Further(value=3.0).value) == (1.0, 2.0, 3.0)


def test_a_record_is_copied_replaced_and_pickled():
    place = Place(x=1.0, names=("a",), note="b", more={"c": 1})
    for same in (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place)), dataclasses.replace(place)):
        assert dataclasses.asdict(same) == dataclasses.asdict(place)
    assert copy.copy(place).more is place.more
    assert dataclasses.replace(place, z=5) == Place(x=1.0, names=("a",), z=5)


def test_a_whole_job_is_pickled_with_its_origins():
    job = Job(seed=1, origins={"seed": Origin(kind="override", where="seed=1")})
    found = pickle.loads(pickle.dumps(job))
    assert found == job
    assert found.origins == job.origins

"""Compares jobs by effective values of each on its own backend, after that backend's defaults."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.job import Job, Value, derive, field_at, field_paths, value_at
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import fields_of_flags
from launcher.mapping.equivalence import canonical, default_of
from launcher.mapping.ignored_fields import MODEL_FILE_FIELDS
from launcher.mapping.native_only import MODEL, TRAINING, NativeOnlyArg
from launcher.mapping.native_only_index import native_only_index_of
from launcher.pipeline import MODEL_PATH, chosen_backend, with_local_model
from launcher.port.port import port_job, sent
from launcher.records import dataclass
from launcher.rules.effects import DEFAULT, NONE, WRITTEN, Effect, Meaning, meaning
from launcher.rules.passthrough import with_passthrough

CANNOT, NO_ARGUMENT, NOT_SET = "cannot be expressed", "no such argument", "not set"
# Model path that the environment sets when the job starts.
_REFERENCE = f"${{{MODEL_PATH}}}"
# Whether a row affects training: its mark, and what the mark means. In the order of the rows.
_MARKS: Mapping[bool | None, tuple[str, str]] = {
    True: ("*", "changes training"),
    None: ("?", "unknown effect"),
    False: ("", ""),
}


# Not slots: cached_property needs an instance dict.
@dataclass(frozen=True, kw_only=True)
class Side:
    """One column: a job on a backend version, under its label for the user.

    Attributes:
        label: short name, unique among the sides.
        about: description in one line.
        job_id: equal for sides that are the same job on several backends.
        refused_by: ids of the rules with which `launch check` refuses it.
    """

    label: str
    about: str
    job_id: str
    meaning: Meaning
    refused_by: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[str, str]:
        """Backend and version."""
        return self.meaning.backend.name, self.meaning.version

    @cached_property
    def catalogue(self) -> Catalogue:
        """Arguments that the backend version accepts."""
        return self.meaning.backend.catalogue(self.meaning.version)

    @cached_property
    def stored(self) -> Mapping[str, Value]:
        """The written arguments by their destination."""
        return self.meaning.effective.written_and_read()

    def native(self, dest: str) -> Value:
        """Return the value that validation leaves."""
        return self._effective.get(dest, default_of(dest, self.catalogue))

    @cached_property
    def _effective(self) -> Mapping[str, Value]:
        return self.meaning.effective.read()

    def dests_of(self, path: str) -> set[str]:
        """Return the destinations of the arguments of a canonical field."""
        return self._dests.get(path, set())

    @cached_property
    def _dests(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for flag, paths in fields_of_flags(*self.kind).items():
            argument = self.catalogue.get(flag)
            for path in paths:
                found.setdefault(path, set()).add(flag if argument is None else argument.dest)
        return found

    @cached_property
    def tied(self) -> frozenset[str]:
        """Destinations with a canonical field."""
        return frozenset().union(*self._dests.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One difference.

    Attributes:
        path: canonical field; `backend.args.NAME` and `backend.env.NAME` for arguments and variables without one.
        affects_training: whether it affects training; None: unknown.
        effects: value by side, in the order of the sides.
        does: effect of an argument without a canonical field, if a backend's table describes it.
    """

    path: str
    affects_training: bool | None
    effects: tuple[Effect, ...]
    does: str = ""

    @property
    def marked(self) -> str:
        """The path, with a mark where the difference affects training or may do so."""
        return f"{self.path} {_MARKS[self.affects_training][0]}".rstrip()


def side_of(job: Job, label: str, *, job_id: str, target: tuple[Backend, str] | None = None) -> Side:
    """Return a job as a column: ported to `target` if that is another backend than its own, None: its own.

    Raises:
        Refused: the job has no backend, or there is no such backend or version.
    """
    # Folders that the launcher derives from a job's name are not differences between jobs.
    job = replace(job, name="job", origins={**job.origins})
    backend, version = target or chosen_backend(job)
    name, own = job.backend.name, job.backend.version
    if name is not None and (backend.name, version) != (name, get_backend(name).version(own)):
        job = sent(job, backend, version).job
    else:
        job = port_job(job, backend, version).job
    job = with_passthrough(derive(job), and_arguments=True)
    described = meaning(with_local_model(job, backend)[0], backend, version)
    return Side(label=label, about=f"{label}: {backend.title} {version}", job_id=job_id, meaning=described)


def side_by_side(sides: Sequence[Side]) -> list[Row]:
    """Return differences between any two sides: those that affect training first, then unknown ones, then the rest."""
    rows = [*_fields(sides), *_natives(sides), *_variables(sides)]
    return sorted(rows, key=lambda row: [*_MARKS].index(row.affects_training))


def legend(rows: Sequence[Row]) -> list[str]:
    """Return what the marks mean that these rows have."""
    found = {row.affects_training for row in rows}
    return [f"{mark} {words}" for effect, (mark, words) in _MARKS.items() if mark and effect in found]


def _fields(sides: Sequence[Side]) -> Iterator[Row]:
    for path in field_paths():
        if path in ("backend.args", "backend.env"):
            continue
        if any(_differ(path, one, other) for one, other in combinations(sides, 2)):
            yield Row(
                path=path,
                affects_training=field_at(path).meta.affects_training,
                effects=tuple(_shown_effect(path, side) for side in sides),
            )


def _shown_effect(path: str, side: Side) -> Effect:
    if path in side.meaning.cannot:
        return Effect(value=None, how=CANNOT)
    effect, value = side.meaning.fields[path], _known_value(path, side)
    return Effect(value=value, how=WRITTEN) if is_empty(effect.value) and value is not None else effect


def _differ(path: str, one: Side, other: Side) -> bool:
    """Return whether a field has a different meaning on two sides.

    On the same backend version the effective values in the parser are compared. On two backends, values are compared
    where both are known. Where a backend writes nothing and its parser has no default, the behaviour is decided
    elsewhere (config.json, the model class): for one job that is no difference, for two jobs it is one if only one of
    them writes something.
    """
    first, second = one.meaning.fields[path], other.meaning.fields[path]
    refused = [path in side.meaning.cannot for side in (one, other)]
    if any(refused):
        return not all(refused)
    if one.kind == other.kind and first.how != NONE and one.dests_of(path):
        changed = any(canonical(one.native(dest)) != canonical(other.native(dest)) for dest in one.dests_of(path))
        return changed and text(first.value) != text(second.value)
    left, right = _known_value(path, one), _known_value(path, other)
    if left is not None and right is not None:
        return text(left) != text(right)
    if one.job_id == other.job_id or NONE in (first.how, second.how) or path.startswith(MODEL_FILE_FIELDS):
        return False
    return any(
        _shown_effect(path, side).how == WRITTEN for side in (one, other) if _known_value(path, side) is not None
    )


def _known_value(path: str, side: Side) -> Value:
    effect = side.meaning.fields[path]
    if effect.how == NONE:
        return None
    applied = value_at(side.meaning.job, path) if is_empty(effect.value) else effect.value
    return None if is_empty(applied) or applied == _REFERENCE else applied


# -- arguments without a canonical field


def _natives(sides: Sequence[Side]) -> Iterator[Row]:
    """Compare by name: all arguments on the same backend version, passed-through ones on others that also have them."""
    for dest in dict.fromkeys(dest for side in sides for dest in _candidates(side, sides)):
        if any(_native_differs(dest, one, other) for one, other in combinations(sides, 2)):
            effects = tuple(_native_effect(dest, side) for side in sides)
            name = _name(dest, sides)
            described, affects_training = _description(name, dest, sides, effects)
            yield Row(
                path=f"backend.args.{name}",
                affects_training=affects_training,
                effects=effects,
                does=described.does if described else "",
            )


def _description(
    name: str, dest: str, sides: Sequence[Side], effects: Sequence[Effect]
) -> tuple[NativeOnlyArg | None, bool | None]:
    """Return the table entry of the first backend with the argument, and whether the difference affects training."""
    having = [pair for pair in zip(sides, effects, strict=True) if pair[1].how != NO_ARGUMENT]
    found = [
        native_only_index_of(side.meaning.backend.name).of(name, _argument(dest, side), side.meaning.job, effect.value)
        for side, effect in having
    ]
    reported = [row for row in found if row is not None]
    if len(reported) < len(having) or not reported:
        return (reported[0] if reported else None), None
    defaults = {repr(canonical(default_of(dest, side.catalogue))) for side, _ in having}
    affects_training = any(
        row.effect in (MODEL, TRAINING)
        and (row.read is None or row.read(side.meaning.job))
        and not _is_usual(effect.value, row, defaults)
        for row, (side, effect) in zip(reported, having, strict=True)
    )
    return reported[0], affects_training


def _argument(dest: str, side: Side) -> Argument | None:
    return side.catalogue.by_dest(dest) or side.catalogue.get(dest)


def _is_usual(value: Value, row: NativeOnlyArg, defaults: set[str]) -> bool:
    """Return whether a value has no effect: a neutral value of the row, or the default if all sides share it."""
    same = repr(canonical(value))
    return (len(defaults) == 1 and same in defaults) or any(canonical(value) == canonical(each) for each in row.neutral)


def _candidates(side: Side, sides: Sequence[Side]) -> Iterator[str]:
    has_same_kind = any(other is not side and other.kind == side.kind for other in sides)
    passthrough = {_dest(flag, side.catalogue) for flag in side.meaning.job.backend.args}
    yield from (dest for dest in side.stored if has_same_kind or dest in passthrough)


def _dest(flag: str, catalogue: Catalogue) -> str:
    argument = catalogue.get(flag) or catalogue.get(flag.replace("_", "-"))
    return flag if argument is None else argument.dest


def _native_differs(dest: str, one: Side, other: Side) -> bool:
    if one.kind != other.kind:
        agree = one.meaning.backend.name == other.meaning.backend.name or (_has(dest, one) and _has(dest, other))
        if not agree or dest in one.tied or dest in other.tied:
            return False
    elif any(_is_reported(dest, one, other)):
        return False
    return bool(canonical(one.native(dest)) != canonical(other.native(dest)))


def _is_reported(dest: str, one: Side, other: Side) -> Iterator[bool]:
    """Yield whether a canonical field of this argument shows the difference already."""
    for path in field_paths():
        if dest in one.dests_of(path):
            yield text(one.meaning.fields[path].value) != text(other.meaning.fields[path].value)


def _has(dest: str, side: Side) -> bool:
    return side.catalogue.by_dest(dest) is not None or side.catalogue.get(dest) is not None


def _native_effect(dest: str, side: Side) -> Effect:
    if not _has(dest, side) and dest not in side.stored:
        return Effect(value=None, how=NO_ARGUMENT)
    return Effect(value=side.native(dest), how=WRITTEN if dest in side.stored else DEFAULT)


def _name(dest: str, sides: Sequence[Side]) -> str:
    found = (side.catalogue.by_dest(dest) for side in sides)
    return next((argument.name for argument in found if argument is not None), dest)


def _variables(sides: Sequence[Side]) -> Iterator[Row]:
    """Compare variables set by the jobs, within a backend only, since they depend on the device type."""
    for name in dict.fromkeys(name for side in sides for name in side.meaning.job.backend.env):
        found = [side.meaning.job.backend.env.get(name) for side in sides]
        pairs = combinations(zip(sides, found, strict=True), 2)
        if any(one.kind[0] == other.kind[0] and left != right for (one, left), (other, right) in pairs):
            effects = tuple(Effect(value=value, how=WRITTEN if value is not None else NOT_SET) for value in found)
            yield Row(path=f"backend.env.{name}", affects_training=None, effects=effects)


def is_empty(value: Value) -> bool:
    """Return whether a value is empty."""
    return value is None or (isinstance(value, (tuple, list, Mapping, str)) and not value)


def text(value: Value) -> str:
    """Return a value as display text; a dash for none."""
    if is_empty(value):
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.10g}"
    return " ".join(map(text, value)) if isinstance(value, (tuple, list)) else str(value)

"""Arguments that a target backend lacks: what each does, why it is dropped, and the nearest substitute."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from launcher.catalogue.catalogue import Argument, plain
from launcher.job import Job, Value, build, fields, override_text, value_at
from launcher.job.derive import with_values
from launcher.job.fault_tolerance import OF_LAUNCHER
from launcher.mapping.backend import Backend
from launcher.mapping.engine import nest, write_row
from launcher.mapping.equivalence import canonical
from launcher.mapping.ignored_fields import MODEL_FILE_FIELDS, model_files
from launcher.mapping.native_only import MODEL, NOTHING, SPEED, TRAINING, USUAL, NativeOnlyArg
from launcher.mapping.native_only_index import native_only_index_of
from launcher.mapping.rows import active_rows
from launcher.records import dataclass

DEFAULT = "it equals the default"
_OF_MODEL_FILES = ("model.path", "model.hub_id")
MODEL_FILES = "model.path=DIR"
# Handled by the launcher on every backend.
_BY_LAUNCHER = ("cluster.", *OF_LAUNCHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedArg:
    """An argument of the source that the target does not have.

    Attributes:
        flag, value: as the source spelled it.
        does: what it does on the source.
        effect: what dropping it changes; one of `launcher.mapping.native_only.EFFECTS`.
        why: why the target does not have it, or why that changes nothing.
        works: nearest substitutes on the target, the best first.
        has: nearest substitutes that the job has already.
        later: nearest substitutes that the target takes, but not with the job's other values.
        without: the consequence where there is none.
        fields: canonical fields, where the mapping refuses the value.
        reported: a finding of the mapping also reports it.
        unknown: the source has no such argument, either: what it does is not known.
    """

    flag: str
    value: Value
    does: str = ""
    effect: str = NOTHING
    why: str
    works: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    without: str = ""
    fields: tuple[str, ...] = ()
    reported: bool = False
    unknown: bool = False

    @property
    def changes_training(self) -> bool:
        """Whether dropping it changes training."""
        return self.effect in (MODEL, TRAINING)

    @property
    def needs_acceptance(self) -> bool:
        """Whether dropping it changes the model or its loss, and there is no substitute."""
        return self.effect == MODEL and not (self.works or self.has or self.later)

    @property
    def instead(self) -> str:
        """The nearest substitute as text, or "none" and the consequence."""
        if self.works:
            return " · ".join(self.works)
        if self.has:
            return f"{' · '.join(self.has)}, which the job has"
        if self.later:
            return f"{' · '.join(self.later)}, where the job's other values allow it"
        # The effect already states that the model changes.
        return "none" if self.without == USUAL[MODEL] else f"none: {self.without}"

    def as_tree(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {
            "flag": self.flag,
            "value": self.value,
            "does": self.does,
            "effect": self.effect,
            "changes_training": self.changes_training,
            "why": self.why,
            "works": list(self.works),
            "has": list(self.has),
            "later": list(self.later),
            "instead": self.instead,
            "fields": list(self.fields),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRoute:
    """Source and target of a port: backends, their versions, and the job.

    Attributes:
        job: the job on the source, its pass-through arguments included.
        command: sub-command of the source's program; some defaults depend on it.
    """

    source: Backend
    source_version: str
    target: Backend
    version: str
    job: Job
    command: str | None = None

    def argument(self, flag: str) -> Argument | None:
        """Return the source's own argument of that name."""
        return self.source.catalogue(self.source_version).get(flag)

    def row(self, flag: str, value: Value) -> NativeOnlyArg | None:
        """Return the row of the source's table for an argument."""
        return native_only_index_of(self.source.name).of(flag, self.argument(flag), self.job, value)

    @property
    def there(self) -> str:
        """The target as text."""
        return f"{self.target.title} {self.version}"


def is_default(route: PortRoute, flag: str, value: Value) -> bool:
    """Return whether an argument has the source's default value."""
    argument = route.argument(flag)
    if argument is None or not argument.has_default:
        return False
    if argument.action in ("store_true", "store_false"):
        return value is False
    return bool(canonical(argument.default_for(route.command)) == canonical(value))


def missing(route: PortRoute, flag: str, value: Value, problem: str | None = None) -> DroppedArg:
    """Return the description of a dropped argument.

    Args:
        problem: why the target's parser or the history of its arguments rejects it.
    """
    reason = problem or f"{route.there} has no such argument"
    row = route.row(flag, value)
    if row is None:
        return _undescribed(route, flag, value, reason)
    dropped = DroppedArg(flag=flag, value=value, does=row.does, why=f"{reason}: {row.why}")
    if is_default(route, flag, value):
        return _without_effect(dropped, DEFAULT)
    if any(_plain(value) == _plain(each) for each in row.neutral):
        return _without_effect(dropped, "this value is the fixed behaviour of other stacks")
    if row.read is not None and not row.read(route.job):
        return _without_effect(dropped, "this job does not read it")
    return _with_substitute(route, dropped, row)


def without_effect(route: PortRoute, flag: str, value: Value, why: str) -> DroppedArg:
    """Return the description of a dropped argument that changes nothing."""
    row = route.row(flag, value)
    does = row.does if row is not None else _doc(_ties(route, flag))
    return DroppedArg(flag=flag, value=value, does=does, why=why, without="no action is needed")


def _plain(value: Value) -> Value:
    """Return a value in normal form, in which equivalent values are equal; text for no value becomes None."""
    return None if value in ("None", "none", "null", "") else canonical(value)


def _without_effect(dropped: DroppedArg, why: str) -> DroppedArg:
    return replace(dropped, effect=NOTHING, why=why, without="no action is needed")


def _with_substitute(route: PortRoute, dropped: DroppedArg, row: NativeOnlyArg) -> DroppedArg:
    works: list[str] = []
    has: list[str] = []
    for template in _templates(route, row):
        override = _filled(route, template).replace("{value}", override_text(dropped.value))
        override = override.replace("{vocabulary}", _vocabulary(route, dropped.value))
        path, _, value = override.partition("=")
        blank = _is_blank(template)
        if "{value}" in template and path in fields() and override_text(value_at(route.job, path)) == value:
            return _without_effect(dropped, f"{override} sets it already")
        parts = override.split(" ")
        if all(expressible(route, part, blank=blank) for part in parts):
            held = [_held(route, part, blank=blank) for part in parts]
            if template == MODEL_FILES and held[0] is not None and route.target.reads_hub:
                return _without_effect(
                    dropped, f"{route.there} reads that from the model's own files ({route.job.model.path})"
                )
            known = " ".join(part for part in held if part is not None)
            (has if None not in held else works).append(known if None not in held else override)
    nearest = tuple(dict.fromkeys(works))[:2]
    return replace(dropped, effect=row.effect, works=nearest, has=tuple(has[:2]), without=row.consequence)


def _templates(route: PortRoute, row: NativeOnlyArg) -> tuple[str, ...]:
    """Return a row's templates; for model fields also the model's files, where the target reads them."""
    describes = any(each.startswith(MODEL_FILE_FIELDS) for each in row.instead)
    add = describes and route.target.reads_hub and MODEL_FILES not in row.instead
    return (MODEL_FILES, *row.instead) if add else row.instead


def _filled(route: PortRoute, template: str) -> str:
    """Return a template with the model's directory or hub name, if the job's tokenizer names it."""
    named = model_files(route.job)
    return named[0] if len(named) == 1 and template == MODEL_FILES else template


def _vocabulary(route: PortRoute, value: Value) -> str:
    """Return the vocabulary size of the source's tokenizer without files: its argument and the tokens that it adds."""
    known = route.source.vocabulary_size
    added = 0 if known is None else known.added.get(route.job.tokenizer.type or "", 0)
    return override_text(value + added if isinstance(value, int) else value)


def _is_blank(template: str) -> bool:
    """Return whether a template's value is a placeholder in capitals for a value of the user; {value} may be one."""
    return template.partition("=")[2].strip("[]").replace("/", "").isupper()


def values_of(overrides: str) -> dict[str, Value] | None:
    """Return the canonical values of overrides; None where one is a placeholder, or not a field."""
    found: dict[str, Value] = {}
    for override in overrides.split(" "):
        path, _, text = override.partition("=")
        if path not in fields() or _is_blank(override):
            return None
        found[path] = _value(path, text)
    return found


def _held(route: PortRoute, override: str, *, blank: bool) -> str | None:
    """Return an override if the job already has it; for a placeholder, any value that the user has set."""
    path, _, value = override.partition("=")
    if path not in fields():
        return None
    own = value_at(route.job, path)
    if blank:
        return None if own == fields()[path].default else f"{path}={override_text(own)}"
    return f"{path}={value}" if own is not None and override_text(own) == value else None


def _undescribed(route: PortRoute, flag: str, value: Value, reason: str) -> DroppedArg:
    """Return the description of an argument without a table row: its field, which cannot take this value."""
    if is_default(route, flag, value):
        return without_effect(route, flag, value, DEFAULT)
    paths = _ties(route, flag)
    affects_training = not paths or any(fields()[path].meta.affects_training for path in paths)
    works = list(_near_values(route, paths[0], value) if paths else _namesakes(route, flag, value))
    if not (paths or works or route.argument(flag)):
        does = f"unknown to {route.source.title} {route.source_version}, too"
        return DroppedArg(
            flag=flag, value=value, does=does, effect=MODEL, why=reason, without=USUAL[MODEL], unknown=True
        )
    return DroppedArg(
        flag=flag,
        value=value,
        does=_doc(paths),
        effect=TRAINING if affects_training else SPEED,
        why=reason,
        works=tuple(works[:2]),
        without="training proceeds without it" if affects_training else "steps may take longer",
        fields=paths,
    )


def _near_values(route: PortRoute, path: str, value: Value) -> Iterator[str]:
    """Yield values of a field that the target takes: the argument's own, else those of a switch or a choice."""
    info = fields()[path]
    switch = ("true", "false") if "bool" in str(info.type) else ()
    for text in dict.fromkeys((override_text(value), *info.meta.choices, *switch)):
        own = value_at(route.job, path)
        if (own is None or override_text(own) != text) and expressible(route, f"{path}={text}"):
            yield f"{path}={text}"


def _namesakes(route: PortRoute, flag: str, value: Value) -> Iterator[str]:
    """Yield an override by the target's argument of the same last name (`trainer.strategy.micro_batch_size`)."""
    from launcher.mapping.engine import fields_of_flags

    if route.argument(flag) is not None or "." not in flag:
        return
    last = plain(flag.rpartition(".")[2])
    ties = fields_of_flags(route.target.name, route.version)
    for argument in route.target.catalogue(route.version).arguments:
        if plain(argument.name.rpartition(".")[2]) == last:
            path = next(iter(ties.get(argument.name, ())), f"backend.args.{argument.name}")
            override = f"{path}={override_text(value)}"
            if expressible(route, override):
                yield override
                return


def _ties(route: PortRoute, flag: str) -> tuple[str, ...]:
    """Return the canonical fields of an argument of the source."""
    from launcher.mapping.engine import fields_of_flags

    ties, argument = fields_of_flags(route.source.name, route.source_version), route.argument(flag)
    return tuple(ties.get(flag) or ties.get(argument.name if argument is not None else "", ()))


def _doc(paths: tuple[str, ...]) -> str:
    return f"sets {paths[0]}" if paths else "has no description"


def expressible(route: PortRoute, override: str, *, blank: bool = False) -> bool:
    """Return whether the target can express an override.

    Args:
        blank: its value is a placeholder that the user fills in.
    """
    path, _, text = override.partition("=")
    if path.startswith("backend.args."):
        return _takes(route, path.removeprefix("backend.args."), text, blank=blank)
    if path not in fields():
        return False
    if path in _OF_MODEL_FILES:
        return route.target.reads_hub
    if path.startswith(_BY_LAUNCHER):
        return True
    if path.startswith(MODEL_FILE_FIELDS) and route.target.reads_hub and route.job.model.pretrained is not False:
        return False  # it follows from the model's files
    table = route.target.table(route.version)
    if path in table.irrelevant:
        return False
    value = None if blank else _value(path, text)
    if value is None and not blank:
        return False
    gap = table.unsupported.get(path)
    if gap is not None:
        return value in gap.neutral
    rows = [row for row in active_rows(table, route.version) if path in row.fields]
    if blank or not rows:
        return bool(rows)
    changed = with_values(route.job, {path: value})
    try:
        found = [write_row(changed, row, route.target, route.version)[1] for row in rows]
    except (TypeError, ValueError, AttributeError, ZeroDivisionError):
        return False
    return all(finding is None or path not in finding.fields for finding in found)


def _takes(route: PortRoute, name: str, text: str, *, blank: bool) -> bool:
    """Return whether the target has an argument of that name that takes a value."""
    import yaml

    argument = spelled(route.target, route.version, name)
    if argument is None or blank:
        return argument is not None
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return False
    return route.target.catalogue(route.version).check(argument.name, value) is None


def spelled(backend: Backend, version: str, name: str) -> Argument | None:
    """Return a backend's argument of that name, with `-` or `_`."""
    catalogue = backend.catalogue(version)
    return catalogue.get(name) or catalogue.get(name.replace("_", "-")) or catalogue.get(name.replace("-", "_"))


def _value(path: str, text: str) -> Value:
    """Return the typed value of an override; None where the field does not take it."""
    import yaml

    try:
        job, problems = build(nest({path: yaml.safe_load(text)}))
    except (yaml.YAMLError, TypeError, ValueError):
        return None
    return None if problems else value_at(job, path)

"""What a fix may change, in the order in which people would: layout, batch, training, model, machines."""

import math
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache

import yaml

from launcher.job import Job, Value, convert, field_at, fields, override_text, value_at
from launcher.job.backend import leaves
from launcher.job.finding import Fix
from launcher.mapping.native_only import MODEL, TRAINING
from launcher.mapping.native_only_index import native_only_index_of

Change = tuple[str, Value]
Changes = tuple[Change, ...]

ARGS = "backend.args."
ENV = "backend.env."
# No fix changes these: what they say is a fact, a choice of the user, or not about training.
_NEVER = ("hardware.", "cluster.master_addr", "rules.", "imported.accept", "rehearse.", "runtime", "optimizer.lr")
_MACHINES = ("cluster.nodes", "cluster.devices_per_node", "cluster.hosts", "backend.", "cluster.executor")
_MODEL = ("model.", "lora.", "task.", "data.")
# Only what a rule proposes: the files, weights and task are the user's.
_IF_PROPOSED = ("data.", "task.", "lora.", "backend.version", "model.pretrained", "cluster.executor")
# A derived field, and those that decide it; who names machines means the data parallel size as well.
_DETERMINING_DP = ("parallel.tp", "parallel.pp", "parallel.cp")
_DETERMINES_DP = ("parallel.dp", "cluster.nodes", "cluster.devices_per_node")
# Memory that a job saves is needed: such a feature is given up last.
_SAVES_MEMORY = ("recompute.", "offload.")
_SPLITS_MEMORY = ("parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep")
# Octaves and steps between two numbers never weigh as much as one more changed field.
_PER_OCTAVE = 0.12
# Fewer ranks that split the memory need more of it in each.
_PER_OCTAVE_LESS = 0.6
_STAGES = ("parallel.first_stage_layers", "parallel.last_stage_layers")
_OTHER_VALUE, _NEW_VALUE, _NO_VALUE = 0.3, 0.35, 0.5
_TYPED, _DISABLED, _PROPOSED = 0.3, 1.2, 0.1


class Kind(IntEnum):
    """What a change alters, in the order in which changes are tried."""

    LAYOUT = 0
    BATCH = 1
    TRAINING = 2
    MODEL = 3
    MACHINES = 4


# A change of each kind costs as much as so many changes of the layout: first whatever the layout can do, then whatever
# is near.
STRICT = {Kind.LAYOUT: 1.0, Kind.BATCH: 5.0, Kind.TRAINING: 6.0, Kind.MODEL: 12.0, Kind.MACHINES: 25.0}
LENIENT = {Kind.LAYOUT: 1.0, Kind.BATCH: 2.0, Kind.TRAINING: 2.5, Kind.MODEL: 4.0, Kind.MACHINES: 8.0}


class Preferences:
    """Orders changes of one job.

    Attributes:
        weights: cost of a change of each kind.
        closed: fields that no fix changes, since the user is asked for them.
    """

    def __init__(self, job: Job, closed: Collection[str] = ()) -> None:
        self.job = job
        self.weights = STRICT
        self.closed = frozenset(closed)
        self._passthrough = _passthrough_paths(job)
        self._kinds: dict[str, Kind] = {}

    def is_open(self, path: str, *, proposed: bool = False) -> bool:
        """Return whether a fix may change the field, pass-through argument or environment variable.

        Args:
            proposed: the rule itself proposes a value.
        """
        if path in self.closed or (path.startswith(_IF_PROPOSED) and not proposed):
            return False
        if path.startswith(ARGS):
            return path in self._passthrough
        if path.startswith(_MODEL) and not proposed:
            # Another size at most, where the user typed one: other parts of an architecture make it another model.
            is_size = path in fields() and field_at(path).type in (int, int | None)
            return is_size and self.job.origin(path).kind == "override"
        if path == "parallel.dp":
            return self.job.origin(path).kind not in ("derived", "default")
        return path.startswith(ENV) or (path in fields() and not path.startswith(_NEVER))

    def open_fields(self, named: tuple[str, ...]) -> Iterator[str]:
        """Yield what may be changed where an error names these fields."""
        determining = _DETERMINING_DP if any(path in _DETERMINES_DP for path in named) else ()
        yield from (path for path in dict.fromkeys((*named, *determining)) if self.is_open(path))

    def kind(self, path: str) -> Kind:
        """Return what a change of the field alters."""
        if path not in self._kinds:
            self._kinds[path] = self._kind(path)
        return self._kinds[path]

    def _kind(self, path: str) -> Kind:
        if path.startswith(_MACHINES) and not path.startswith((ARGS, ENV)):
            return Kind.MACHINES
        if path.startswith(_MODEL):
            return Kind.MODEL
        if not affects_training(path, self.job.backend.name):
            return Kind.LAYOUT
        return Kind.BATCH if path.startswith("batch.") else Kind.TRAINING

    def least(self, path: str) -> float:
        """Return a lower bound of the cost of a change of the field."""
        return self.weights[self.kind(path)]

    def cost(self, changes: Changes, *, proposed: bool = False) -> float:
        """Return the cost of changes: number of fields, weighted by what they alter, then their distance."""
        return sum(self._cost(path, value, proposed) for path, value in changes)

    def _cost(self, path: str, value: Value, proposed: bool) -> float:
        typed = _TYPED if path.startswith(ARGS) or self.job.origin(path).kind == "override" else 0.0
        return self.least(path) + typed + (_PROPOSED if proposed else self._distance(path, value))

    def _distance(self, path: str, value: Value) -> float:
        if path.startswith((ARGS, ENV)):
            return _NO_VALUE
        now = value_at(self.job, path)
        is_feature = now is True or (bool(now) and isinstance(now, str))
        disabled = _DISABLED if is_feature and path.startswith(_SAVES_MEMORY) else 0.0
        if value is None or value == ():
            return _NO_VALUE + disabled
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return _OTHER_VALUE + disabled
        if isinstance(now, bool) or not isinstance(now, (int, float)) or now <= 0 or value <= 0:
            # Of unset numbers the smaller one comes first; a stage that is not set has an even share.
            return _NEW_VALUE + (self._from_even_share(value) if path in _STAGES else 0.001 * min(abs(value), 100))
        step = _PER_OCTAVE_LESS if path in _SPLITS_MEMORY and value < now else _PER_OCTAVE
        return _less_than_one(step * abs(math.log2(value / now)))

    def _from_even_share(self, layers: float) -> float:
        share = (self.job.model.num_hidden_layers or 1) / self.job.parallel.pp
        return _less_than_one(_PER_OCTAVE * abs(math.log2(layers / share))) - 0.1


def _less_than_one(distance: float) -> float:
    return distance / (1 + distance)


def fix_of(changes: Changes, backend: str | None) -> Fix:
    """Return changes as overrides."""
    return Fix(
        overrides=tuple(f"{path}={override_text(value)}" for path, value in changes),
        affects_training=any(affects_training(path, backend) for path, _ in changes),
    )


def affects_training(path: str, backend: str | None) -> bool:
    """Return whether a change of a field, pass-through argument or environment variable changes what is learned."""
    if path.startswith(ARGS):
        row = native_only_index_of(backend).of(path.removeprefix(ARGS)) if backend is not None else None
        return row is None or row.effect in (MODEL, TRAINING)
    return path in fields() and field_at(path).meta.affects_training


@lru_cache(maxsize=4096)
def changes_of(fix: Fix) -> Mapping[str, Value] | None:
    """Return the values that a fix sets, by path; None where it sets anything that is not a value of a job."""
    found: dict[str, Value] = {}
    for override in fix.overrides:
        path, _, text = override.partition("=")
        try:
            if path.startswith(ARGS):
                found[path] = yaml.safe_load(text)
            elif path.startswith(ENV):
                found[path] = text
            elif path in fields():
                found[path] = convert(_plain(text, path), field_at(path).type, field_at(path).meta)
            else:
                return None
        except (ValueError, yaml.YAMLError):
            return None
    return found


def _plain(text: str, path: str) -> Value:
    kind = field_at(path).type
    if kind in (str, str | None) and text != "null":
        # YAML reads 10:00:00 as a number.
        return text.strip("\"'")
    value = yaml.safe_load(text)
    # YAML parses 1e-06 as text, Hydra as a number.
    return float(text) if isinstance(value, str) and "float" in str(kind) else value


def _passthrough_paths(job: Job) -> set[str]:
    """Return the paths of the job's pass-through arguments; sections of a file have a path for each key."""
    return {f"{ARGS}{key}" for key, _ in leaves(job.backend.args)}

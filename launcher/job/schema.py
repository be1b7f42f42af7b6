"""The root of the canonical job, and walking over its fields by dotted path."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from launcher.job.backend import BackendChoice
from launcher.job.batch import Batch
from launcher.job.checkpoint import Checkpoint
from launcher.job.cluster import Cluster
from launcher.job.data import Data
from launcher.job.evaluation import Evaluation, Generation
from launcher.job.fault_tolerance import FaultTolerance
from launcher.job.graph import Graph
from launcher.job.hardware import Hardware
from launcher.job.imported import ImportedFrom
from launcher.job.kernels import Kernels
from launcher.job.logging import Logging
from launcher.job.model import Model
from launcher.job.moe import Moe
from launcher.job.offload import Offload
from launcher.job.optimizer import Optimizer
from launcher.job.option import Meta, meta_of, option
from launcher.job.overlap import Overlap
from launcher.job.parallel import Parallel
from launcher.job.planning import EstimateOptions, SearchOptions
from launcher.job.precision import Precision
from launcher.job.profiler import Profiler
from launcher.job.recompute import Recompute
from launcher.job.rehearse import Rehearse
from launcher.job.rules import Rules
from launcher.job.schedule import Schedule
from launcher.job.task import Lora, Task
from launcher.job.tokenizer import Tokenizer
from launcher.notebook import Shown
from launcher.records import dataclass, record

T = TypeVar("T")
Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Any  # a Scalar, a tuple of them, a mapping (backend.args, backend.env) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value was set.

    Attributes:
        kind: `recipe` (a file of the composition), `override` (command line), `derived` (computed by composition,
            for instance read from the model's config.json) or `default`.
        where: `file:line`, the override as typed, or the file that it was read from; empty for defaults.
        replaced: the value of the model's config.json or preset that it replaces, and the file; empty: none.
    """

    kind: str
    where: str = ""
    replaced: str = ""


DEFAULT_ORIGIN = Origin(kind="default")
USER_ORIGINS = ("override", "recipe")
"""Kinds of origins of values that the user set: on the command line, or in a file."""


def _section(kind: type[T]) -> T:
    """Declare a section; jobs that set nothing of it share one, made for the first of them."""
    shared: T = dataclasses.field(default_factory=cache(kind))
    return shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Shown):
    """One training job. A field that is None is not set: the backend's default applies."""

    name: str | None = option(None, "Name of the job, used for its files.")
    seed: int = option(42, "Seed of weights, data order and dropout.", minimum=0, affects_training=True)
    output_dir: str | None = option(None, "Where the launcher writes its own files; none: ./launch_output/<name>.")
    runtime: str | None = option(
        None,
        "native: the backend's own entry point; rehearsal: on this machine; none: native if it can run here.",
        choices=("native", "rehearsal"),
    )
    task: Task = _section(Task)
    lora: Lora = _section(Lora)
    model: Model = _section(Model)
    data: Data = _section(Data)
    tokenizer: Tokenizer = _section(Tokenizer)
    batch: Batch = _section(Batch)
    schedule: Schedule = _section(Schedule)
    optimizer: Optimizer = _section(Optimizer)
    precision: Precision = _section(Precision)
    kernels: Kernels = _section(Kernels)
    graph: Graph = _section(Graph)
    parallel: Parallel = _section(Parallel)
    recompute: Recompute = _section(Recompute)
    offload: Offload = _section(Offload)
    moe: Moe = _section(Moe)
    overlap: Overlap = _section(Overlap)
    checkpoint: Checkpoint = _section(Checkpoint)
    logging: Logging = _section(Logging)
    evaluation: Evaluation = _section(Evaluation)
    generation: Generation = _section(Generation)
    profiler: Profiler = _section(Profiler)
    fault_tolerance: FaultTolerance = _section(FaultTolerance)
    hardware: Hardware = _section(Hardware)
    cluster: Cluster = _section(Cluster)
    backend: BackendChoice = dataclasses.field(default_factory=BackendChoice)
    imported: ImportedFrom = dataclasses.field(default_factory=ImportedFrom)
    rehearse: Rehearse = _section(Rehearse)
    rules: Rules = _section(Rules)
    estimate: EstimateOptions = _section(EstimateOptions)
    search: SearchOptions = _section(SearchOptions)
    origins: Mapping[str, Origin] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def origin(self, path: str) -> Origin:
        """Return where the value at `path` was set; values without a recorded origin are defaults."""
        return self.origins.get(path, DEFAULT_ORIGIN)


@record()
class FieldInfo:
    """A leaf of the canonical job: dotted path, type, default and metadata."""

    path: str
    type: Any
    default: Value
    meta: Meta


def _walk(cls: type, prefix: str) -> Iterator[FieldInfo]:
    for field in dataclasses.fields(cls):
        if field.name == "origins":
            continue
        kind = field.type
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from _walk(kind, f"{prefix}{field.name}.")
            continue
        default = field.default if field.default is not dataclasses.MISSING else {}
        yield FieldInfo(path=prefix + field.name, type=kind, default=default, meta=meta_of(field))


@cache
def fields() -> Mapping[str, FieldInfo]:
    """Return every leaf of the canonical job by dotted path, in order of declaration."""
    return {info.path: info for info in _walk(Job, "")}


def field_paths() -> tuple[str, ...]:
    """Return the dotted paths of all leaves, in order of declaration."""
    return tuple(fields())


def field_at(path: str) -> FieldInfo:
    """Return the leaf at `path`.

    Raises:
        KeyError: there is no such leaf.
    """
    return fields()[path]


def override_text(value: Value) -> str:
    """Return a value as the text after `=` of an override, without quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(map(override_text, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{override_text(item)}" for key, item in value.items()) + "}"
    return str(value)


def value_at(job: Job, path: str) -> Value:
    """Return the value at a dotted path of the job."""
    return _getter(path)(job)


@cache
def _getter(path: str) -> Callable[[Job], Value]:
    return attrgetter(path)


def as_tree(job: Job) -> dict[str, Any]:
    """Return the job as nested plain dicts and lists (JSON-ready), without origins."""

    def plain(node: Any) -> Any:
        if dataclasses.is_dataclass(node) and not isinstance(node, type):
            return {f.name: plain(getattr(node, f.name)) for f in dataclasses.fields(node) if f.name != "origins"}
        if isinstance(node, Mapping):
            return {key: plain(value) for key, value in node.items()}
        if isinstance(node, (tuple, list)):
            return [plain(value) for value in node]
        return node

    tree = plain(job)
    assert isinstance(tree, dict)
    return tree

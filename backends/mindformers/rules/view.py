"""Input of MindFormers' rules: the value of each key in the written file, and one row per rule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from backends.mindformers import BACKEND
from backends.mindformers.mapping.support import MODEL
from backends.mindformers.mapping.table import table
from launcher.job import Job, Value
from launcher.mapping.engine import fields_by_flag
from launcher.mapping.native import NativeArg
from launcher.rules.registry import Check, RuleContext, Violation, rule

NAME = BACKEND.name
OLD = "1.6.0"
DP, TP = "parallel_config.data_parallel", "parallel_config.model_parallel"
PP, CP = "parallel_config.pipeline_stage", "parallel_config.context_parallel"
EP, SP = "parallel_config.expert_parallel", "parallel_config.use_seq_parallel"
MICRO, ACCUMULATION = "parallel_config.micro_batch_num", "runner_config.gradient_accumulation_steps"
ALGORITHM, DEGREE = "parallel_config.context_parallel_algo", "parallel_config.ulysses_degree_in_cp"
MODE, FULL_BATCH, STRATEGY = "parallel.parallel_mode", "parallel.full_batch", "parallel.dataset_strategy"
INTERLEAVE, SCHEDULER = "parallel.pipeline_config.pipeline_interleave", "parallel.pipeline_config.pipeline_scheduler"
RECOMPUTE, SELECT = "recompute_config.recompute", "recompute_config.select_recompute"
SWAP = "swap_config.swap"
LAYERS = ("num_hidden_layers", "num_layers", "n_layer")
CHUNKS = ("pp_interleave_num", "virtual_pipeline_model_parallel_size")
_AUTOMATIC = (1, 2, "SEMI_AUTO_PARALLEL", "AUTO_PARALLEL", "semi_auto_parallel", "auto_parallel")


@cache
def _defaults(version: str) -> Mapping[str, Value]:
    return {argument.name: argument.default for argument in BACKEND.catalogue(version).arguments}


@cache
def _fields(version: str) -> Mapping[str, tuple[str, ...]]:
    return fields_by_flag(table(version), version, first=True)


class View:
    """The keys of one job's file: `view[key]` is the value written, else MindFormers' default."""

    def __init__(self, facts: RuleContext) -> None:
        assert facts.version is not None
        self.job: Job = facts.job
        self.version: str = facts.version
        self.written: Mapping[str, NativeArg] = facts.written
        self._defaults = _defaults(facts.version)
        # No data-parallel size fits the devices; another rule reports it, and checks that need the size are skipped.
        self.unsized = not facts.as_written and facts.job.parallel.dp is None and DP not in facts.written
        # No row of the mapping table writes this section.
        self._pynative = any(key.startswith("parallelism") for key in facts.job.backend.args)

    def __getitem__(self, key: str) -> Any:
        arg = self.written.get(key)
        return self._defaults.get(key) if arg is None else arg.value

    def given(self, key: str) -> bool:
        """Return whether the key is written with a value."""
        return key in self.written and self.written[key].value is not None

    def passed(self, key: str) -> bool:
        """Return whether the user wrote the key itself, in `backend.args`."""
        return key in self.job.backend.args

    def size(self, key: str) -> int:
        """Return a size; 1 if it is not set or not a number."""
        value = self[key]
        return value if isinstance(value, int) and value > 0 else 1

    def model(self, *names: str) -> Any:
        """Return the value of the first written key of several names in the model section."""
        keys = [MODEL + name for name in names]
        return next((self[key] for key in keys if key in self.written), self._defaults.get(keys[0]))

    @property
    def layers(self) -> int | None:
        """Return the number of layers split over stages: 1.6 includes MTP layers."""
        value = next((self.written[MODEL + n].value for n in LAYERS if MODEL + n in self.written), None)
        value = self.job.model.num_hidden_layers if value is None else value
        if not isinstance(value, int):
            return None
        more = self.model("mtp_depth") or self.job.model.num_nextn_predict_layers
        return value + (more if self.version == OLD or self.dialect == "legacy" else 0)

    @property
    def declared_chunks(self) -> int:
        """Return the number of chunks per stage as configured."""
        value = self.model(*CHUNKS)
        return value if isinstance(value, int) and value > 0 else 1

    @property
    def chunks(self) -> int:
        """Return the number of chunks per stage that MindFormers builds: 1 without pipeline_interleave (S4)."""
        return self.declared_chunks if self[INTERLEAVE] else 1

    @property
    def offset(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the offset as rows of chunks; None if it is a plain number or not a list of numbers."""
        value = self.model("offset")
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            return None
        rows = value if isinstance(value[0], Sequence) else (value,)
        return tuple(tuple(row) for row in rows)

    @property
    def automatic(self) -> bool:
        """Return whether MindSpore partitions the graph, according to parallel_mode."""
        return self[MODE] in _AUTOMATIC

    @property
    def counted(self) -> bool:
        """Return whether MindSpore partitions the graph and the data-parallel size is known."""
        return self.automatic and not self.unsized

    @property
    def flash(self) -> bool:
        """Return whether flash attention is on."""
        return self.model("use_flash_attention") is not False

    @property
    def dialect(self) -> str:
        """Return the kind of file: `mcore` (written by the launcher), `legacy` (use_legacy) or `pynative` (2.x)."""
        if self._pynative:
            return "pynative"
        return "mcore" if self["use_legacy"] is False else "legacy"


_last: tuple[RuleContext, View] | None = None


def view_of(facts: RuleContext) -> View:
    """Return the view of these facts; rules of one job share it."""
    global _last
    last = _last
    if last is None or last[0] is not facts:
        last = _last = (facts, View(facts))
    return last[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MindRule:
    """One rule about keys of the file.

    Attributes:
        id, doc, source, severity, since, until: as in `launcher.rules.registry.Rule`.
        keys: keys concerned; their canonical fields are looked up in the mapping table.
        when: returns the violation: a message, or True if `say` is the message; false if there is none.
        say: message.
        fields: canonical fields, if not those of the keys.
        dialects: kinds of file that it applies to.
    """

    id: str
    doc: str
    source: str
    keys: tuple[str, ...]
    when: Callable[[View], Any]
    say: str = ""
    severity: str = "error"
    since: str | None = None
    until: str | None = None
    fields: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ("mcore", "legacy")


def declare(*rules: MindRule, dialects: tuple[str, ...] | None = None) -> None:
    """Register rows as rules; `dialects`, if given, replaces the kinds of file of each row."""
    for row in (replace(row, dialects=dialects) for row in rules) if dialects else rules:
        rule(
            row.id,
            source=row.source,
            severity=row.severity,
            backends=(NAME,),
            since=row.since,
            until=row.until,
        )(_check(row))


def _check(row: MindRule) -> Check:
    def check(facts: RuleContext) -> Iterator[Violation]:
        if facts.native is None or facts.version is None:
            return
        view = view_of(facts)
        if view.dialect not in row.dialects:
            return
        try:
            broken = row.when(view)
        except (TypeError, AttributeError, IndexError):  # wrong type, reported by the catalogue's check
            return
        if broken:
            message = broken if isinstance(broken, str) else row.say
            yield Violation(message=message, fields=fields_of(row, facts.version), flags=row.keys)

    check.__doc__ = row.doc
    return check


def fields_of(row: MindRule, version: str) -> tuple[str, ...]:
    """Return the canonical fields that a rule concerns in a version."""
    ties = _fields(version)
    return row.fields or tuple(dict.fromkeys(path for key in row.keys for path in ties.get(key, ())))


def whole(value: Any) -> bool:
    """Return whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)

"""Writes the defaults of a job's source backend into the job where the target's defaults differ."""

from collections.abc import Callable, Iterator, Mapping

from launcher.job import Job, Value, fields, override_text, value_at, with_values
from launcher.job.finding import Finding
from launcher.mapping.engine import translate, write_row
from launcher.mapping.equivalence import canonical
from launcher.mapping.ignored_fields import inapplicable
from launcher.mapping.rows import NativeView, Row, active_rows
from launcher.port.dropped import PortRoute
from launcher.rules.effects import absent_value, fields_set, meaning
from launcher.rules.native import effective_of

DEFAULT_RULE, LAYOUT_RULE = "PORT-DEFAULT", "PORT-LAYOUT"
# Fields that every backend needs and for which not every backend has a default.
_NEEDED = frozenset({"optimizer.lr", "batch.micro_batch_size", "batch.global_batch_size"})
# Read from the model's files, or specific to a machine: kernels, folders, generation.
_MOSTLY_SHARED = ("model.", "tokenizer.", "checkpoint.", "generation.", "kernels.", "parallel.", "evaluation.", "data.")
# They change no value of training, but what fits: how many devices share an expert, or the optimizer's state.
_LAYOUT: Mapping[str, Callable[[Job], bool]] = {
    # With ep 1, the source's own would train with wrong gradients of experts (MLM-ETP-REPLICAS).
    "parallel.etp": lambda job: job.model.is_moe and job.parallel.tp > 1 and (job.parallel.ep or 1) > 1,
    "parallel.distributed_optimizer": lambda job: True,
}
_ALL_THE_SAME = frozenset({"task.type", "batch.packing", "schedule.lr_wsd_decay_style"})
# Prefixes of fields that only some jobs read.
_READ_BY: Mapping[str, Callable[[Job], bool]] = {
    "task.": lambda job: job.task.type not in ("pretrain", "sft"),
    "lora.": lambda job: job.lora.rank is not None,
    "moe.bias_update_rate": lambda job: bool(job.model.router_expert_bias),
    "optimizer.sgd_": lambda job: job.optimizer.type == "sgd",
    "optimizer.muon_": lambda job: "muon" in job.optimizer.type,
    "precision.fp8": lambda job: job.precision.fp8_format is not None,
    "precision.fp4": lambda job: job.precision.fp4_format is not None,
}


def source_defaults(route: PortRoute, job: Job) -> dict[str, Value]:
    """Return the source's defaults that a job must set to keep them on the target, by field.

    Args:
        job: the job on the target; fields that it sets are kept.
    """
    open_paths = [path for path in fields() if _is_read(path, job) and _is_open(route, job, path)]
    if not open_paths:
        return {}
    # Values written by an earlier port are not part of the script.
    earlier = {path: fields()[path].default for path in job.imported.defaults if path in fields()}
    bare, job = with_values(route.job, earlier), with_values(job, earlier)
    prepared = route.source.prepare(bare, route.source_version)
    native = translate(prepared, route.source, route.source_version).native
    written = {arg.flag: arg.value for arg in native}
    effective = effective_of(prepared, route.source, route.source_version, native)
    computed = {
        path: value
        for path, value in fields_set(effective, route.source, route.source_version).items()
        if value is not None
    }
    rows = _rows_by_field(route.source.table(route.source_version).rows)
    there = meaning(job, route.target, route.version).fields
    chosen_there = route.target.prepare(job, route.version)
    found: dict[str, Value] = {}
    for path in open_paths:
        value = computed.get(path, value_at(prepared, path))
        if value is None:
            value = _default(route, path, rows.get(path, ()), written)
        same = path not in _NEEDED and canonical(there[path].value) == canonical(value)
        # Kept: what the target chooses itself, and its distributed optimizer, which needs less memory than none.
        same |= path in _LAYOUT and (value is False or value_at(chosen_there, path) is not None)
        if value not in (None, (), "") and not same and _differs(route, job, path, value):
            found[path] = value
    return found | _of_absence(route, bare, job)


def _of_absence(route: PortRoute, bare: Job, job: Job) -> dict[str, Value]:
    """Return what the absence of arguments means in the source, where it means something else in the target."""
    meant, there = route.source.absent(bare), route.target.absent(job)
    return {
        path: value
        for path, value in meant.items()
        if _is_open(route, job, path) and value_at(job, path) is None and there.get(path) != value
    }


def default_findings(route: PortRoute, values: Mapping[str, Value]) -> Iterator[Finding]:
    """Yield a finding for defaults of the source that were written into the job."""
    if values:
        shown = ", ".join(f"{path}={override_text(value)}" for path, value in values.items())
        kind = "default" if len(values) == 1 else "defaults"
        yield Finding(
            rule=DEFAULT_RULE,
            severity="change",
            message=f"{shown}: {kind} of {route.source.title} {route.source_version}, "
            f"written so that {route.there} does the same",
            fields=tuple(values),
            source=f"catalogue of {route.source.name} {route.source_version}",
        )


def layout_findings(route: PortRoute, job: Job) -> Iterator[Finding]:
    """Yield a finding for each default of the layout that the target chooses itself, where the source's is another.

    Args:
        job: the job on the target.
    """
    for path in _LAYOUT:
        there = value_at(route.target.prepare(job, route.version), path)
        if there is None or not (_is_read(path, job) and _is_open(route, job, path)):
            continue
        prepared = route.source.prepare(route.job, route.source_version)
        native = translate(prepared, route.source, route.source_version).native
        effective = effective_of(prepared, route.source, route.source_version, native)
        here = fields_set(effective, route.source, route.source_version).get(path)
        if here is None or here == there:
            continue
        yield Finding(
            rule=LAYOUT_RULE,
            severity="change",
            message=f"{path} is not set: {override_text(here)} by default on {route.source.title} "
            f"{route.source_version}, {override_text(there)} on {route.there}, which is kept: memory and speed differ, "
            "training does not",
            fields=(path,),
            source=f"catalogue of {route.source.name} {route.source_version}",
        )


def _is_read(path: str, job: Job) -> bool:
    """Return whether a field affects this job's training and is set by the job on every backend."""
    if path in _NEEDED:
        return True
    if path in _LAYOUT:
        return _LAYOUT[path](job)
    if (
        not fields()[path].meta.affects_training
        or path.startswith(_MOSTLY_SHARED)
        or path in _ALL_THE_SAME
        or inapplicable(job, path)
    ):
        return False
    return all(reads(job) for start, reads in _READ_BY.items() if path.startswith(start))


def _is_open(route: PortRoute, job: Job, path: str) -> bool:
    """Return whether neither the script nor the user has set a value."""
    if path in job.imported.defaults:
        return job.origin(path).kind != "override"
    return value_at(job, path) is None and value_at(route.job, path) is None


def _rows_by_field(rows: tuple[Row, ...]) -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, tuple[Row, ...]] = {}
    for row in rows:
        for path in row.fields:
            found[path] = (*found.get(path, ()), row)
    return found


def _default(route: PortRoute, path: str, rows: tuple[Row, ...], written: Mapping[str, Value]) -> Value:
    """Return the default of the source's parser as a field value; None where it has none, or the field is written."""
    catalogue = route.source.catalogue(route.source_version)
    for row in rows:
        if row.fields != (path,) or len(row.flags) != 1 or row.flags[0] in written or row.read is None:
            continue
        argument = catalogue.get(row.flags[0])
        default = None if argument is None else absent_value(argument)
        if default is not None:
            return row.read(NativeView({row.flags[0]: default})).get(path)
    return None


def _differs(route: PortRoute, job: Job, path: str, value: Value) -> bool:
    """Return whether the target's default differs and the target accepts the value."""
    table, catalogue = route.target.table(route.version), route.target.catalogue(route.version)
    if path in table.unsupported or path in table.irrelevant:
        return False
    if path in _NEEDED and route.source.name != route.target.name:
        return True
    changed = with_values(job, {path: value})
    differs = False
    for row in active_rows(table, route.version):
        if path not in row.fields:
            continue
        before = {arg.flag: arg.value for arg in write_row(job, row, route.target, route.version)[0]}
        after, refused = write_row(changed, row, route.target, route.version)
        if refused is not None and path in refused.fields:
            return False
        for arg in after:
            argument = catalogue.get(arg.flag)
            default = None if argument is None else argument.without()
            if before.get(arg.flag) == arg.value or arg.flag in job.backend.passthrough:
                continue
            # A false value equals an unknown default.
            differs |= arg.flag in before or bool(arg.value if default is None else default != arg.value)
    return differs

"""Mapping tables as cases: what each value of each field writes, what each argument is read as, and the gaps."""

from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

from launcher.catalogue.catalogue import Argument
from launcher.job import Job, fields, value_at
from launcher.job.derive import with_values
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import Translation, read_back, translate
from launcher.mapping.passthrough import other_values
from launcher.mapping.rows import active_rows
from tools.snapshot.cases import Case

# Jobs whose fields are changed one by one: MoE, latent attention with predicted tokens, LoRA, preference training.
_BASES = ("tiny_qwen3_moe", "tiny_deepseek_v3", "qwen3_8b_lora", "qwen3_8b_dpo")
# Arguments beside which each argument is read: none, those of experts, of latent attention, of a subcommand.
_BESIDE: tuple[dict[str, Any], ...] = ({}, {"num-experts": 8, "num_experts": 8}, {"multi-latent-attention": True})


def tables() -> Iterator[Case]:
    """Yield a case for each field, each argument, the gaps and the rows of every version of every backend."""
    for backend in backend_names():
        for version in get_backend(backend).versions:
            where = f"tables/{backend}@{version}"
            yield Case(name=f"{where}/rows", answer=partial(_rows, backend, version))
            yield Case(name=f"{where}/gaps", answer=partial(_gaps, backend, version))
            for path in fields():
                yield Case(name=f"{where}/{path}", answer=partial(_writes, path, backend, version))
            for argument in get_backend(backend).catalogue(version).arguments:
                yield Case(name=f"{where}/--{argument.name}", answer=partial(_reads, argument, backend, version))


def _rows(backend: str, version: str) -> dict[str, Any]:
    """Return the rows by their fields and arguments; a table may hold several of the same."""
    found: dict[str, Any] = {}
    for row in active_rows(get_backend(backend).table(version), version):
        name = f"{', '.join(row.fields)}: {', '.join(row.flags)}"
        says = [row.derived, row.read is not None, row.when is not None, row.read_in is not None, row.note]
        found.setdefault(name, []).append(says)
    return found


def _gaps(backend: str, version: str) -> dict[str, Any]:
    table = get_backend(backend).table(version)
    unsupported = {
        path: [gap.why, gap.neutral, gap.severity, gap.works, gap.matters is not None]
        for path, gap in table.unsupported.items()
    }
    return {"unsupported": unsupported, "irrelevant": dict(table.irrelevant)}


def _writes(path: str, backend: str, version: str) -> dict[str, Any]:
    """Return what other values of a field add to, change in or take from the arguments of each base job."""
    found: dict[str, Any] = {}
    for name in _BASES:
        job, usual = _base(name, backend, version)
        for value in other_values(path, value_at(job, path)):
            reported = _said(_translated(with_values(job, {path: value}), backend, version))
            changed = {key: reported.get(key) for key in (*usual, *reported) if reported.get(key) != usual.get(key)}
            if changed:
                found[f"{name} {path}={value}"] = changed
    return found


@cache
def _base(name: str, backend: str, version: str) -> tuple[Job, dict[str, Any]]:
    job = _recipe(name)
    return job, _said(_translated(job, backend, version))


@cache
def _recipe(name: str) -> Job:
    from launcher import api

    return api.compose([f"+recipe={name}"])


def _translated(job: Job, backend: str, version: str) -> Translation:
    found = get_backend(backend)
    return translate(found.prepare(job, version), found, version)


def _said(translation: Translation) -> dict[str, Any]:
    args = {f"--{arg.flag}": [arg.value, arg.field, arg.origin] for arg in translation.native}
    findings = {",".join(each.fields): each.as_tree() for each in translation.findings}
    return {**args, **findings}


def _reads(argument: Argument, backend: str, version: str) -> dict[str, Any]:
    """Return the fields that each value of an argument sets, alone and beside others."""
    found: dict[str, Any] = {}
    for beside in _BESIDE:
        for value in _values(argument):
            given = {**beside, argument.name: value}
            read = read_back(given, get_backend(backend), version)
            default = _read_without(tuple(beside), backend, version)
            fields_set = {path: here for path, here in _fields_of(read.job).items() if here != default[path]}
            fields_set.pop("backend.args", None)
            rest = [arg.flag for arg in read.unmapped if arg.flag not in beside]
            found[f"{value} {','.join(beside)}"] = [fields_set, rest, read.warnings]
    return found


@cache
def _read_without(beside: tuple[str, ...], backend: str, version: str) -> dict[str, Any]:
    given = next(each for each in _BESIDE if tuple(each) == beside)
    return _fields_of(read_back(given, get_backend(backend), version).job)


def _fields_of(job: Job) -> dict[str, Any]:
    return {path: value_at(job, path) for path in fields()}


def _values(argument: Argument) -> Iterable[Any]:
    kinds = argument.type.split("|")
    if argument.is_flag or kinds == ["bool"]:
        return (True, False)
    values: list[Any] = list(argument.choices or ())
    if "int" in kinds or "float" in kinds:
        values += [0, 1, 2, 7]
    values += ["x", "none"] if "str" in kinds else []
    return [(each,) for each in values] + [tuple(values[:2])] if argument.is_list else values

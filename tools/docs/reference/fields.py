"""Fields of a job: one page a section, one heading a field, with what each backend makes of it."""

import types
import typing
from collections.abc import Iterable

from launcher.job import FieldInfo, fields
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.rows import active_rows
from tools.docs.written import contents, escaped

HEAD = """# Fields of a job

Any field is an override on the command line (`parallel.tp=2`) or a key of a recipe or job file. `launch explain FIELD`
shows the same, with the rules that read the field. A field without a default is unset: the backend's own default then
holds, and `launch dry-run` shows it.

*Changes training*: the value changes what is learned. Such a field's default is written to every backend.
"""
SECTION = """# Fields: `{name}`

For each backend: its arguments in the newest version, and in older ones where they differ. "—": the backend cannot
express the field; a job that sets it is refused, or warned where training is unaffected. Backends that the field does
not concern are left out.
"""


def pages() -> dict[str, str]:
    """Return the index of the sections and a page for each."""
    backends = [get_backend(name) for name in backend_names()]
    sections: dict[str, list[FieldInfo]] = {}
    for info in fields().values():
        sections.setdefault(info.path.rpartition(".")[0] or "job", []).append(info)
    made = {}
    for name, members in sections.items():
        made[f"fields/{name}.md"] = SECTION.format(name=name) + "".join(_field(info, backends) for info in members)
    rows = [f"| [{name}](fields/{name}.md) | {_names(members)} |" for name, members in sections.items()]
    table = "\n".join(["| section | fields |", "|---|---|", *rows])
    made["fields.md"] = f"{HEAD}\n{table}\n{contents(f'fields/{name}' for name in sections)}"
    return made


def _names(members: Iterable[FieldInfo]) -> str:
    return ", ".join(f"`{info.path.rpartition('.')[2]}`" for info in members)


def _field(info: FieldInfo, backends: Iterable[Backend]) -> str:
    meta = info.meta
    facts = [type_name(info.type)]
    facts += [meta.unit] if meta.unit else []
    if info.default not in (None, (), {}):
        facts.append(f"default `{plain(info.default)}`")
    facts += [f"at least {meta.minimum:g}"] if meta.minimum is not None else []
    facts += [f"one of {', '.join(f'`{choice}`' for choice in meta.choices)}"] if meta.choices else []
    facts += ["*changes training*"] if meta.affects_training else []
    source = f" Source: {escaped(meta.source)}." if meta.source != "launch" else ""
    lines = ["", f"## `{info.path}`", "", f"{escaped(meta.doc)} {'; '.join(facts)}.{source}", ""]
    cells = [(backend.title, arguments(info.path, backend)) for backend in backends]
    lines += [f"- {title}: {escaped(cell)}" for title, cell in cells if cell != "·"]
    return "\n".join(lines) + "\n"


def type_name(kind: object) -> str:
    """Return a type as a user writes it: `int`, `list of str`; None is not named."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return " or ".join(type_name(each) for each in typing.get_args(kind) if each is not type(None))
    if typing.get_origin(kind) is tuple:
        return f"list of {type_name(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) is not None:
        return "mapping"
    return getattr(kind, "__name__", "any").lower() if kind is not typing.Any else "any"


def arguments(path: str, backend: Backend) -> str:
    """Return the arguments of a backend that a field becomes, by version, `—` with the reason, or `·`."""
    newest, *older = [(version, _of_version(path, backend, version)) for version in backend.versions]
    others: dict[str, list[str]] = {}
    for version, text in older:
        if text != newest[1]:
            others.setdefault(text, []).append(version)
    return "; ".join([newest[1], *(f"{', '.join(versions)}: {text}" for text, versions in others.items())])


def _of_version(path: str, backend: Backend, version: str) -> str:
    table = backend.table(version)
    rows = [row for row in active_rows(table, version) if path in row.fields]
    flags = dict.fromkeys(flag for row in rows for flag in row.flags)
    if flags:
        return " ".join(f"`{flag}`" for flag in flags)
    if path in table.unsupported:
        return f"— {table.unsupported[path].why}"
    return "·"


def plain(value: object) -> str:
    """Return a default as it is written in YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)

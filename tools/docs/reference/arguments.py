"""Arguments of each backend's default version, with the field of each, and why others have no field."""

from collections.abc import Iterable

from launcher.catalogue.catalogue import Argument
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.engine import fields_of_flags
from launcher.mapping.native_only import NativeOnlyArg
from launcher.mapping.native_only_index import native_only_index_of
from tools.docs.reference.fields import plain
from tools.docs.written import code, contents, escaped

HEAD = """# Arguments of the backends

What each backend's own parser accepts. `launch args BACKEND [TEXT]` shows other versions; `launch explain NAME` shows
one argument with its field and rules. An argument without a field is set by `backend.args.NAME=VALUE`.
"""
WITHOUT = """# Arguments that are no field

What two backends call by one name is a field on both, or stands here with the reason.
They can be set all the same: `backend.args.NAME=VALUE`.

| reason | arguments | backends | source |
|---|---|---|---|
"""


def pages() -> dict[str, str]:
    """Return the index, a page for each backend, and the reasons of arguments without a field."""
    backends = [get_backend(name) for name in backend_names()]
    names = [f"arguments/{backend.name}" for backend in backends]
    made = {f"{name}.md": _page(backend) for name, backend in zip(names, backends, strict=True)}
    made["arguments/without_field.md"] = WITHOUT + "\n".join(_without_field(backends)) + "\n"
    made["arguments.md"] = HEAD + contents([*names, "arguments/without_field"])
    return made


def _page(backend: Backend) -> str:
    version = backend.default_version
    ties = fields_of_flags(backend.name, version)
    catalogue = backend.catalogue(version)
    lines = [
        f"# Arguments of {backend.title} {version}",
        "",
        f"{len(catalogue.arguments)} arguments; `backend={backend.name}`.",
        "",
        "| argument | type | default | field |",
        "|---|---|---|---|",
    ]
    lines += [_row(argument, ties.get(argument.name, ())) for argument in catalogue.arguments]
    return "\n".join(lines) + "\n"


def _row(argument: Argument, found: object) -> str:
    paths = (found,) if isinstance(found, str) else tuple(found)  # type: ignore[call-overload]
    links = ", ".join(f"[`{path}`](../fields/{path.rpartition('.')[0] or 'job'}.md)" for path in paths)
    kind = argument.type + (f": {', '.join(map(str, argument.choices))}" if argument.choices else "")
    default = "" if argument.default is None else f"`{plain(argument.default)}`"
    return f"| `{argument.name}` | {escaped(kind)} | {escaped(default)} | {links} |"


def _without_field(backends: Iterable[Backend]) -> list[str]:
    """Return a line for each reason, with the arguments that have no field for it."""
    found: dict[int, tuple[NativeOnlyArg, dict[str, None], dict[str, None]]] = {}
    for backend in backends:
        for version in backend.versions:
            ties = fields_of_flags(backend.name, version)
            for argument in backend.catalogue(version).arguments:
                row = native_only_index_of(backend.name).reason(argument.name, argument)
                if row is not None and argument.name not in ties:
                    _, names, titles = found.setdefault(id(row), (row, {}, {}))
                    names[argument.name] = titles[backend.title] = None
    return [
        "| " + " | ".join(escaped(cell) for cell in (row.no_field, code(names), ", ".join(titles), row.source)) + " |"
        for row, names, titles in found.values()
    ]

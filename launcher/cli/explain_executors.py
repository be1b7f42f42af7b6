"""Options of executors for `launch explain`: fields of `cluster`, and `cluster.options` of installed executors."""

import dataclasses
from collections.abc import Iterator, Mapping

from launcher.job.cluster import OF_ALL
from launcher.job.option import meta_of
from launcher.plan.executor import executor_names, get_executor

_SECTION, _OPTIONS = "cluster.", "cluster.options."


def explained_option(name: str) -> Mapping[str, object] | None:
    """Return an option that executors declare, by its name or path; None if none does."""
    found = [each for each in _options() if each["option"] in (name, f"{_OPTIONS}{name}")]
    if not found:
        return None
    return {**found[0], **({"also": found[1:]} if len(found) > 1 else {})}


def option_names() -> Iterator[str]:
    """Yield the paths of all options that installed executors declare."""
    return (str(each["option"]) for each in _options())


def readers(path: str) -> list[str]:
    """Return the executors that read a field of `cluster`; none for other fields."""
    name = path.removeprefix(_SECTION)
    if name == path:
        return []
    return [each for each in executor_names() if name in OF_ALL or name in get_executor(each).reads]


def _options() -> Iterator[Mapping[str, object]]:
    for name in executor_names():
        executor = get_executor(name)
        for field in dataclasses.fields(executor.options) if executor.options is not None else ():
            meta = meta_of(field)
            yield {
                "option": f"{_OPTIONS}{field.name}",
                "meaning": meta.doc,
                "type": getattr(field.type, "__name__", str(field.type)),
                "unit": meta.unit,
                "default": field.default if field.default is not dataclasses.MISSING else {},
                "minimum": meta.minimum,
                "choices": list(meta.choices),
                "executor": f"{name} ({executor.title})",
                "source": meta.source,
            }

"""`cluster.pod_patch`: a strategic merge applied to the pod template, held against the fields that Kubernetes has."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from launcher.executors.forwarded_env import ASSIGNED
from launcher.executors.kubernetes.kinds import DEVICE_RESOURCES, FILES, NODE, RUN_LABEL, Kind
from launcher.executors.kubernetes.pod_fields import TEXT
from launcher.job.secret import find, is_secret
from launcher.nearest import nearest
from launcher.records import dataclass

Tree = Mapping[str, Any]

_ROOT = "PodTemplateSpec"
_DIRECTIVE = "$patch"
_DIRECTIVES = ("delete", "replace")
_DEEPEST = 40
_SCALARS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "s": ((str,), "text (quote numbers and true/false)"),
    "t": ((str,), "a time"),
    "i": ((int,), "an integer"),
    "n": ((int, float), "a number"),
    "b": ((bool,), "true or false"),
    "q": ((str, int, float), "a quantity"),
}
_RANKS = f"spec.containers[{NODE}]"
_DEVICES = "|".join(map(re.escape, DEVICE_RESOURCES.values()))
# Fields that are set from the job, and how: a patch of them would be a second place for one setting, or break the run.
_OWNED = (
    (rf"metadata\.labels\.{RUN_LABEL}", "finds the pods of a run"),
    (rf"{re.escape(_RANKS)}\.(command|args|name)", "starts the ranks: backend.args, cluster.setup"),
    (rf"{re.escape(_RANKS)}\.image", "set cluster.container"),
    (rf"{re.escape(_RANKS)}\.imagePullPolicy", "set cluster.pull_policy"),
    (rf"{re.escape(_RANKS)}\.(stdin|tty|stdinOnce)", "the ranks read no input"),
    (
        rf"{re.escape(_RANKS)}\.resources\.(limits|requests)\.({_DEVICES})",
        "set cluster.devices_per_node, cluster.device_resource",
    ),
    (r"spec\.restartPolicy", "a failure ends all pods: fault_tolerance.max_restarts"),
    (r"spec\.(subdomain|hostname|hostnameOverride|setHostnameAsFQDN)", "is the address of the rendezvous"),
    (r"spec\.(hostNetwork|dnsPolicy)", "set cluster.host_network"),
    (r"spec\.activeDeadlineSeconds", "set cluster.time_limit"),
    (r"spec\.terminationGracePeriodSeconds", "is the time in which ranks save when they are ended"),
    (r"spec\.ephemeralContainers(\[.*)?", "is not part of a template: kubectl debug"),
    (r"spec\.volumes\[(launch|shm)\].*", "holds the scripts, and /dev/shm: cluster.shm_size"),
    (rf"{re.escape(_RANKS)}\.volumeMounts\[({FILES}|/dev/shm)/*\].*", "is where the scripts and /dev/shm are"),
)
# What holds fields that are set from the job: parts of it are patched, not the whole.
_HELD = (
    *("metadata", "metadata.labels", "spec", "spec.containers", "spec.volumes"),
    *(_RANKS, f"{_RANKS}.env", f"{_RANKS}.volumeMounts"),
    *(f"{_RANKS}.resources", f"{_RANKS}.resources.limits", f"{_RANKS}.resources.requests"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchProblem:
    """A part of a patch that cannot be applied: where, why, and what would work."""

    path: str
    message: str


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    found = {}
    for line in TEXT.replace("\n  ", " ").splitlines():
        name, *fields = line.split()
        found[name] = dict(field.split(":", 1) for field in fields)
    return found


# -- validation


def problems(patch: Tree, kind: Kind) -> Iterator[PatchProblem]:
    """Yield every part of a patch that Kubernetes does not know, that the kind cannot set, or that launch sets."""
    yield from _of_type(patch, _ROOT, "", 0)
    yield from _of_kind(patch, kind)
    yield from _of_containers(patch)


def _of_type(value: Any, kind: str, path: str, depth: int) -> Iterator[PatchProblem]:
    owned = next((why for pattern, why in _OWNED if re.fullmatch(pattern, path)), None)
    if owned is not None:
        yield PatchProblem(path=path, message=f"is set by launch: {owned}")
    elif path in _HELD and _drops(value):
        yield PatchProblem(path=path, message="holds what launch sets, and cannot be removed or replaced as a whole")
    elif depth > _DEEPEST:
        yield PatchProblem(path=path, message="is nested too deeply")
    elif value is None or kind == "o":  # null removes a field
        return
    elif kind in _SCALARS:
        types, words = _SCALARS[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "b"):
            yield PatchProblem(path=path, message=f"is {_shown(value)}; works: {words}")
    elif kind.startswith("["):
        yield from _of_list(value, kind, path, depth)
    elif not isinstance(value, Mapping):
        yield PatchProblem(path=path, message=f"is {_shown(value)}; works: fields of {kind.removeprefix('{}') or 'it'}")
    elif kind.startswith("{}"):
        for key, item in value.items():
            if str(key).startswith("$"):
                yield from _of_directive(str(key), item, path)
            else:
                yield from _of_type(item, kind[2:], _below(path, str(key)), depth + 1)
    else:
        yield from _of_fields(value, kind, path, depth)


def _of_fields(value: Tree, kind: str, path: str, depth: int) -> Iterator[PatchProblem]:
    fields = _types()[kind]
    for key, item in value.items():
        name = str(key)
        if name.startswith("$"):
            yield from _of_directive(name, item, path)
        elif name in fields:
            yield from _of_type(item, fields[name], _below(path, name), depth + 1)
        else:
            near = nearest(name, fields) or sorted(fields)[:6]
            works = " · ".join(_below(path, each) for each in near)
            yield PatchProblem(path=_below(path, name), message=f"is not a field of {kind}; works: {works}")


def _of_directive(name: str, value: Any, path: str) -> Iterator[PatchProblem]:
    if name != _DIRECTIVE or value not in _DIRECTIVES or not path:
        message = f"is no directive of a merge; works below spec: {_DIRECTIVE}: {' or '.join(_DIRECTIVES)}"
        yield PatchProblem(path=_below(path, name), message=message)


def _drops(value: Any) -> bool:
    """Return whether a value removes or replaces all that it is merged into."""
    if isinstance(value, Mapping):
        return _DIRECTIVE in value
    return value is None or (isinstance(value, list | tuple) and any(map(_replaces, value)))


def _replaces(item: Any) -> bool:
    """Return whether an element of a list says that the list is replaced as a whole."""
    return isinstance(item, Mapping) and item.get(_DIRECTIVE) == "replace"


def _of_list(value: Any, kind: str, path: str, depth: int) -> Iterator[PatchProblem]:
    key, _, inner = kind[1:].partition("]")
    if not isinstance(value, Sequence) or isinstance(value, str):
        yield PatchProblem(path=path, message=f"is {_shown(value)}; works: a list")
        return
    types = _SCALARS[_types()[inner][key]][0] if key else ()
    for number, item in enumerate(value):
        if not key and isinstance(item, Mapping) and _DIRECTIVE in item:
            message = f"has a {_DIRECTIVE}, and this list is always replaced as a whole"
            yield PatchProblem(path=f"{path}[{number}]", message=message)
        elif not key or _replaces(item):
            yield from _of_type(item, inner, f"{path}[{number}]", depth + 1)
        elif not isinstance(item, Mapping) or not isinstance(item.get(key), types):
            yield PatchProblem(path=f"{path}[{number}]", message=f"has no {key!r}, by which this list is merged")
        else:
            yield from _of_item(item, inner, f"{path}[{item[key]}]", key, depth)


def _of_item(item: Tree, kind: str, path: str, key: str, depth: int) -> Iterator[PatchProblem]:
    """Yield the problems of an element of a list that is merged; its key says which one it is, and sets nothing."""
    where = path.removesuffix(f"[{item[key]}]")
    if kind == "EnvVar" and item[key] in ASSIGNED:
        yield PatchProblem(path=path, message="is set by launch: it is part of the rendezvous")
    elif kind == "EnvVar" and (is_secret(str(item[key])) or find(str(item.get("value") or ""), str(item[key]))):
        yield PatchProblem(path=path, message="is a secret, and a manifest holds none: cluster.secret")
    else:
        rest = {name: each for name, each in item.items() if name != key}
        yield from _of_type(rest, kind, f"{where}[{item[key]}]", depth + 1)


def _of_kind(patch: Tree, kind: Kind) -> Iterator[PatchProblem]:
    """Yield the fields that this kind of object cannot pass on to its pods."""
    spec = patch.get("spec")
    if not kind.pod_fields or not isinstance(spec, Mapping):
        return
    for name in spec:
        if name in _types()["PodSpec"] and name not in kind.pod_fields:
            message = f"cannot be set by a {kind.title}; works: {' · '.join(kind.pod_fields)} · cluster.kind=jobset"
            yield PatchProblem(path=f"spec.{name}", message=message)
    for group in ("containers", "initContainers"):
        for item in spec.get(group) or () if isinstance(spec.get(group), list | tuple) else ():
            for name in item if isinstance(item, Mapping) else ():
                if name in _types()["Container"] and name not in kind.container_fields:
                    message = f"cannot be set by a {kind.title}; works: {' · '.join(kind.container_fields)}"
                    yield PatchProblem(path=f"spec.{group}[{item.get('name')}].{name}", message=message)


def _of_containers(patch: Tree) -> Iterator[PatchProblem]:
    """Yield containers beside the ranks that keep a pod from ending when the ranks have ended."""
    spec = patch.get("spec")
    found = spec.get("containers") if isinstance(spec, Mapping) else None
    for item in found if isinstance(found, list | tuple) else ():
        name = item.get("name") if isinstance(item, Mapping) else None
        if name is not None and name != NODE:
            yield PatchProblem(
                path=f"spec.containers[{name}]",
                message=f"would keep its pod from ending (the ranks' container is {NODE!r}); works: a sidecar, "
                "which is listed in spec.initContainers with restartPolicy: Always",
            )


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- the merge


def merged(template: Tree, patch: Tree) -> dict[str, Any]:
    """Return a pod template with a patch, as the API server merges it.

    Source: Kubernetes, Update API Objects in Place Using kubectl patch (strategic merge).
    """
    return dict(_merged(template, patch, _ROOT))


def _merged(old: Any, new: Any, kind: str) -> Any:
    if isinstance(new, list | tuple):
        key, _, inner = kind[1:].partition("]") if kind.startswith("[") else ("", "", "o")
        return _merged_list(old if key and isinstance(old, list) else [], new, key, inner)
    if not isinstance(new, Mapping):
        return new
    fields = _types().get(kind, {})
    result = dict(old) if isinstance(old, Mapping) and not _replaces(new) else {}
    for name, value in ((str(name), value) for name, value in new.items() if name != _DIRECTIVE):
        if value is None or (isinstance(value, Mapping) and value.get(_DIRECTIVE) == "delete"):
            result.pop(name, None)
        else:
            inner = fields.get(name, kind[2:] if kind.startswith("{}") else "o")
            result[name] = _merged(result.get(name), value, inner)
    return result


def _merged_list(old: list[Any], new: Sequence[Any], key: str, kind: str) -> list[Any]:
    if not key:
        return [_merged(None, item, kind) for item in new]
    result = [] if any(map(_replaces, new)) else list(old)
    for item in new:
        if set(item) == {_DIRECTIVE}:
            continue
        index = next((number for number, each in enumerate(result) if each.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [each for each in result if each.get(key) != item[key]]
        elif index is None:
            result.append(_merged(None, item, kind))
        else:
            result[index] = _merged(result[index], item, kind)
    return result

"""Two snapshots side by side: which answers differ, grouped by what differs in them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Rules that refuse a file or command line, and those that refuse the job that it is imported as."""

    name: str
    of_file: Sequence[str]
    of_job: Sequence[str]

    @property
    def backend(self) -> str:
        """The backend in the name of the case."""
        return self.name.split("/")[1]

    @property
    def differs(self) -> bool:
        """Whether one is refused and the other is not."""
        return bool(self.of_file) != bool(self.of_job)


def pairs(answers: Mapping[str, Any]) -> Iterator[Pair]:
    """Yield both verdicts of each case that is a file or a command line."""
    for name, answer in answers.items():
        if "as_written" in answer:
            refused = {each["rule"] for each in answer["as_written"] if each["severity"] == "error"}
            yield Pair(name=name, of_file=sorted(refused), of_job=answer["job"]["errors"])


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return each kind of difference with the cases that have it; a kind names the path and both values."""
    found: dict[str, list[str]] = {}
    for name in [*old, *(name for name in new if name not in old)]:
        section = "/".join(name.split("/")[:2])
        if name not in new or name not in old:
            found.setdefault(f"{section}: case {'gone' if name in old else 'new'}", []).append(name)
            continue
        for kind in sorted(set(_between(old[name], new[name]))):
            found.setdefault(f"{section}: {kind}", []).append(name)
    return found


def _between(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in new or key not in old:
                value = old.get(key, new.get(key))
                yield f"{path}.{key} {'gone' if key in old else 'new'}: {_short(value)}"
            else:
                yield from _between(old[key], new[key], f"{path}.{key}")
    elif _is_findings(old) and _is_findings(new):
        yield from _between(_by_rule(old), _by_rule(new), path)
    elif isinstance(old, list) and isinstance(new, list) and all(isinstance(each, str) for each in (*old, *new)):
        yield from (f"{path} gone: {_short(each)}" for each in old if each not in new)
        yield from (f"{path} new: {_short(each)}" for each in new if each not in old)
        if sorted(old) == sorted(new):
            yield f"{path}: other order"
    else:
        yield f"{path}: {_short(old)} -> {_short(new)}"


def _is_findings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) and "rule" in each for each in value)


def _by_rule(findings: list[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for finding in findings:
        name = f"{finding['rule']} {','.join(finding.get('fields', ()))}"
        number = sum(key.partition("#")[0] == name for key in found)
        found[f"{name}#{number}" if number else name] = finding
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 150 else text[:147] + "..."

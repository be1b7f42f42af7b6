"""The versions of a backend as data: `versions.json` beside its catalogues, which `python -m tools.catalogue` edits."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from launcher.catalogue.versions import version_key
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version that a backend knows.

    Attributes:
        name: as `backend.version` names it.
        released: date of upstream's release, or of the commit (ISO).
        core: version of Megatron-LM that it is built on; "": it is none of Megatron-LM's dialects.
        equal: releases whose catalogue is this one's, which are other spellings of it.
    """

    name: str
    released: str = ""
    core: str = ""
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The newest release of the project on the day of the last look (dates are ISO)."""

    newest: str
    released: str
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The versions of a backend, in the order in which a script is tried with them: newest first, branches last."""

    versions: tuple[Version, ...]
    upstream: Upstream
    tag: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the versions."""
        return tuple(version.name for version in self.versions)

    @property
    def core(self) -> Mapping[str, str]:
        """Return the version of Megatron-LM that each version is built on."""
        return {version.name: version.core for version in self.versions}

    @property
    def aliases(self) -> Mapping[str, str]:
        """Return other spellings: `4.6` for the newest 4.6.x, upstream's tags, releases with an equal catalogue."""
        found: dict[str, str] = {}
        for version in sorted(self.versions, key=lambda each: version_key(each.name), reverse=True):
            numbers = version.name.split(".")
            if len(numbers) == 3 and all(each.isdigit() for each in numbers):
                found.setdefault(".".join(numbers[:2]), version.name)
                spelled = (version.name, *version.equal)
                found |= {self.tag.format(each): version.name for each in spelled if self.tag}
            found |= dict.fromkeys(version.equal, version.name)
        return found


@cache
def registered(file: Path) -> Registered:
    """Return the content of a backend's `versions.json`."""
    data = json.loads(file.read_text(encoding="utf-8"))
    versions = tuple(Version(**(row | {"equal": tuple(row.get("equal", ()))})) for row in data["versions"])
    return Registered(versions=versions, upstream=Upstream(**data["upstream"]), tag=data.get("tag", ""))

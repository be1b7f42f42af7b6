"""Packages, checkouts and toolkits that a backend needs, with the versions that upstream names."""

from launcher.catalogue.versions import in_range
from launcher.records import record


@record()
class Needed:
    """One thing that a backend needs, and which versions of it work.

    Attributes:
        name: name of the distribution (`torch`), `python`, `cann`, or the environment variable that names a checkout.
        meaning: description of the checkout that the variable names, for messages.
        module: import name, if it differs from `name`.
        kind: package, python, cann or checkout.
        wanted: versions as a specifier (`>=2.6,<3`); "": any.
        tested: versions that upstream tested, as upstream writes them.
        is_backend: its version is that of the backend, so it must fit the catalogue that arguments are written for.
        since, until: versions of the backend for which this holds, both inclusive; None: no bound.
        devices: kinds of device that need it; empty: all.
        file, pattern: where a checkout defines its version: a file in it, and a regular expression (groups joined).
        install: how to get it.
        source: upstream source of the requirement.
    """

    name: str
    meaning: str = ""
    module: str = ""
    kind: str = "package"
    wanted: str = ""
    tested: str = ""
    is_backend: bool = False
    since: str | None = None
    until: str | None = None
    devices: tuple[str, ...] = ()
    file: str = ""
    pattern: str = ""
    install: str = ""
    source: str

    def holds(self, version: str, device: str | None) -> bool:
        """Return whether a version of the backend needs it, on a kind of device (None: on any)."""
        return in_range(version, self.since, self.until) and (
            not self.devices or device is None or device in self.devices
        )

"""Keeps what a calibration has measured in a file, so that one that was stopped goes on where it was."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.calibrate.measure import Measured
from launcher.outputs.files import write_output
from launcher.outputs.kinds import Kind

_HEAD = b'{"calibration": "'
STATE = Kind(
    title="the state of a calibration",
    recognises=lambda path: path.read_bytes()[: len(_HEAD)] == _HEAD,
    edited=False,
)


class OtherCalibration(ValueError):
    """The file is the state of another calibration, or no state file."""


def mark_of(words: Sequence[str], device: str, steps: int, clock: str) -> str:
    """Return a hash of what every measurement of a calibration depends on; which layouts are measured does not."""
    return hashlib.sha256(json.dumps([list(words), device, steps, clock]).encode()).hexdigest()


class State:
    """What was measured before, by name; what is measured now is added, and written at once where there is a file."""

    def __init__(self, file: str | Path | None, mark: str) -> None:
        """Read the file, if there is one.

        Raises:
            OtherCalibration: it is the state of another calibration.
        """
        self._path = None if file is None else Path(file).expanduser()
        self._mark = mark
        self._runs: dict[str, Measured] = {}
        self.peaks: Mapping[str, Any] | None = None
        """What was measured of the device itself."""
        if self._path is not None and self._path.exists():
            self._read(self._path)
        self.before = len(self._runs)
        """Trainings that the file had."""

    def get(self, name: str) -> Measured | None:
        """Return what was measured under a name."""
        return self._runs.get(name)

    def keep(self, name: str, measured: Measured) -> None:
        """Add a measurement."""
        self._runs[name] = measured
        self._write()

    def keep_peaks(self, peaks: Mapping[str, Any]) -> None:
        """Add the peaks of the device."""
        self.peaks = peaks
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            runs = {name: dataclasses.asdict(each) for name, each in self._runs.items()}
            write_output(self._path, json.dumps({"calibration": self._mark, "peaks": self.peaks, "runs": runs}), STATE)

    def _read(self, path: Path) -> None:
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            self._runs = {str(name): Measured(**each) for name, each in tree["runs"].items()}
            self.peaks, same = tree["peaks"], tree["calibration"] == self._mark
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OtherCalibration(f"{path}: not the state of a calibration ({type(error).__name__})") from None
        if not same:
            raise OtherCalibration(
                f"{path}: the state of another calibration (other job, device, --steps or --clock); name another file"
            )

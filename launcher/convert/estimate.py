"""Estimates the bytes, files and time of a conversion from the disk's measured speed."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.convert.progress import size
from launcher.convert.staging import check_space, existing_parent
from launcher.records import dataclass
from launcher.terminal import duration

if TYPE_CHECKING:
    from launcher.convert.conversion import Prepared

_PROBE = 64 * 1024 * 1024
# Time of verification (reading and hashing) relative to writing; measured on ext4 with a warm cache.
_VERIFY_SHARE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Figures of a dry run: `write_rate` is in bytes per second, measured beside the target; None if not measurable."""

    bytes_needed: int
    bytes_free: int | None
    files: int
    write_rate: float | None
    seconds: float | None

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {"expected": asdict(self)}

    def lines(self) -> list[str]:
        """Return the figures as human-readable lines."""
        free = f" of {size(self.bytes_free)} free" if self.bytes_free is not None else ""
        found = [f"  needs    {size(self.bytes_needed)}{free}, {self.files} files"]
        if self.seconds is not None and self.write_rate is not None:
            found.append(
                f"  time     about {duration(self.seconds)} at {size(self.write_rate)}/s, verification included"
            )
        return [*found, "  nothing was written (--dry-run)"]


def expected(prepared: Prepared) -> Expected:
    """Return the needs of a planned conversion; measures the disk with a temporary file beside the target.

    Raises:
        Unwritable: there is not enough disk space.
    """
    asked = prepared.asked
    needed = prepared.bytes_needed
    check_space(Path(os.path.realpath(asked.out)), needed, prepared.draft.files)
    place = existing_parent(asked.out)
    rate = _write_rate(place, min(_PROBE, max(needed, 1)))
    seconds = None
    if rate is not None:
        seconds = needed / rate * (1 + (_VERIFY_SHARE if asked.verify else 0))
    return Expected(
        bytes_needed=needed,
        bytes_free=shutil.disk_usage(place).free,
        files=prepared.draft.files,
        write_rate=rate,
        seconds=seconds,
    )


def _write_rate(place: Path, count: int) -> float | None:
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            block = os.urandom(min(count, 1 << 20))
            started = time.monotonic()
            for _ in range(max(1, count // len(block))):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return max(1, count // len(block)) * len(block) / max(time.monotonic() - started, 1e-9)
    except OSError:
        return None

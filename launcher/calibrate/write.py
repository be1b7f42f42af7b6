"""The hardware file of a calibration, its table, and its JSON."""

import datetime
import statistics
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from launcher.calibrate.calibrate import Calibration
from launcher.job.hardware import Hardware
from launcher.outputs.kinds import HARDWARE_HEAD

_GOAL = 0.05


def hardware_file(found: Calibration, command: str) -> str:
    """Return the text of the hardware file: `hardware=FILE.yaml` reads it."""
    fitted = found.fitted
    lines = [
        HARDWARE_HEAD,
        f"# Measured by {command}",
        f"# {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC on {found.device}; {_loads(found)}.",
        f"# {_steps(found)}",
        *(f"# {line}" for line in summary(found)),
        f"# It describes what ran: estimate with {' '.join(found.words)}",
    ]
    values = {name: value for name, value in _values(fitted.hardware).items() if name != "measured"}
    made = set(fitted.fields)
    lines += [f"{name}: {_yaml(value)}{' # fitted' if name in made else ''}" for name, value in values.items()]
    lines.append(
        f"measured: {_yaml(f'launch calibrate, {datetime.date.today():%Y-%m-%d}, {len(fitted.rows)} layouts')}"
    )
    return "\n".join(lines) + "\n"


def _values(hardware: Hardware) -> dict[str, Any]:
    """Return the fields that say something, four digits each."""
    empty = Hardware()
    found = {each.name: getattr(hardware, each.name) for each in fields(hardware)}
    kept = {
        name: value
        for name, value in found.items()
        if value != getattr(empty, name) or name in ("device", "memory_gib")
    }
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in kept.items()}


def _yaml(value: Any) -> str:
    import json

    if value is None:
        return "null"
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value, ensure_ascii=False)


def _steps(found: Calibration) -> str:
    clock = "wall time" if found.request.clock == "wall" else "processor time of the first process"
    of = "" if found.threads is None else f", {found.threads} thread{'s' if found.threads > 1 else ''} a process"
    return f"{len(found.fitted.rows)} layouts of {found.request.steps} steps, median {clock}{of}."


def _loads(found: Calibration) -> str:
    return f"load average {found.loads[0]:.1f} before, {found.loads[1]:.1f} after"


def summary(found: Calibration) -> list[str]:
    """Return the errors of fitted and held-out layouts in lines."""
    lines = []
    for held_out, title in ((False, "fitted"), (True, "held out")):
        parts = []
        for memory, what in ((False, "step time"), (True, "peak memory")):
            errors = found.fitted.errors(held_out=held_out, memory=memory)
            if errors:
                parts.append(f"{what} {_mean(errors)} mean, {max(errors, key=abs):+.1%} worst")
        count = len(found.fitted.errors(held_out=held_out))
        if count:
            lines.append(f"{title} ({count} layouts): {'; '.join(parts)}")
    return lines


def _mean(errors: Sequence[float]) -> str:
    return f"{statistics.mean(map(abs, errors)):.1%}"


def conclusions(found: Calibration) -> list[str]:
    """Return what follows from the measurements, in lines."""
    lines = [*summary(found), _steps(found), f"{_loads(found)}"]
    if not found.fitted.errors(held_out=True):
        lines.append("no layout was held out: how far the estimate is from others is not known")
    late = [each for each in found.fitted.errors(held_out=True) if abs(each) > _GOAL]
    if late:
        lines.append(f"{len(late)} of the held-out step times are more than {_GOAL:.0%} off")
    if found.noisy:
        lines.append(f"steps of {len(found.noisy)} layouts differ by more than 5 %: another program ran beside them")
    if found.fitted.unmeasured:
        lines.append(f"not measured by these layouts: {', '.join(found.fitted.unmeasured)}")
    return [*lines, *found.notes]


def as_tree(found: Calibration, file: str) -> dict[str, Any]:
    """Return the calibration as plain data."""
    fitted = found.fitted
    return {
        "file": file,
        "device": found.device,
        "clock": found.request.clock,
        "threads": found.threads,
        "steps": found.request.steps,
        "load": list(found.loads),
        "overrides": list(found.words),
        "hardware": _values(fitted.hardware),
        "fitted": list(fitted.fields),
        "not_measured": list(fitted.unmeasured),
        "errors": {
            title: {
                what: _error(fitted.errors(held_out=held_out, memory=memory))
                for what, memory in (("time", False), ("memory", True))
            }
            for title, held_out in (("fitted", False), ("held_out", True))
        },
        "layouts": [
            {
                "name": row.observation.name,
                "held_out": row.observation.held_out,
                "ranks": row.observation.ranks,
                "step_s": row.observation.step_s,
                "spread": row.observation.spread,
                "steps": row.observation.steps,
                "estimated_step_s": row.step_s,
                "peak_bytes": row.observation.peak_bytes,
                "estimated_peak_bytes": row.peak_bytes,
            }
            for row in fitted.rows
        ],
        "notes": list(found.notes),
    }


def _error(errors: Sequence[float]) -> dict[str, float] | None:
    if not errors:
        return None
    return {"mean": statistics.mean(map(abs, errors)), "worst": max(errors, key=abs)}

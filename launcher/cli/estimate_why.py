"""`launch estimate --why`: figures of every stage, what the stack keeps, and what was assumed."""

from launcher.cli.estimate_screen import folded
from launcher.estimate.effect import NO_EFFECT
from launcher.estimate.memory import GIB
from launcher.estimate.profile import Profile
from launcher.estimate.result import Estimate
from launcher.job import override_text
from launcher.report.text_page import Page
from launcher.report.text_table import table

_PARTS = ("weights", "gradients", "optimizer", "activations", "workspace", "peak_allocated", "peak_reserved")


def why_lines(answer: Estimate, page: Page) -> list[str]:
    """Return what the answer rests on: memory by kind, unequal routing, the stack's profile, assumptions."""
    lines = ["", *_memory(answer, page)]
    for line in _unequal(answer):
        lines += ["", *page.wrap(line, "", "  ")]
    if answer.profile.figures:
        lines += ["", *page.wrap(_profile(answer.profile), "", "  ")]
    if answer.missing:
        lines += ["", page.paint("assumed", "bold")]
        for line in _grouped(answer.missing):
            lines += page.wrap(line, "  ", "    ")
    return lines


def _unequal(answer: Estimate) -> list[str]:
    """Return what unequal routing would cost."""
    found = answer.imbalance
    if found is None:
        return []
    parts = []
    if answer.time is not None and found.step_s is not None:
        parts.append(f"step {100 * (found.step_s / answer.time.step_s - 1):+.1f} %")
    parts.append(f"memory {(found.peak_reserved - answer.fullest.peak_reserved) / GIB:+.1f} GiB")
    tokens = f"with {found.factor:g} times the mean tokens on one device's experts (estimate.expert_imbalance)"
    return [f"{tokens}: {', '.join(parts)}"]


def _profile(profile: Profile) -> str:
    """Return what the stack keeps and does otherwise than Megatron-core; `--json` has the source of each."""
    figures = ", ".join(f"{row.name} {override_text(row.value)}" for row in profile.figures)
    return f"profile of {profile.title}, beside Megatron-core's: {figures}"


def _memory(answer: Estimate, page: Page) -> list[str]:
    """Return a row for each group of equal stages, a column for each kind."""
    rows = [
        [label, *(f"{getattr(stage, part) / GIB:.2f}" for part in _PARTS)] for label, stage in folded(answer.stages)
    ]
    heading = ["GiB", *(part.removeprefix("peak_") for part in _PARTS)]
    lines = table(page, rows, heading, right=range(1, len(heading)))
    return [*lines, f"outside the framework's allocator on each device: {answer.outside / GIB:.2f} GiB"]


def _grouped(missing: tuple[str, ...]) -> list[str]:
    """Put unmeasured figures of the hardware on one line, and fields without effect on another.

    `--json` names each figure with its value.
    """
    unmeasured = [line for line in missing if line.endswith("(not measured)")]
    idle = [line for line in missing if line.endswith(NO_EFFECT)]
    rest = [line for line in missing if line not in unmeasured and line not in idle]
    if idle:
        rest.append(f"set, but without effect on the estimate: {', '.join(line.partition(':')[0] for line in idle)}")
    if unmeasured:
        names = ", ".join(line.split(":")[0].removeprefix("hardware.") for line in unmeasured[:4])
        more = f" and {len(unmeasured) - 4} more" if len(unmeasured) > 4 else ""
        rest.append(f"hardware: {len(unmeasured)} figures not measured on it ({names}{more}; --json has all)")
    return rest

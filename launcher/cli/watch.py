"""`launch status -w`: a run's state and the figures of its training, shown again and again until it ends."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launcher.cli.expected import expected_of
from launcher.executors.record import Record
from launcher.observe.notice import Notice, send
from launcher.observe.prometheus import write_textfile
from launcher.observe.state import State, state_of
from launcher.observe.training import Training, finite, training_of
from launcher.records import dataclass
from launcher.report.text_page import page_of
from launcher.syntax import escaped
from launcher.terminal import can_redraw, duration

# Without fault_tolerance.hang_minutes a run counts as hanging after so many of its iterations, and at least this long.
_SILENT_ITERATIONS, _SILENT_SECONDS = 10, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known of a run at one moment.

    Attributes:
        silent_s: seconds without a new iteration while it runs, where that is a hang; else 0.
    """

    record: Record
    state: State
    training: Training | None
    silent_s: float = 0.0

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield names and texts for a terminal."""
        state = self.state
        yield "state", state.shown
        if self.silent_s:
            yield "silent", f"no new iteration for {duration(self.silent_s)}"
        if state.restarts:
            yield "restarts", str(state.restarts)
        yield from training_rows(self.training)

    def as_tree(self) -> dict[str, Any]:
        """Return it as plain data: one line of JSON."""
        state = self.state
        return {
            "id": self.record.id,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "state": state.state,
            "why": state.why,
            "code": state.code,
            "restarts": state.restarts,
            "silent_s": self.silent_s,
            "training": training_tree(self.training),
        }


def watch(record: Record, *, every: float, as_json: bool, textfile: Path | None, webhook: str | None) -> int:
    """Show a run until it ends; Ctrl-C ends the view only.

    Args:
        every: seconds between two looks.
        textfile: file for Prometheus' textfile collector, written at each look.
        webhook: URL to which the end of the run, or a hang, is posted.
    """
    show = _json if as_json else _screen if can_redraw(sys.stdout) else _plain
    try:
        show(_looks(record, every, textfile, webhook))
    except KeyboardInterrupt:
        print(f"launch: {record.id} goes on; launch stop {record.id} ends it", file=sys.stderr)
        raise
    return 0


def _looks(record: Record, every: float, textfile: Path | None, webhook: str | None) -> Iterator[Look]:
    """Yield what is known of the run, again and again; the last time when it has ended."""
    last: float | None = None
    since, notified, problem = time.monotonic(), False, ""
    while True:
        state = state_of(record)
        training = training_of(record, lambda: expected_of(Path(record.folder)), ended=state.ended)
        iteration = training.figures.iteration if training is not None else None
        if iteration != last or state.state != "running":
            last, since, notified = iteration, time.monotonic(), False
        silent = time.monotonic() - since
        step = training.figures.step_s if training is not None else None
        limit = expected_of(Path(record.folder)).hang_s if step is not None else None
        limit = limit or max(_SILENT_SECONDS, _SILENT_ITERATIONS * (step or 0.0))
        look = Look(
            record=record, state=state, training=training, silent_s=silent if step is not None and silent > limit else 0
        )
        if textfile is not None:
            problem = _written(textfile, look, problem)
        if webhook is not None and (state.ended or (look.silent_s and not notified)):
            notified = True
            _notify(webhook, look)
        yield look
        if state.ended:
            return
        time.sleep(every)


def _written(file: Path, look: Look, before: str) -> str:
    """Write the file for Prometheus; return, and if it is a new problem print, why it cannot be written."""
    try:
        write_textfile(file, look.record, look.state, look.training)
    except OSError as error:
        problem = f"launch: {file} was not written: {error.strerror or error}"
        if problem != before:
            print(escaped(problem), file=sys.stderr)
        return problem
    return ""


def _notify(webhook: str, look: Look) -> None:
    state = look.state
    what = f"no new iteration for {duration(look.silent_s)}" if look.silent_s else state.state
    why = f": {state.why}" if state.why else ""
    problem = send(webhook, Notice(text=f"{look.record.id}: {what}{why}", run=look.as_tree()))
    if problem:
        print(f"launch: the webhook did not receive the notice: {problem}", file=sys.stderr)


def _json(looks: Iterator[Look]) -> None:
    for look in looks:
        print(json.dumps(look.as_tree(), ensure_ascii=False), flush=True)


def _plain(looks: Iterator[Look]) -> None:
    """Print a line whenever something has changed: for a log."""
    shown = ""
    for look in looks:
        items = [escaped(f"{name} {text}") for name, text in look.rows()]
        text = " · ".join(items)
        if text != shown:
            lines = page_of(sys.stdout).join(items, f"{escaped(look.record.id)}: ", "  ")
            print("\n".join(lines), flush=True)
        shown = text


def _screen(looks: Iterator[Look]) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False) as live:
        for look in looks:
            table = Table.grid(padding=(0, 2))
            table.add_row(Text(look.record.id, style="bold"), Text(escaped(look.record.what)))
            for name, text in look.rows():
                table.add_row(Text(name), Text(escaped(text)))
            live.update(table, refresh=True)


def training_rows(training: Training | None) -> Iterator[tuple[str, str]]:
    """Yield the figures of a training, with their units, as `status` shows them."""
    if training is None:
        return
    figures = training.figures
    if figures.iteration is not None:
        total = f" of {figures.iterations:,.0f}" if figures.iterations else ""
        skipped = f", {figures.skipped:.0f} skipped" if figures.skipped else ""
        yield "iteration", f"{figures.iteration:,.0f}{total}{skipped}"
    if figures.loss is not None:
        norm = f", grad norm {figures.grad_norm:.4g}" if figures.grad_norm is not None else ""
        yield "loss", f"{figures.loss:.6g}{norm}"
    if figures.step_s is not None:
        expected = training.expected_step_s
        beside = f" (expected {expected:.3g} s, {figures.step_s / expected - 1:+.0%})" if expected else ""
        yield "step", f"{figures.step_s:.3g} s{beside}"
    speed = [
        f"{training.tokens_per_s_per_device:,.0f} tokens/s per device" if training.tokens_per_s_per_device else "",
        f"{figures.tflops_per_device:.4g} TFLOP/s per device" if figures.tflops_per_device else "",
        f"MFU {training.mfu:.1%}" if training.mfu is not None else "",
    ]
    if any(speed):
        yield "speed", ", ".join(filter(None, speed))
    if figures.memory_gib is not None:
        yield "memory", f"{figures.memory_gib:.1f} GiB"
    if figures.slowest_rank is not None:
        yield "slowest", f"rank {figures.slowest_rank:.0f}"
    if training.eta_s:
        yield "left", duration(training.eta_s)
    if training.missing:
        yield "no MFU", training.missing


def training_tree(training: Training | None) -> dict[str, Any] | None:
    """Return the figures of a training as plain data; NaN is null."""
    if training is None:
        return None
    figures = training.figures
    return {
        **{name: finite(getattr(figures, name)) for name in figures.__dataclass_fields__},
        "tokens_per_s_per_device": training.tokens_per_s_per_device,
        "mfu": training.mfu,
        "eta_s": training.eta_s,
        "expected_step_s": training.expected_step_s,
        "missing": training.missing,
    }

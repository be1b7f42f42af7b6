"""`launch calibrate`: a hardware file from short trainings on this machine."""

import math
import shlex
import sys

from launcher.cli.options import parse, parser, print_json, writable, write_file
from launcher.cli.refusal import NotDone, WrongUse
from launcher.job.secret import without_secrets
from launcher.outputs.kinds import HARDWARE
from launcher.plan.shell import quote
from launcher.report.text_page import page_of, print_lines
from launcher.terminal import can_redraw

_STEPS, _ROUNDS = 8, 3


def main(words: list[str]) -> int:
    """Calibrate; exit 0 with a hardware file, 1 where nothing can be measured, 2 for usage, 130 for Ctrl-C."""
    made = parser(
        "calibrate",
        "Train small models of the job here for a few steps each, and fit a hardware file to their time and memory.",
        "launch calibrate +recipe=tiny_qwen3 -o hw.yaml, then: launch estimate +recipe=tiny_qwen3 hardware=hw.yaml",
    )
    made.add_argument("-o", "--out", metavar="FILE.yaml", required=True, help="hardware file to write")
    made.add_argument("--steps", type=int, default=_STEPS, metavar="N", help=f"measured of each, default: {_STEPS}")
    made.add_argument(
        "--layouts", type=int, metavar="N", help="measured at most, those of one process first; default: all"
    )
    made.add_argument(
        "--rounds",
        type=int,
        default=_ROUNDS,
        metavar="N",
        help=f"trainings of a layout whose steps differ, at most; default: {_ROUNDS}",
    )
    made.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="time of a step; processor: of its process alone, on a CPU that does other work (no pipeline stages)",
    )
    made.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="in which all trainings are to end; fitted is then what was measured; default: no limit",
    )
    made.add_argument(
        "--resume", metavar="FILE.json", help="keep what is measured in this file, and go on from it; default: none"
    )
    options = parse(made, words)
    from launcher.calibrate.calibrate import CannotCalibrate, Request, calibrate
    from launcher.calibrate.state import STATE
    from launcher.calibrate.write import as_tree, hardware_file
    from launcher.cli.calibrate_screen import screen
    from launcher.estimate.estimate import CannotEstimate

    for flag, value, least in (
        ("--steps", options.steps, 3),
        ("--layouts", options.layouts, 4),
        ("--rounds", options.rounds, 1),
    ):
        if value is not None and value < least:
            raise WrongUse(f"{flag} {value}: must be at least {least}", f"{flag} {least}")
    if options.minutes is not None and not 0 < options.minutes < math.inf:
        raise WrongUse(f"--minutes {options.minutes:g}: must be a number above 0", "--minutes 10")
    writable("-o", options.out, HARDWARE, ".yaml", ".yml")
    writable("--resume", options.resume, STATE, ".json")
    request = Request(
        overrides=options.overrides,
        config_dirs=options.config_dir,
        steps=options.steps,
        layouts=options.layouts,
        rounds=options.rounds,
        clock=options.clock,
        minutes=options.minutes,
        state=options.resume,
    )
    progress = _Progress(quiet=options.json)
    try:
        found = calibrate(request, show=progress.line, advanced=progress.advance)
    except CannotEstimate as error:
        raise NotDone(findings=error.findings) from None
    except CannotCalibrate as error:
        if error.findings:
            raise NotDone(error.message, findings=error.findings) from None
        log = f" (log: {error.log})" if error.log else ""
        raise NotDone(error.message + log, *error.works, rule="CALIBRATE-REFUSED") from None
    finally:
        progress.end()
    command = " ".join(shlex.join(["launch", "calibrate", *without_secrets(words)]).split())
    write_file(options.out, hardware_file(found, command), HARDWARE)
    if options.json:
        print_json(as_tree(found, options.out))
    else:
        print("\n".join(screen(found, page_of(sys.stdout))))
        print_lines([f"written: {options.out}; use it as {quote(f'hardware={options.out}')}"], sys.stdout)
    return 0


class _Progress:
    """One line for each training; on a terminal its iterations are redrawn in place."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.drawn, self.open = not quiet and can_redraw(sys.stderr), False

    def line(self, text: str) -> None:
        self.end()
        if not self.quiet:
            print_lines([text], sys.stderr)

    def advance(self, label: str, done: int, total: int) -> None:
        if self.drawn:
            print(f"\r{label}: iteration {done}/{total} ", end="", file=sys.stderr, flush=True)
            self.open = True

    def end(self) -> None:
        if self.open:
            print(file=sys.stderr, flush=True)
        self.open = False

"""Set-up of the command-line process: signal handlers from the start, and standard streams that never raise.

Only `launch` and `python -m launcher` use this. A program that calls `main([...])` keeps its own handlers and streams.
"""

import gc
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, NoReturn

INTERRUPTED, TERMINATED = 130, 143
_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_SAID = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class Terminated(KeyboardInterrupt):
    """SIGTERM while a verb runs: it cleans up as after Ctrl-C, and exits with 143."""


class _State:
    """The received signal. A library may swallow the exception that it raises; the exit code must still reflect it."""

    prepared = False
    received: int | None = None


def prepare() -> None:
    """Install signal handlers and standard streams; called before any heavy import."""
    _open_standard_files()
    for number in _CODES:
        # A signal that the parent process ignores (nohup, a background job of a shell) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave_at_once)
    _State.prepared = True
    from launcher.cli.streams import protect

    protect()
    sys.unraisablehook = _unraisable
    sys.excepthook = _uncaught


def work_begins(verb: str) -> None:
    """Let signals raise an exception instead of ending the process: a verb may now have something to clean up."""
    if not _State.prepared:
        return
    from launcher.cli.streams import stop_without_reader

    stop_without_reader(verb)
    for number in _CODES:
        if signal.getsignal(number) is _leave_at_once:
            signal.signal(number, _raise)


def work_ended() -> None:
    """Let signals end the process at once: nothing is left to clean up."""
    if not _State.prepared:
        return
    for number in _CODES:
        if signal.getsignal(number) is _raise:
            signal.signal(number, _leave_at_once)


def finish(code: int) -> int:
    """Flush the standard streams and return the exit code, which is 1 if the output could not be written.

    Signals are ignored from here on: the output is complete, and they would kill the interpreter while it shuts down.
    """
    from launcher.cli.streams import close

    work_ended()
    if code in _SAID:
        # CPython records an interrupt inside exec() of text, as in the creation of a dataclass, even if it was handled,
        # and `python -m` then ends by the signal, not with this code (pymain_run_module). This clears the record.
        exec("")
    trouble = close()
    if trouble and code == 0:
        code = 1
    if _State.prepared:
        for number in _CODES:
            signal.signal(number, signal.SIG_IGN)
        # The process ends: looking through all of its objects for cycles takes a tenth of a short command's time.
        gc.freeze()
    return code


def received() -> int | None:
    """Return the exit code of the signal that was received while a verb ran; None: there was none."""
    return _State.received


def signal_message(code: int) -> str:
    """Return the message for the exit code of a signal."""
    return _SAID[code]


def _leave_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Exit without unwinding: the interpreter would print the traceback of an exception raised during an import."""
    del frame
    try:
        os.write(2, f"{_SAID[_CODES[signal.Signals(number)]]}\n".encode())
    finally:
        os._exit(_CODES[signal.Signals(number)])


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    _State.received = _CODES[signal.Signals(number)]
    if number == signal.SIGTERM:
        raise Terminated
    raise KeyboardInterrupt


def _open_standard_files() -> None:
    """Open closed standard streams (`>&-`) to the null device: the next file would take their number and output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _unraisable(unraisable: Any) -> None:
    """Handle exceptions where none can be raised (callbacks, destructors): a signal is delivered again."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        signal.raise_signal(number)
        return
    from launcher.cli.internal_error import write_details

    write_details(unraisable.exc_value, "in a destructor or callback")


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Handle exceptions that the command line's own handler did not, such as a second Ctrl-C while it ran."""
    del traceback
    if issubclass(kind, KeyboardInterrupt):
        _leave_at_once(signal.SIGINT, None)
    from launcher.cli.internal_error import one_line

    print(one_line(error), file=sys.stderr)

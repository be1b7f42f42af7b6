"""The command line as a process of its own: signals from the first instant, and standard streams that never raise.

Only `launch` and `python -m launcher` use this. A program that calls `main([...])` keeps its own handlers and streams.
"""

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, NoReturn

INTERRUPTED, TERMINATED = 130, 143
_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_SAID = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class Terminated(KeyboardInterrupt):
    """SIGTERM while a verb works: it cleans up as after Ctrl-C, and exits with 143."""


class _State:
    """What was received. A library may swallow the exception that a signal raises; the exit code must still tell."""

    prepared = False
    received: int | None = None


def prepare() -> None:
    """Take over signals and standard streams; called before anything heavy is imported."""
    _open_standard_files()
    for number in _CODES:
        # Ignored by the parent process (nohup, a background job of a shell): that stays.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave_at_once)
    _State.prepared = True
    from launcher.cli.streams import protect

    protect()
    sys.unraisablehook = _unraisable
    sys.excepthook = _uncaught


def work_begins(verb: str) -> None:
    """From here on a verb may have something to clean up: signals raise an exception instead of ending the process."""
    if not _State.prepared:
        return
    from launcher.cli.streams import stop_without_reader

    stop_without_reader(verb)
    for number in _CODES:
        if signal.getsignal(number) is _leave_at_once:
            signal.signal(number, _raise)


def work_ended() -> None:
    """Nothing is left to clean up: from here on a signal ends the process at once."""
    if not _State.prepared:
        return
    for number in _CODES:
        if signal.getsignal(number) is _raise:
            signal.signal(number, _leave_at_once)


def finish(code: int) -> int:
    """Flush the standard streams and return the exit code, which is 1 where the answer could not be written.

    Signals are ignored from here on: the answer is given, and the interpreter, while it ends, would die of them.
    """
    from launcher.cli.streams import close

    work_ended()
    if code in _SAID:
        # CPython remembers an interrupt inside exec() of text, as in a dataclass that is being made, even where it was
        # answered, and `python -m` then ends by the signal and not with this code (pymain_run_module). This forgets it.
        exec("")
    trouble = close()
    if trouble and code == 0:
        code = 1
    if _State.prepared:
        for number in _CODES:
            signal.signal(number, signal.SIG_IGN)
    return code


def received() -> int | None:
    """Return the exit code of the signal that was received while a verb worked; None: there was none."""
    return _State.received


def said(code: int) -> str:
    """Return what is said of an exit code that stands for a signal."""
    return _SAID[code]


def _leave_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End without unwinding: an exception in the middle of an import is shown with its traceback by the interpreter."""
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
    """Open what is closed (`>&-`) to nowhere: the next file that is opened would take its number, and its output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _unraisable(unraisable: Any) -> None:
    """Answer exceptions where none can be raised (callbacks, destructors): a signal is delivered again."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        number = signal.SIGTERM if isinstance(unraisable.exc_value, Terminated) else signal.SIGINT
        signal.raise_signal(number)
        return
    from launcher.cli.internal_error import write_details

    write_details(unraisable.exc_value, "in a destructor or callback")


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Answer what even the command line's own handler let through, such as a second Ctrl-C while it worked."""
    del traceback
    if issubclass(kind, KeyboardInterrupt):
        _leave_at_once(signal.SIGINT, None)
    from launcher.cli.internal_error import one_line

    print(one_line(error), file=sys.stderr)

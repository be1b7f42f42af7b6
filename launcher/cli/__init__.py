"""The command line. This module imports almost nothing, so that `launch --help` is instant."""

import gc
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 refused or failed, 2 wrong usage, 130 Ctrl-C.

    Args:
        argv: command-line arguments; None: those of this process, whose signal handlers and streams are replaced.
    """
    if argv is not None:
        return _run(list(argv))
    try:
        from launcher.cli.late_module import import_late

        # Of each object made at start-up, most stay alive: looking for cycles takes a tenth of a short command's time.
        gc.set_threshold(50_000, 20, 20)
        # `dataclasses` imports it for signatures in docstrings, of which we have none: 9 of 140 ms.
        import_late("inspect")
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what completes a line: every further import costs time
            from launcher.cli.complete import main as complete

            return complete()
        # Before other imports: Ctrl-C during an import would print a traceback.
        from launcher.cli import process

        process.prepare()
        code = _run(sys.argv[1:])
        return process.finish(code)
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        os._exit(130)


def _run(words: list[str]) -> int:
    try:
        from launcher.cli.dispatch import dispatch

        code = dispatch(words)
        sys.stdout.flush()
    except BaseException as error:
        from launcher.cli import process

        process.work_ended()
        signalled = process.received() or (process.INTERRUPTED if isinstance(error, KeyboardInterrupt) else None)
        if signalled is not None:
            print(process.signal_message(signalled), file=sys.stderr)
            return signalled
        from launcher.cli.internal_error import exit_code

        return exit_code(error, words)
    return code

"""The command line. Importing this costs next to nothing: `launch --help` must be instant."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 refused or failed, 2 wrong usage."""
    from launcher.cli.dispatch import dispatch

    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has gone; so is every reason to go on.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code

"""Runs the commands of the documentation and compares what they print with what the pages record.

    python -m tools.docs.commands [--write] [PAGE …]

Without pages: all of them. `--write` records the output anew in the page and in its translation, elided (`…`) where it
was; look at the difference before it is committed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.commands import SocketServer
from tools.docs.commands.pages import commands_pages, failures, rewrite


def main() -> int:
    """Run the pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the output anew")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, SocketServer(Path(folder)) as server:
        for number, page in enumerate(options.pages or commands_pages()):
            place = Path(folder, str(number))
            place.mkdir()
            found = rewrite(page, place, server) if options.write else failures(page, place, server)
            print(f"{page}: {'ok' if not found else f'{len(found)} differ'}", flush=True)
            for text in found:
                print(text, file=sys.stderr)
            bad += len(found)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

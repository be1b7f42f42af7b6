"""Did the tests leave processes, ports or files behind?

    python tools/ci/left_behind.py FILE.json      before: writes what is there
    python tools/ci/left_behind.py FILE.json      after: says what is new; exit code 1 if anything is

Counted are processes with this checkout or pytest's folders in their command line or working directory, TCP ports that
such a process listens on, entries of the temporary folder that are not pytest's own, and files in the checkout that git
neither tracks nor ignores.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
MARKS = (str(ROOT), "pytest-of-")


def processes() -> dict[str, psutil.Process]:
    """Return the tests' processes by number and start."""
    me = psutil.Process()
    ours = {me.pid, *(parent.pid for parent in me.parents())}
    found = {}
    for process in psutil.process_iter():
        try:
            args = " ".join(process.cmdline()) + " " + process.cwd()
            if process.pid not in ours and process.status() != "zombie" and any(mark in args for mark in MARKS):
                found[f"process {process.pid} {process.create_time():.0f}: {args[:160]}"] = process
        except psutil.Error:
            continue
    return found


def ports(of: dict[str, psutil.Process]) -> list[str]:
    """Return the ports on which processes listen."""
    found = []
    for process in of.values():
        try:
            listening = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        except psutil.Error:
            continue
        found += [f"port {each.laddr.port} of process {process.pid}" for each in listening]
    return found


def files() -> list[str]:
    """Return what lies in the temporary folder and, unknown to git, in the checkout."""
    own = [f"file {path}" for path in Path(tempfile.gettempdir()).iterdir() if not path.name.startswith("pytest-of-")]
    asked = ["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return [*own, *(f"file {ROOT / name}" for name in listed.splitlines())]


def main() -> int:
    """Write the state, or compare with the one written before."""
    file = Path(sys.argv[1])
    if not file.exists():
        file.touch()  # it may lie in the temporary folder itself
        file.write_text(json.dumps([*processes(), *files()]), encoding="utf-8")
        return 0
    before = set(json.loads(file.read_text(encoding="utf-8")))
    end = time.monotonic() + 20
    while True:
        left = {name: process for name, process in processes().items() if name not in before}
        if not left or time.monotonic() > end:
            break
        time.sleep(0.5)
    new = [*left, *ports(left), *(name for name in files() if name not in before)]
    print("\n".join(f"left behind: {name}" for name in new) or "nothing was left behind")
    file.unlink()
    return 1 if new else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Run cases as a user would: the real command in a process of its own, under the conditions that the table names."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.hostile.table import Case, write_files

# Seconds of processor time, which a busy machine does not change; and of waiting for nothing.
CPU, WALL = 5, 60.0
_MEMORY_KIB = 6 * 2**20
_SHELL = {
    "full": '"$@" > /dev/full',
    "closed": '"$@" >&-',
    "noerr": '"$@" 2>&-',
    "errfull": '"$@" 2> /dev/full',
    "nothing": '"$@" <&- >&- 2>&-',
    "gone": '"$@" | true; exit ${PIPESTATUS[0]}',
    "deleted": 'folder=$(mktemp -d) && cd "$folder" && rmdir "$folder" && "$@"',
}
_ENVIRONMENT = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin1": {"PYTHONIOENCODING": "latin-1"},
    "c": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "dumb": {"TERM": "dumb", "NO_COLOR": "1"},
    "nohome": {"HOME": "/nonexistent", "LAUNCH_HOME": "/nonexistent/launch"},
    "homefile": {"LAUNCH_HOME": "/dev/null"},
}
# What an interpreter prints of what its program did not answer.
_SIGNS = ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error", "internal error:")
# What stands in a traceback of ours; without it, a signal has met the interpreter's own start.
_OURS = ("launch_llm", "launcher/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a command did."""

    case: Case
    code: int
    first: str
    has_traceback: bool
    seconds: float
    problem: str = ""

    @property
    def row(self) -> str:
        """Return the line of the printed table."""
        first = self.first.encode("ascii", "backslashreplace").decode()
        mark = "yes" if self.has_traceback else "no"
        return f"{self.case.name[:110]:110} {self.code:4} {self.seconds:6.2f}  {mark:3}  {self.problem or first[:160]}"


def run_all(cases: Iterable[Case], folder: Path, workers: int) -> Iterator[Result]:
    """Write the files below a folder, run the cases there, and yield what each did in their order."""
    write_files(folder)
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda case: run(case, folder), cases)


def run(case: Case, folder: Path) -> Result:
    """Run one case."""
    delay = next((float(each.removeprefix("int=")) for each in case.conditions if each.startswith("int=")), None)
    result, text = _run(case, folder, delay)
    while delay is not None and is_too_early(text) and delay < 2:
        delay *= 2  # a busy machine: the interpreter itself was still starting
        result, text = _run(case, folder, delay)
    return result


def is_too_early(text: str) -> bool:
    """Tell whether a signal came before the first line of the program was read, where nothing can answer it."""
    return ("Traceback" in text or "Could not import runpy" in text) and not any(sign in text for sign in _OURS)


def _run(case: Case, folder: Path, delay: float | None) -> tuple[Result, str]:
    body = next((_SHELL[each] for each in case.conditions if each in _SHELL), 'exec "$@"')
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": str(folder / "home")}
    for each in case.conditions:
        environment |= _ENVIRONMENT.get(each, {})
    args = [os.fsencode(arg) for arg in case.words]
    command = [
        "bash",
        "-c",
        f"ulimit -v {_MEMORY_KIB} -t {CPU}; {body}",
        "bash",
        sys.executable,
        "-m",
        "launcher",
        *args,
    ]
    began = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            if delay is not None:
                time.sleep(delay)
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WALL)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
    seconds = time.monotonic() - began
    reported = (err + b"\n" + out).decode("utf-8", "backslashreplace")
    first = next((line for line in reported.splitlines() if line.strip()), "")
    has_traceback = any(sign in reported for sign in _SIGNS)
    problem = _problem(case, process.returncode, has_traceback, seconds, out)
    result = Result(
        case=case,
        code=process.returncode,
        first=first,
        has_traceback=has_traceback,
        seconds=seconds,
        problem=f"{problem}: {first[:200]}" if problem else "",
    )
    return result, reported


def _problem(case: Case, code: int, has_traceback: bool, seconds: float, out: bytes) -> str:
    if has_traceback:
        return "NOT ANSWERED"
    if seconds > WALL:
        return "HANGS"
    if -code in (signal.SIGXCPU, signal.SIGKILL) or code - 128 in (signal.SIGXCPU, signal.SIGKILL):
        return f"MORE THAN {CPU} s"
    if code not in case.codes:
        return f"EXIT CODE {code}"
    if "--json" in case.words and not {"full", "closed", "nothing", "gone", "int"} & set(case.conditions):
        try:
            json.loads(out)
        except ValueError:
            return "NO JSON"
    return ""

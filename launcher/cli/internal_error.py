"""Unhandled exceptions: one line, one JSON document with --json, and the traceback in a file only the user can read."""

import contextlib
import errno
import json
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

RULE = "CMD-INTERNAL"
_KEPT = 20  # number of files with details that are kept
_LONGEST = 300  # characters of a message
# The dependencies in pyproject.toml and their own, as they are imported: a missing one cannot be asked for its name.
# Packages of an extra are named where they are used.
REQUIRED = frozenset(
    (
        *("argcomplete", "hydra", "omegaconf", "packaging", "rich"),
        *("antlr4", "markdown_it", "mdurl", "pygments", "yaml"),
    )
)
# The folder two levels up: source locations are shown relative to it.
_PROGRAM = Path(__file__).resolve().parents[2]


def exit_code(error: BaseException, words: Sequence[str]) -> int:
    """Print what ended the program on one line and return the exit code."""
    verb = _verb(words)
    if isinstance(error, SystemExit):
        return _of_exit(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    message, details = described(error, _command(words))
    shown = f"{message}; details: {details}" if details else message
    if _wants_json(words):
        print(json.dumps(_tree(message, details, many="-m" in words or "--multirun" in words), indent=2))
    print(f"launch {verb}".strip() + f": {shown}", file=sys.stderr)
    return 1


def described(error: BaseException, command: str) -> tuple[str, str | None]:
    """Return the message for an exception that nothing answered, and the file of its details, where it is a bug."""
    message = _reason(error)
    if message:
        return message, None
    return _internal(error), write_details(error, command)


def one_line(error: BaseException) -> str:
    """Return the message for an exception that cannot be handled in any other way, with the file of its details."""
    details = write_details(error, "launch")
    return f"launch: {_internal(error)}" + (f"; details: {details}" if details else "")


def write_details(error: BaseException, what: str) -> str | None:
    """Write the traceback to a file that only the user can read; return its path, None where none can be written."""
    try:
        text = "".join(traceback.format_exception(error, limit=100))
        text = _without_secrets(f"command: {what}\npython: {sys.version}\n{text}")
    except Exception:
        return None
    name = f"error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (_home, _temporary):
        with contextlib.suppress(Exception):
            path = folder() / name
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
            with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
            return str(path)
    return None


def _home() -> Path:
    from launcher.executors.register import home

    folder = home() / "errors"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in sorted(folder.glob("error-*.txt"))[: -_KEPT + 1]:
        old.unlink(missing_ok=True)
    return folder


def _temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="launch-error-"))  # mode 0700, random name


def _of_exit(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _reason(error: BaseException) -> str:
    """Return the reason if the machine, not the program, caused the error; "": the program did."""
    if isinstance(error, MemoryError):
        return "this machine does not have enough memory"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in REQUIRED:
        source = f"-e {shlex.quote(str(_PROGRAM))}" if (_PROGRAM / "pyproject.toml").is_file() else "launch-llm"
        python = shlex.quote(sys.executable)
        return f"the Python package {error.name} is missing from {python}; works: {python} -m pip install {source}"
    if not isinstance(error, OSError):
        return ""
    if error.errno == errno.ENOENT and error.filename is None and not _has_directory():
        return "the current directory has been removed; works: cd to another one"
    if error.filename is None and error.errno in MACHINE:
        return f"{error.strerror}; works: {MACHINE[error.errno]}"
    return ""


MACHINE = {
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "free some space: the quota is used up",
    errno.EROFS: "write to another disk: this one is read-only",
    errno.EMFILE: "ulimit -n 4096",
    errno.ENFILE: "close other programs: the machine has too many files open",
    errno.ENOMEM: "free some memory",
    errno.EAGAIN: "ulimit -u, or end other processes",
    errno.EIO: "another disk: this one fails",
}
"""What to do about errors of the system, whatever the program."""


def _has_directory() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _internal(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    message = _without_secrets(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
    message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
    return f"internal error: {message}{_place(error)}; this is a bug in Launch"


def _place(error: BaseException) -> str:
    """Return the innermost line of this program that the exception passed through."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_PROGRAM) and "site-packages" not in path.relative_to(_PROGRAM).parts:
            found = f" ({path.relative_to(_PROGRAM)}:{line})"
    return found


def _without_secrets(text: str) -> str:
    from launcher.job.secret import redacted

    return redacted(text)


def _command(words: Sequence[str]) -> str:
    from launcher.job.secret import without_secrets

    return " ".join(["launch", *without_secrets(words)])


def _verb(words: Sequence[str]) -> str:
    return words[0] if words and words[0].replace("-", "").isalpha() and not words[0].startswith("-") else ""


def _wants_json(words: Sequence[str]) -> bool:
    own = list(words[: words.index("--")]) if "--" in words else list(words)
    return "--json" in own or "--format=json" in own or " --format json " in f" {' '.join(own)} "


def _tree(message: str, details: str | None, *, many: bool) -> object:
    from launcher.job.finding import Finding

    finding = Finding(rule=RULE, severity="error", message=message, source="launch")
    tree = {"ok": False, "message": message, "details": details, "findings": [finding.as_tree()]}
    return [tree] if many else tree

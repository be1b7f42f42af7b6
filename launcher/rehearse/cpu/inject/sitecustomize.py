"""Imported by Python at start-up through PYTHONPATH; installs the stand-ins in rank processes only."""

import fnmatch
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))
_OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")


class _OwnPackages(importlib.abc.MetaPathFinder):
    """Finds this project's packages without adding their folder (possibly another site-packages) to sys.path."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.names:
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, [_ROOT], target)


def _script() -> str:
    """Return the absolute path of the script that this interpreter was started with; empty for -m, -c and no script."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word in _OPTIONS_WITH_VALUE:
            next(words, None)
        elif word.startswith(("-c", "-m")) or word == "-":
            return ""
        elif not word.startswith("-"):
            return os.path.abspath(word)
    return ""


def _chain() -> None:
    """Run the sitecustomize that this one hides, as Python would have done."""
    others = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _refuse(rank: str, error: BaseException) -> None:
    """End this process: site.py would swallow the error and the script would run with half of the stand-ins."""
    if os.environ.get("LAUNCH_REHEARSAL_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    sys.stderr.write(
        f"rehearsal: rank {rank} was not started: the stand-ins for a machine without an accelerator "
        f"could not be installed: {said}\n"
        "rehearsal: LAUNCH_REHEARSAL_TRACEBACK=1 shows where.\n"
    )
    sys.stderr.flush()
    os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def _main() -> None:
    address = os.environ.get("LAUNCH_REHEARSAL_NATIVE", "")
    rank = os.environ.get(os.environ.get("LAUNCH_REHEARSAL_RANK", "RANK"), "")
    pattern = os.environ.get("LAUNCH_REHEARSAL_SCRIPT", "")
    script = _script().replace(os.sep, "/")
    if not (address and rank and pattern and script and fnmatch.fnmatch(script, pattern)):
        return
    try:
        sys.meta_path.insert(0, _OwnPackages({"launcher", address.partition(".")[0]}))
        importlib.import_module("launcher.rehearse.cpu.standins").enter(address, rank=rank, script=script)
    except BaseException as error:  # SystemExit too: the script must not run with an incomplete installation
        _refuse(rank, error)


_chain()
_main()

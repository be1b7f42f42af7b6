"""What runs in the worker processes: one call at a time, within the jail."""

import gc
import signal
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from launcher.ui.jail import Jail

# One job a backend: its catalogue, rules and tables are read once, before the processes are forked.
_WARM = ("model=qwen3_8b", "task=pretrain", "hardware=h100_80g", "batch.seq_length=4096", "batch.global_batch_size=64")


def begin(folders: Sequence[str]) -> None:
    """Restrict a new worker process."""
    # Ctrl-C reaches every process of the terminal; the server's own ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Jail(folders).enter()


def call(name: str, *args: Any) -> tuple[str, Any]:
    """Call `MODULE.FUNCTION` of this package: `answer` and its result, or `error` and one sentence.

    Exceptions stay here: not every one can be sent to another process, and none is shown as it is.
    """
    module, _, function = name.partition(".")
    try:
        return "answer", getattr(import_module(f"launcher.ui.{module}"), function)(*args)
    except MemoryError:
        return "error", "it needs too much memory"
    except Exception as error:
        return "error", sentence(error)


def ended_by(code: int | None) -> str:
    """Return why a worker process is gone, by its exit code; negative: the signal that ended it."""
    if code == -signal.SIGKILL:
        return "its process was killed (SIGKILL), as Linux does when memory runs out"
    if code is not None and code < 0:
        name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
        return f"its process was ended by {name}"
    return f"its process ended with exit code {code}" if code else "its process ended without an answer"


def sentence(error: Exception) -> str:
    """Return the first line of an exception's text, without secrets."""
    from launcher.job.secret import redacted

    lines = [line for line in str(error).splitlines() if line.strip()]
    return redacted(lines[0][:300] if lines else type(error).__name__)


def warm() -> None:
    """Import what answers need, and read each backend's data; a call that fails here fails again where it is shown."""
    from launcher.mapping.backend import backend_names
    from launcher.ui import answers

    for name in backend_names():
        answers.plan([*_WARM, f"backend={name}"])
    gc.collect()
    gc.freeze()

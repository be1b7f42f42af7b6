"""Executors by the value of `cluster.executor`; each is loaded on use."""

from importlib import import_module

from launcher.executors.protocol import Executor

# `local` and `environment` start a process here and have no such module: see local.py and environment.py.
EXECUTORS = {
    "ssh": "launcher.executors.ssh",
    "slurm": "launcher.executors.slurm",
    "kubernetes": "launcher.executors.kubernetes",
}


def get_executor(name: str) -> Executor | None:
    """Return the executor of that name; None if the plan runs on this machine."""
    module = EXECUTORS.get(name)
    if module is None:
        return None
    found: Executor = import_module(module).EXECUTOR
    return found

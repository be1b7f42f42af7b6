"""Jobs on this machine, with faults of its processes, its disk and its files."""

import os
from typing import ClassVar

from tools.bench.faults.stage import Stage


class LocalStage(Stage):
    """The launcher itself starts the command and watches it."""

    PARTS: ClassVar[dict[str, tuple[str, bool]]] = {**Stage.PARTS, "watchdog": ("watchdog", False)}

    @property
    def nodes(self) -> int:
        """This machine."""
        return 1

    def prefix(self) -> list[str]:
        """Return the words that start the launcher in a cgroup, if the case limits memory."""
        if "cgroup" not in self.case.name:
            return []
        group = f"/sys/fs/cgroup/memory/faults-local-{os.getpid()}"
        text = (
            f'mkdir -p {group}; echo 300000000 >{group}/memory.limit_in_bytes; echo $$ >{group}/cgroup.procs; exec "$@"'
        )
        return ["bash", "-c", text, "in-cgroup"]

    def node_of(self, environ: dict[str, str]) -> str:
        """There is one node."""
        return "0"

    def pids(self, part: str, node: int = 0) -> list[int]:
        """Return the process of a part of the only node."""
        return super().pids(part, 0)

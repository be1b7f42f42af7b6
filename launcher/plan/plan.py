"""The launch plan: everything that will run, as pure data."""

import dataclasses
from typing import Any

from launcher.plan.node import NodePlan, node_trees
from launcher.plan.start import Start, Watch
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A file that must exist before the processes start.

    `path` is absolute, or relative to the folder in which the script or the run is started (not to a node's workdir).
    Its mode allows only the user to read it: the values of references may be secrets.
    """

    path: str
    content: str
    mode: int = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Files and one command per node.

    Attributes:
        files: written on every node before the commands start.
        nodes: one entry per node, by rank.
        prepare: commands that run once, on node 0, before the nodes start (conversion of weights, random tiny weights).
        output_dir: where the launcher writes its own record of the run.
        what: description of what will run.
        notes: what a user should know before starting (assumed values, things changed for this machine).
        start: executor of the nodes, and its settings.
        watch: where the run reports its progress.
        resume: plan that resumes the job from its last checkpoint in `${LAUNCH_RESUME}`; None: not possible.
    """

    nodes: tuple[NodePlan, ...]
    files: tuple[PlanFile, ...] = ()
    prepare: tuple[NodePlan, ...] = ()
    output_dir: str = "."
    what: str = ""
    notes: tuple[str, ...] = ()
    start: Start = Start()
    watch: Watch = Watch()
    resume: "LaunchPlan | None" = None

    def as_tree(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON; equal nodes are one entry (`node_trees`)."""
        return {
            "what": self.what,
            "files": [{"path": f.path, "content": f.content, "mode": f"{f.mode:o}"} for f in self.files],
            "prepare": [tree for node in self.prepare for tree in node_trees([node])],
            "nodes": node_trees(self.nodes),
            "output_dir": self.output_dir,
            "notes": list(self.notes),
            "start": dataclasses.asdict(self.start),
            "watch": dataclasses.asdict(self.watch),
            "resume": None if self.resume is None else self.resume.as_tree(),
        }

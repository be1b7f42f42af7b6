"""Renders a plan as files that run without this program: assignments followed by fixed bash code (bodies)."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence

from launcher.executors.error_files import AGENT_FILE, RANKS
from launcher.executors.port import with_port_reference
from launcher.executors.private import PROGRAM
from launcher.executors.shell_bodies import shell_body
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Place
from launcher.plan.shell import script

GRACE_SECONDS = 60


def node_files(plan: LaunchPlan, place: Place, *, rank_from: str = "", grace: int = GRACE_SECONDS) -> list[PlanFile]:
    """Return the files that every node runs: `run/node.sh`, and the commands of a first and of a later start.

    Args:
        rank_from: environment variable with the rank of a node; "": NODE_RANK.
        grace: seconds between the request to end and the kill.
    """
    head = [
        *head_of(plan, place, grace),
        assignment("rank_from", rank_from),
        *function("site_setup", plan.start.setup),
        *function("rank_logs", _rank_logs(plan)),
    ]
    files = [
        rendered_file(place, "node.sh", head, ("common", "evidence", "node")),
        _commands(plan, place, "command.sh"),
    ]
    if plan.resume is not None:
        files.append(_commands(plan.resume, place, "resume.sh"))
    return files


def supervisor_file(
    plan: LaunchPlan,
    place: Place,
    name: str,
    executor: str,
    *,
    first: Sequence[str] = (),
    head: Sequence[str] = (),
    grace: int = GRACE_SECONDS,
) -> PlanFile:
    """Return the file that starts all nodes, monitors them and restarts them.

    Args:
        name: name of the file.
        executor: name of the body that starts the nodes.
        first: lines that must come first (of a batch system).
        head: assignments that the executor's body reads.
        grace: seconds that nodes have to end.
    """
    watch, start = plan.watch, plan.start
    lines = [
        *head_of(plan, place, grace),
        assignment("max_restarts", start.max_restarts),
        assignment("hang_seconds", "" if start.hang_seconds is None else round(start.hang_seconds)),
        assignment("iteration_line", watch.iteration_line),
        *checkpoint_head(plan, place),
        assignment("rank_log", watch.rank_log.replace("{rank}", "*")),
        assignment("fixed_port", "" if start.port is None else start.port),
        assignment("master_addr", start.address or ""),
        *head,
    ]
    return rendered_file(place, name, lines, ("common", "checkpoint", executor, "supervise"), first=first)


def checkpoint_head(plan: LaunchPlan, place: Place) -> list[str]:
    """Return the assignments that `checkpoint.sh` reads."""
    folder = "" if plan.watch.checkpoints is None else os.path.join(place.launch_dir, plan.watch.checkpoints)
    trackers = [word for pair in plan.watch.trackers for word in pair]
    return [assignment("checkpoints", folder), array("trackers", trackers)]


def assignment(name: str, value: object) -> str:
    """Return a line of bash that assigns a value to a variable, quoted."""
    return f"{name}={shlex.quote(str(value))}"


def array(name: str, words: Iterable[str]) -> str:
    """Return a line of bash that assigns words to an array, quoted."""
    return f"{name}=({' '.join(shlex.quote(word) for word in words)})"


def function(name: str, lines: Sequence[str]) -> list[str]:
    """Return a bash function with these lines."""
    return [f"{name}() {{", *(f"  {line}" for line in (*lines, ":")), "}"]


def rank_log_environment(devices: int, folder: str, attempt: int | str) -> Mapping[str, str]:
    """Return the variables with which torchrun writes each local rank's output to a separate file, with line prefixes.

    The first local rank writes to the node's output only. Ranks whose entry point has torch's `@record`, and torchrun
    itself, write the exception that ended them to an error file. Source: torch.distributed.run, whose options have
    defaults from PET_*; torch.distributed.elastic.agent.server.local_elastic_agent (prefix template);
    torch.distributed.elastic.multiprocessing.errors.error_handler.

    Args:
        folder: an existing folder.
    """
    files = {
        "PET_LOG_DIR": folder,
        "TORCHELASTIC_ERROR_FILE": f"{folder}/{AGENT_FILE.format(attempt=attempt)}",
    }
    if devices == 1:
        return files
    return {
        **files,
        "PET_TEE": ",".join(f"{rank}:3" for rank in range(1, devices)),
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}] ",
    }


def _rank_logs(plan: LaunchPlan) -> list[str]:
    folder = f"$logs/{RANKS}/node$NODE_RANK"
    variables = rank_log_environment(plan.start.devices_per_node, folder, "$ATTEMPT")
    ours = [f'export {name}="{value}"' for name, value in variables.items() if value.startswith("$logs")]
    others = [f"export {assignment(name, value)}" for name, value in variables.items() if not value.startswith("$logs")]
    return [*others, f'(umask 077; mkdir -p "{folder}") || return 0', *ours]


def head_of(plan: LaunchPlan, place: Place, grace: int) -> list[str]:
    """Return the assignments that every body reads (`common.sh`)."""
    return [
        assignment("id", place.id),
        assignment("folder", place.folder),
        assignment("launch_dir", place.launch_dir),
        assignment("nodes", len(plan.nodes)),
        assignment("first_path", _first_path(plan)),
        assignment("grace", grace),
    ]


def _first_path(plan: LaunchPlan) -> str:
    """Return the folder of the job's Python, so that its scripts (torchrun) are found without activation.

    In a container the image determines Python, unless the user does; then "".
    """
    python = plan.start.python
    if python and "/" in python:
        return os.path.dirname(python)
    return "" if plan.start.container else os.path.dirname(sys.executable)


def _commands(plan: LaunchPlan, place: Place, name: str) -> PlanFile:
    return PlanFile(path=f"{place.folder}/run/{name}", content=script(with_port_reference(plan)))


def rendered_file(
    place: Place, name: str, head: Sequence[str], bodies: Sequence[str], *, first: Sequence[str] = ()
) -> PlanFile:
    """Return a file below `run/`: assignments followed by bodies of bash."""
    text = ["#!/usr/bin/env bash" if not first else "#!/bin/bash", *first, *head, *map(shell_body, bodies)]
    return PlanFile(path=f"{place.folder}/run/{name}", content="\n".join(text), mode=PROGRAM)

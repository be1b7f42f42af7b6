"""Renders a plan as files that run without this program: assignments followed by fixed bash code (bodies)."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence

from launcher.executors.end_reasons import RENDERED
from launcher.executors.error_files import AGENT_FILE, RANKS
from launcher.executors.log_times import EVERY_SECONDS
from launcher.executors.port import (
    BIND_ERROR,
    BOUND_SECONDS,
    MOST_BINDS,
    RESERVED,
    STARTED_SECONDS,
    with_port_reference,
)
from launcher.executors.private import PROGRAM
from launcher.executors.progress import LOG_TAIL
from launcher.executors.record import HEARTBEAT_SECONDS
from launcher.executors.shell_bodies import shell_body
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Place
from launcher.plan.shell import script
from launcher.plan.start import LONGEST_WAIT, Start

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
        assignment("devices", plan.start.devices_per_node),
        assignment("iteration_line", plan.watch.iteration_line),
        assignment("rank_log", plan.watch.rank_log),
        assignment("log_tail", LOG_TAIL),
        assignment("row_seconds", EVERY_SECONDS),
        *function("site_setup", plan.start.setup),
        *function("rank_logs", _rank_logs(plan)),
    ]
    files = [
        rendered_file(place, "node.sh", head, ("common", "evidence", "record", "node")),
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
        assignment("restart_seconds", round(start.restart_seconds)),
        assignment("longest_wait", LONGEST_WAIT),
        assignment("heartbeat_seconds", HEARTBEAT_SECONDS),
        *(assignment(name, text) for name, text in RENDERED.items()),
        assignment("bind_error", BIND_ERROR),
        assignment("most_binds", MOST_BINDS),
        *hang_head(plan),
        assignment("iteration_line", watch.iteration_line),
        *checkpoint_head(plan, place),
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


def hang_head(plan: LaunchPlan) -> list[str]:
    """Return the assignments of the hang watch: seconds without a new, and without a first iteration."""
    limits = {"hang_seconds": plan.start.hang_seconds, "startup_seconds": plan.start.startup_seconds}
    return [assignment(name, "" if limit is None else round(limit)) for name, limit in limits.items()]


def assignment(name: str, value: object) -> str:
    """Return a line of bash that assigns a value to a variable, quoted."""
    return f"{name}={shlex.quote(str(value))}"


def array(name: str, words: Iterable[str]) -> str:
    """Return a line of bash that assigns words to an array, quoted."""
    return f"{name}=({' '.join(shlex.quote(word) for word in words)})"


def function(name: str, lines: Sequence[str]) -> list[str]:
    """Return a bash function with these lines."""
    return [f"{name}() {{", *(f"  {line}" for line in (*lines, ":")), "}"]


def torchrun_environment(start: Start, folder: str, attempt: int | str) -> Mapping[str, str]:
    """Return the variables for torchrun: log files, error files, and how long ranks have to save.

    It writes each local rank's output to a separate file, with line prefixes.

    The first local rank writes to the node's output only. Ranks whose entry point has torch's `@record`, and torchrun
    itself, write the exception that ended them to an error file. Where one rank ends before the others, it kills those
    after 30 s (before torch 2.10 always). Source: torch.distributed.run, whose options have
    defaults from PET_*; torch.distributed.elastic.agent.server.local_elastic_agent (prefix template);
    torch.distributed.elastic.multiprocessing.errors.error_handler.

    Args:
        folder: an existing folder.
    """
    devices, save = start.devices_per_node, start.save_seconds
    files = {
        **({} if save is None else {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(round(save))}),
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
    variables = torchrun_environment(plan.start, folder, "$ATTEMPT")
    below = [f'export {name}="{value}"' for name, value in variables.items() if value.startswith("$logs")]
    others = [f"export {assignment(name, value)}" for name, value in variables.items() if not value.startswith("$logs")]
    return [*others, f'(umask 077; mkdir -p "{folder}") || return 0', *below]


def port_head() -> list[str]:
    """Return the assignments with which `common.sh` reserves ports as `launcher.executors.port` does."""
    values = {"reserved_ports": RESERVED, "bound_seconds": BOUND_SECONDS, "started_seconds": STARTED_SECONDS}
    return [assignment(name, value) for name, value in values.items()]


def head_of(plan: LaunchPlan, place: Place, grace: int) -> list[str]:
    """Return the assignments that every body reads (`common.sh`)."""
    return [
        assignment("id", place.id),
        assignment("folder", place.folder),
        assignment("launch_dir", place.launch_dir),
        assignment("nodes", len(plan.nodes)),
        assignment("first_path", _first_path(plan)),
        assignment("grace", grace),
        *port_head(),
        assignment("save_seconds", "" if plan.start.save_seconds is None else round(plan.start.save_seconds)),
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

"""The simulated pipeline as a trace that Perfetto and chrome://tracing open."""

import json
from pathlib import Path
from typing import Any

from launcher.estimate.result import Estimate
from launcher.job import Job
from launcher.outputs.files import write_output
from launcher.outputs.kinds import MARK, TRACE


def trace_of(job: Job, answer: Estimate) -> dict[str, Any]:
    """Return the timeline in Chrome's trace event format; times in microseconds, one row a stage."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{job.name or 'job'} (estimate)"}}
    ]
    for stage in range(len(answer.stages)):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": stage, "args": {"name": f"stage {stage}"}})
    chunks = max((event.chunk for event in answer.timeline), default=0) + 1
    for event in answer.timeline:
        kind = "backward" if event.backward else "forward"
        chunk = f" chunk {event.chunk}" if chunks > 1 else ""
        events.append(
            {
                "name": f"{kind} {event.micro_batch}{chunk}",
                "cat": kind,
                "ph": "X",
                "pid": 0,
                "tid": event.stage,
                "ts": event.start * 1e6,
                "dur": (event.end - event.start) * 1e6,
                "args": {"micro_batch": event.micro_batch, "chunk": event.chunk},
            }
        )
    # First, so that the file starts with its source mark.
    return {"otherData": {"source": MARK}, "traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(path: Path, job: Job, answer: Estimate) -> None:
    """Write the trace to a file."""
    write_output(path, json.dumps(trace_of(job, answer)), TRACE)

"""How long it takes to plan and render a job on many nodes, and how large that gets, for each executor.

python -m tools.bench.render [--nodes 100,1250]   CPU seconds; the reference is one node of the same job.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from launcher.compose import compose
from launcher.job import Job
from launcher.pipeline import judge
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Place, get_executor
from launcher.runtime import planned

_JOB = (
    "+recipe=qwen3_moe",
    "runtime=native",
    "cluster.devices_per_node=8",
    "checkpoint.save_interval=100",
    "fault_tolerance.max_restarts=1",
)
_PLACE = Place(id="bench-1", folder="/shared/out", launch_dir="/shared")
_Result = TypeVar("_Result")


def _timed(call: Callable[[], _Result]) -> tuple[float, _Result]:
    started = time.process_time()
    result = call()
    return time.process_time() - started, result


def _job(executor: str, backend: str, nodes: int) -> Job:
    hosts = [f"cluster.hosts=[{','.join(f'node{rank:04}' for rank in range(nodes))}]"] if executor == "ssh" else []
    size = [f"cluster.nodes={nodes}", f"batch.global_batch_size={nodes * 32}"]
    return compose([*_JOB, f"backend={backend}", f"cluster={executor}", *hosts, *size])


def _rendered(plan: LaunchPlan, executor: str) -> list[PlanFile]:
    found = get_executor(executor)
    assert found is not None
    return list(found.render(plan, _PLACE))


def main() -> None:
    """Print one line for each backend, executor and number of nodes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", default="100,1250")
    parser.add_argument("--backends", default="megatron,mindspeed")
    parser.add_argument("--executors", default="ssh,slurm,kubernetes")
    options = parser.parse_args()
    counts = [2, *(int(text) for text in options.nodes.split(","))]
    print("backend      executor    nodes   compose     judge   plan+render   files kB   ratio")
    for backend in options.backends.split(","):
        for executor in options.executors.split(","):
            first = 0.0
            for nodes in counts:
                composing, job = _timed(partial(_job, executor, backend, nodes))
                judging, outcome = _timed(partial(judge, job))
                planning, plan = _timed(partial(planned, outcome))
                rendering, files = _timed(partial(_rendered, plan, executor))
                whole = planning + rendering
                first = first or whole
                size = sum(len(file.content) for file in files) / 1000
                print(
                    f"{backend:12} {executor:10} {nodes:6} {composing:9.3f} {judging:9.3f} {whole:13.3f} {size:10.1f} "
                    f"{whole / first:7.1f}"
                )


if __name__ == "__main__":
    main()

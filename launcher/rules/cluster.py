"""Reports `cluster` fields that the chosen executor does not read."""

import dataclasses
from collections.abc import Iterator

from launcher.job.cluster import OF_ALL, Cluster
from launcher.nearest import nearest
from launcher.plan.executor import broken_executors, executor_names, find_executor, get_executor
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.syntax import shown

_DEFAULTS = Cluster()


@rule(
    "CLUSTER-FIELD",
    source="launch: no setting is dropped silently",
    reads="job.cluster.*",
    severity="warning",
)
def cluster_fields_are_supported(context: RuleContext) -> Iterator[Violation]:
    """A field of `cluster` that only another executor reads has no effect."""
    cluster = context.job.cluster
    executor = find_executor(cluster.executor)
    if executor is None:
        return
    for name in cluster.__dataclass_fields__:
        if name in OF_ALL or name in executor.reads or getattr(cluster, name) == getattr(_DEFAULTS, name):
            continue
        readers = [each for each in executor_names() if name in get_executor(each).reads]
        yield Violation(
            message=f"cluster.{name} has no effect with cluster={cluster.executor}: only "
            f"cluster={'|'.join(readers)} reads it",
            fields=(f"cluster.{name}", "cluster.executor"),
        )


@rule("CLUSTER-EXECUTOR", source="entry points launch.executors", reads="job.cluster.executor")
def executor_is_installed(context: RuleContext) -> Iterator[Violation]:
    """What starts the processes must be installed: it comes with the launcher or with another distribution."""
    name = context.job.cluster.executor
    if find_executor(name) is None:
        known = executor_names()
        why = broken_executors().get(name) or f"no executor {shown(name)}; installed: {', '.join(known)}"
        works = tuple(f"cluster.executor={each}" for each in nearest(name, known, cutoff=0.5))
        yield Violation(message=why, fields=("cluster.executor",), works=works)


@rule("CLUSTER-OPTION", source="launch: Executor.options", reads="job.cluster.executor job.cluster.options")
def options_are_those_of_the_executor(context: RuleContext) -> Iterator[Violation]:
    """`cluster.options` holds options that the executor declares, with values of their type and within their bounds."""
    executor = find_executor(context.job.cluster.executor)
    if executor is None or not context.job.cluster.options:
        return
    for problem in executor.wrong_options(context.job):
        is_unknown = problem.kind == "unknown"
        known = ", ".join(field.name for field in dataclasses.fields(executor.options)) if executor.options else ""
        unknown = f"is not an option of {context.job.cluster.executor}" + (f"; works: {known}" if known else "")
        message = unknown if is_unknown else problem.message
        works = () if is_unknown else tuple(f"{problem.path}={value}" for value in problem.works)
        yield Violation(message=f"{shown(problem.path)} {message}", fields=("cluster.options",), works=works)


@rule(
    "CLUSTER-CONTAINER",
    source="launch: Pyxis srun --container-image; Pod image",
    reads="job.cluster.container job.cluster.executor job.cluster.container_mounts",
)
def a_container_is_used_or_refused(context: RuleContext) -> Iterator[Violation]:
    """Only Slurm (with Pyxis) and Kubernetes start a job in a container image; others would use the host's software."""
    cluster = context.job.cluster
    executor = find_executor(cluster.executor)
    if cluster.container is not None and executor is not None and not executor.containers:
        yield Violation(
            message=f"cluster={cluster.executor} starts no containers: the job would run with the software of the "
            "machine itself. Start it inside the container (cluster=environment for several nodes), or leave out "
            "cluster.container",
            fields=("cluster.container", "cluster.executor"),
        )

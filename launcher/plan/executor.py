"""What an executor is, and the installed ones by name, found by the entry point `launch.executors`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import plugins
from launcher.executors import BUILT_IN
from launcher.job import Job, Problem
from launcher.job.build import build_section
from launcher.job.cluster import OF_ALL, Cluster
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.plan.start import Start, save_seconds, startup_seconds
from launcher.records import dataclass

if TYPE_CHECKING:
    from subprocess import CompletedProcess

ENTRY_POINTS = "launch.executors"
# queued: waits for machines. running. done: exit code 0. failed. stopped: ended by a user. lost: state unknown.
STATES = ("queued", "running", "done", "failed", "stopped", "lost")
ENDED = ("done", "failed", "stopped", "lost")
# A lost run may be found again; these ends are known.
FINAL = ("done", "failed", "stopped")
_OPTIONS = "cluster.options."
_UNSET = {name: getattr(Cluster(), name) for name in Cluster.__dataclass_fields__}
_INHERITED = "inherited from the shell that calls launch"


class UnknownExecutor(LookupError):
    """No executor of that name is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Location of a run, the same on every node.

    Attributes:
        id: display id of the run.
        folder: absolute path of the run directory.
        launch_dir: absolute path of the folder to which relative paths of the job refer.
    """

    id: str
    folder: str
    launch_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Result of a run in the foreground.

    Attributes:
        code: exit code of the processes; 128 + signal if interrupted.
        log: path of the output.
        interrupted: whether a signal requested the end.
        log_problem: why the log is incomplete (disk full); empty if it is complete.
        restarts: number of restarts.
    """

    code: int
    log: Path
    interrupted: bool = False
    log_problem: str = ""
    restarts: int = 0

    @property
    def state(self) -> str:
        """State of the run: done, failed or stopped."""
        return "stopped" if self.interrupted else "failed" if self.code else "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """State of a job as reported by the system that runs it.

    Attributes:
        state: one of STATES; "": unknown to the system (any more), so the run directory decides.
        why: its reason in plain text (for waiting, or an exit state).
        nodes: names of the machines.
        asked: False: the query failed, and `why` has the reason; the job may still run.
        final: the system itself ended the job (time limit, lost node, memory, preemption, a user): what the run
            directory says of its end, which was written by processes that were being killed, does not count.
    """

    state: str
    why: str = ""
    nodes: tuple[str, ...] = ()
    asked: bool = True
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A submitted job: the plain data with which `observe` and `stop` find it again."""

    handle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several runs as one submission: an additional file, the command, and a parser of its output for each run."""

    file: PlanFile
    command: tuple[str, ...]
    submitted: Callable[[str], Sequence[Submitted]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongOption:
    """An option of an executor that cannot be used: what is wrong, where it is set, and overrides that work."""

    message: str
    where: str = ""
    works: tuple[str, ...] = ()


class WrongOptions(Exception):
    """Options from which an executor cannot derive a job's machines, such as a host file that is missing."""

    def __init__(self, mistakes: Iterable[WrongOption]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(mistake.message for mistake in self.mistakes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoOptions:
    """The options of an executor that declares none."""


class Executor:
    """Starts the nodes of a plan. Failures that a user can fix raise `CannotStart`.

    Attributes:
        name: value of `cluster.executor`, and of `cluster=`.
        title: display name.
        options: dataclass of `option(…)` fields, of an executor that is installed separately: `cluster.options.NAME`.
        reads: fields of the section `cluster` that not every executor reads, and this one does.
        rules: modules that declare rules about its options.
        foreground: whether the job ends with the program that started it; otherwise it is submitted and runs
            independently.
        here: processes run on this machine, one of the job's nodes.
        one_machine: processes run on this machine only, and this program starts them all.
        asks_hosts: the job's machines are known before it starts, and `hosts` asks them.
        containers: it starts `cluster.container`.
        image_forms: what `cluster.container` may be.
        own_environment: its nodes may have variables that are not set here.
        resumes: a run that has ended can be started again by the files in its directory (`launch resume`).
        no_resume: why not, in one sentence; "": it just does not.
        log_files: files below `logs` with its own output, besides one for each node.
        secrets: how a variable that is a secret reaches the processes: names that are forwarded by default, and others.
        launchers: Hydra launchers that may submit a sweep, and the module that does it.
    """

    name: str
    title: str
    options: type | None = None
    reads: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    foreground: bool = False
    here: bool = False
    one_machine: bool = False
    asks_hosts: bool = False
    containers: bool = False
    image_forms: str = "REGISTRY/IMAGE:TAG"
    own_environment: bool = False
    resumes: bool = False
    no_resume: str = ""
    log_files: tuple[str, ...] = ("launch.log",)
    secrets: tuple[str, str] = (_INHERITED, _INHERITED)
    launchers: Mapping[str, str] = {}

    # -- the job
    def typed_options(self, job: Job) -> Any:
        """Return the job's `cluster.options` as an instance of `options`; defaults where a value does not fit."""
        return build_section(self.options or _NoOptions, job.cluster.options, _OPTIONS)[0]

    def wrong_options(self, job: Job) -> list[Problem]:
        """Return every unknown name, wrong type, choice and bound in `cluster.options`."""
        return build_section(self.options or _NoOptions, job.cluster.options, _OPTIONS)[1]

    def completed(self, job: Job) -> Job:
        """Return the job with what its options imply, such as hosts that a file names.

        Raises:
            WrongOptions: an option cannot be used.
        """
        return job

    def restarts(self, job: Job) -> bool:
        """Return whether the system may start the job again by itself, so that it must resume."""
        return not self.foreground

    def settings(self, job: Job, *, native: bool) -> Any:
        """Return what the plan keeps for this executor: a dataclass of plain data, or None.

        Args:
            native: the run uses devices; a rehearsal does not.
        """
        return None

    def mounted(self, job: Job) -> tuple[str, ...]:
        """Return the folders that the nodes have from elsewhere, so that this machine cannot see what is in them."""
        return ()

    # -- the plan
    def check(self, plan: LaunchPlan) -> None:
        """Check for what would prevent the plan from starting; nothing is written."""

    def preflight(self, plan: LaunchPlan) -> Sequence[str]:
        """Run `check`, and return what the system warns of that does not prevent the start."""
        self.check(plan)
        return ()

    def check_again(self, plan: LaunchPlan) -> None:
        """Check for what would prevent the plan from starting again in its directory; nothing is written."""
        self.check(plan)

    def nodes_checkpoint(self, plan: LaunchPlan, place: Place) -> str:
        """Return the folder in which the nodes themselves look for their newest complete checkpoint, which this
        machine need not see; "": it sees the folder that they save to.

        Raises:
            CannotStart: nodes that start again cannot see it either.
        """
        return ""

    def prepare_again(
        self, plan: LaunchPlan, place: Place, handle: Mapping[str, Any], attempt: int
    ) -> Sequence[PlanFile]:
        """Clear away what the attempt before left in the system, and return files that the next one needs anew.

        Raises:
            CannotStart: it cannot be started again now; nothing was changed.
        """
        return ()

    def stored_settings(self, tree: Any) -> Any:
        """Return what `settings` returned from its plain data, as the run's directory keeps it."""
        return tree

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return the files that start the plan without this program, the one to start or submit last; pure."""
        raise NotImplementedError

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that starts the rendered files: it runs to the end of the job, or submits it."""
        raise NotImplementedError

    def hosts(self, plan: LaunchPlan, script: str) -> list[tuple[str, "CompletedProcess[str]"]]:
        """Run a bash script on every machine of the plan before it starts; none where the machines are not known."""
        return []

    def probe(self, plan: LaunchPlan, script: str) -> list[tuple[str, "CompletedProcess[str]"]]:
        """Run a bash script as `hosts` does, also on machines that a queue allocates for it.

        Raises:
            CannotStart: it allocates none now.
        """
        return self.hosts(plan, script)

    # -- the run
    def handle(self, plan: LaunchPlan) -> Mapping[str, Any]:
        """Return what identifies the run before it starts."""
        return {}

    def run(
        self, plan: LaunchPlan, place: Place, files: Sequence[PlanFile], *, quiet: bool, first: int = 0
    ) -> Ended | None:
        """Run the plan on this machine and wait for its end; None: `command` starts it.

        Args:
            first: number of the first attempt; above 0 the run is started again in its directory.
        """
        return None

    def submitted(self, output: str) -> Submitted:
        """Parse the handle from the output of the submitting command, and do what only a submitted job allows."""
        return Submitted()

    def find_submitted(self, place: Place, since: float) -> Submitted | None:
        """Return the job of a run whose submission got no answer; None: the system does not list it.

        Args:
            since: when it was submitted, in seconds since 1970.
        """
        return None

    def together(self, runs: Sequence[tuple[LaunchPlan, Place]]) -> Together | None:
        """Return a single submission of several rendered runs; None if unsupported."""
        return None

    def observe(self, handle: Mapping[str, Any]) -> Observed:
        """Query the state of a job."""
        return Observed(state="")

    def observe_all(self, handles: Sequence[Mapping[str, Any]]) -> Sequence[Observed]:
        """Query the states of several jobs; an executor whose system answers for many at once asks it once."""
        return [self.observe(handle) for handle in handles]

    def fetch(self, handle: Mapping[str, Any]) -> None:
        """Append the job's output since the last call to its run directory, if it is stored elsewhere."""

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Request the end of a job."""

    def stop_all(self, handles: Sequence[Mapping[str, Any]]) -> None:
        """Request the end of several jobs; an executor whose system takes many at once asks it once."""
        for handle in handles:
            self.stop(handle)

    def clean(self, handle: Mapping[str, Any], folder: Path) -> Sequence[str]:
        """Remove what an ended run left outside its directory, never data of the user.

        By default a run leaves nothing: its processes have ended and its files are in its directory.

        Args:
            folder: the run's directory, which stays.

        Returns:
            Names of what was removed; a second call removes nothing.
        """
        return ()


def launchers() -> dict[str, Executor]:
    """Return the Hydra launchers that submit a sweep, each with the executor whose jobs it submits."""
    installed = map(get_executor, executor_names())
    return {name: executor for executor in installed for name in executor.launchers}


def option_rules(*names: str) -> tuple[str, ...]:
    """Return the modules with rules about the options of these executors; of no name: of all installed ones."""
    found = map(find_executor, names or executor_names())
    return tuple(module for executor in found if executor is not None for module in executor.rules)


def rules_for(job: Job) -> tuple[str, ...]:
    """Return the modules with rules about the options of a job's executor, and of others whose options it sets."""
    cluster = job.cluster
    set_here = {
        name for name in cluster.__dataclass_fields__ if name not in OF_ALL and getattr(cluster, name) != _UNSET[name]
    }
    others = (name for name in executor_names() if set_here & set(get_executor(name).reads)) if set_here else ()
    return option_rules(*dict.fromkeys((cluster.executor, *others)))


def start_of(job: Job, *, native: bool) -> Start:
    """Return the executor settings of a job's plan; only a native run requests devices.

    Raises:
        UnknownExecutor: the job's executor is not installed.
    """
    cluster, faults = job.cluster, job.fault_tolerance
    return Start(
        executor=cluster.executor,
        name=job.name or "job",
        devices_per_node=cluster.devices_per_node,
        python=cluster.python,
        setup=cluster.setup,
        address=cluster.master_addr,
        port=cluster.master_port,
        container=cluster.container,
        container_mounts=cluster.container_mounts,
        max_restarts=faults.max_restarts,
        restart_seconds=faults.restart_wait_seconds,
        hang_seconds=None if faults.hang_minutes is None else faults.hang_minutes * 60,
        startup_seconds=startup_seconds(faults),
        save_seconds=save_seconds(faults),
        settings=get_executor(cluster.executor).settings(job, native=native),
    )


@cache
def executor_names() -> tuple[str, ...]:
    """Return the names of all installed executors that can be used, built-in ones first."""
    return (*BUILT_IN, *(name for name in plugins.names(ENTRY_POINTS, BUILT_IN) if find_executor(name) is not None))


def broken_executors() -> dict[str, str]:
    """Return the installed executors that cannot be used, and why."""
    found = {}
    for name in plugins.names(ENTRY_POINTS, BUILT_IN):
        try:
            get_executor(name)
        except plugins.BrokenPlugin as error:
            found[name] = str(error)
    return found


@cache
def get_executor(name: str) -> Executor:
    """Return the executor of that name.

    Raises:
        UnknownExecutor: none is installed under that name.
        BrokenPlugin: it is another distribution's and cannot be used.
    """
    if name in BUILT_IN:
        found = import_module(f"launcher.executors.{name}.executor").EXECUTOR
        assert isinstance(found, Executor)
        return found
    if name not in plugins.plugins(ENTRY_POINTS):
        raise UnknownExecutor(name)
    loaded: Executor = plugins.load(ENTRY_POINTS, name, Executor)
    return loaded


def find_executor(name: str) -> Executor | None:
    """Return the executor of that name; None if none is installed under it that can be used."""
    try:
        return get_executor(name)
    except (UnknownExecutor, plugins.BrokenPlugin):
        return None

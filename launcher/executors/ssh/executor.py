"""Starts a plan's nodes over ssh: all hosts are checked first, and all nodes end with the program that started them."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from os import getcwd
from pathlib import Path
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.forwarded_env import forwarded_names
from launcher.executors.record import PLAN, RUN
from launcher.executors.render import (
    GRACE_SECONDS,
    array,
    assignment,
    head_of,
    node_files,
    port_head,
    rendered_file,
    supervisor_file,
)
from launcher.executors.shell_bodies import shell_body
from launcher.executors.ssh.host_file import with_hosts
from launcher.executors.ssh.syntax import is_ssh_host, ssh_options_problem
from launcher.job import Job, Origin
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Executor, Place
from launcher.records import dataclass
from launcher.syntax import shown

# A host that does not connect within these seconds, or stops responding for them, is lost.
_CONNECT_SECONDS, _ALIVE_SECONDS, _ALIVE_COUNT = 10, 15, 4
_PROBE_SECONDS = 40
_PARALLEL = 32
_TAKEN = 73
START, RELAY = "start.sh", "relay.sh"
# The mark is that of shell/node.sh.
_LEFT = """mark="LAUNCH_RUN=$id.$(printf '%s' "$run" | cksum | cut -d' ' -f1)/"
grep -lzF "$mark" /proc/[0-9]*/environ 2>/dev/null | wc -l"""
_DERIVED = Origin(kind="derived")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Machines by rank, and further words for ssh.

    Attributes:
        fanout: with more hosts than that each of so many connects to a part of the others; 0: none does.
    """

    hosts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    fanout: int = 0


class Ssh(Executor):
    """Runs nodes by ssh, in the foreground."""

    name = "ssh"
    title = "ssh"
    reads = ("hosts", "host_file", "ssh_options", "ssh_fanout")
    rules = ("launcher.executors.ssh.rules",)
    foreground = True
    asks_hosts = True
    resumes = True
    secrets = (
        "sent to every host through ssh's standard input, from the shell that calls launch",
        "sent only if the job refers to it: {refer}",
    )

    def completed(self, job: Job) -> Job:
        """Return the job with the hosts of its host file, and as many nodes as hosts unless the user sets it.

        Raises:
            WrongOptions: the file cannot be read, a host is repeated or invalid, slots differ from the job's devices.
        """
        job = with_hosts(job)
        if not job.cluster.hosts or not _hosts_count(job):
            return job
        cluster = dataclasses.replace(job.cluster, nodes=len(job.cluster.hosts))
        return dataclasses.replace(job, cluster=cluster, origins={**job.origins, "cluster.nodes": _DERIVED})

    def settings(self, job: Job, *, native: bool) -> Hosts:
        """Return one host for each node, as far as there are enough."""
        cluster = job.cluster
        hosts = cluster.hosts[: cluster.nodes] if len(cluster.hosts) >= cluster.nodes else cluster.hosts
        return Hosts(hosts=hosts, options=cluster.ssh_options, fanout=cluster.ssh_fanout)

    def stored_settings(self, tree: Any) -> Hosts:
        """Return the hosts from the data of a stored plan."""
        return Hosts(
            hosts=tuple(map(str, tree["hosts"])),
            options=tuple(map(str, tree["options"])),
            fanout=int(tree.get("fanout", 0)),
        )

    def check_again(self, plan: LaunchPlan) -> None:
        """Check the hosts, and that no process of an earlier attempt is left on them, which may still be saving.

        Raises:
            CannotStart: as in `check`, or with the hosts that still run it.
        """
        from launcher.executors.record import read_record

        self.check(plan)
        folder = Path(plan.output_dir).absolute()
        record = read_record(folder)
        if record is None:
            return
        lines = [assignment("id", record.id), assignment("run", folder / RUN), _LEFT]
        left = [
            f"{host}: {done.stdout.split()[0]} processes of the run are left"
            for host, done in self.hosts(plan, "\n".join(lines))
            if done.stdout.split() and done.stdout.split()[0] != "0"
        ]
        if left:
            works = f"wait until they have saved and ended, or launch clean {record.id} ends them"
            raise CannotStart("\n  ".join(["nothing was started:", *left, f"works: {works}"]))

    def check(self, plan: LaunchPlan) -> None:
        """Check the launch folder on every host, in parallel, and the port on the master; nothing is written.

        Raises:
            CannotStart: too few hosts, no ssh, or the reasons of the hosts that cannot take part.
        """
        hosts = _hosts(plan)
        if shutil.which("ssh") is None:
            raise CannotStart("there is no ssh on the PATH: install openssh-client")
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_PARALLEL, len(hosts))) as pool:
            problems = [text for text in pool.map(lambda item: _probe(plan, *item), enumerate(hosts)) if text]
            if not problems:
                groups = _groups(hosts, _settings(plan).fanout)
                problems = [text for text in pool.map(lambda group: _out_of_reach(plan, group), groups) if text]
        if problems:
            raise CannotStart("\n  ".join(["nothing was started:", *problems]))

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return node.sh with its commands, and start.sh, which starts all nodes from here."""
        settings = _settings(plan)
        head = [
            array("hosts", _hosts(plan)),
            array("ssh", _ssh(settings)),
            array("carry", forwarded_names(plan)),
            assignment("fanout", settings.fanout),
        ]
        files = node_files(plan, place)
        if _groups(_hosts(plan), settings.fanout):
            own = [*head_of(plan, place, GRACE_SECONDS), assignment("master_addr", plan.start.address or ""), *head]
            files.append(rendered_file(place, RELAY, own, ("common", "ssh", "relay")))
        return [*files, supervisor_file(plan, place, START, "ssh", head=head)]

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that starts all nodes and ends with the job's exit code."""
        return ("bash", f"{place.folder}/run/{START}")

    def hosts(self, plan: LaunchPlan, script: str) -> list[tuple[str, "subprocess.CompletedProcess[str]"]]:
        """Run a bash script on every host of the plan, in parallel; hosts that do not answer have exit code 255."""
        return _answers(_settings(plan), _hosts(plan), script)

    def clean(self, handle: Mapping[str, Any], folder: Path) -> Sequence[str]:
        """End processes of the run that are left on its hosts, such as those of a node whose script was killed.

        Raises:
            CannotStart: the hosts are not known any more, or some do not answer.
        """
        from launcher.executors.record import read_record

        record = read_record(folder)
        assert record is not None, "a run that is cleaned up has its record"
        settings = _settings_of(folder)
        lines = [assignment("id", record.id), assignment("run", folder / "run"), shell_body("clean_node")]
        removed, problems = [], []
        for host, done in _answers(settings, _checked(settings, record.nodes), "\n".join(lines)):
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.strip()]
                problems.append(f"{host}: {lines[-1] if lines else f'exit code {done.returncode}'}")
            removed += [f"{line} on {host}" for line in done.stdout.splitlines() if line.startswith("process ")]
        if problems:
            raise CannotStart(
                "\n  ".join([f"not all hosts respond; removed: {', '.join(removed) or 'nothing'}", *problems])
            )
        return removed


def _answers(
    settings: Hosts, hosts: Sequence[str], script: str
) -> list[tuple[str, "subprocess.CompletedProcess[str]"]]:
    from concurrent.futures import ThreadPoolExecutor

    def ask(host: str) -> tuple[str, "subprocess.CompletedProcess[str]"]:
        words = [*_ssh(settings), "--", host, "exec bash -s"]
        try:
            done = subprocess.run(
                words, input=script, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            done = subprocess.CompletedProcess(words, 255, "", str(error))
        return host, done

    with ThreadPoolExecutor(min(_PARALLEL, len(hosts))) as pool:
        return list(pool.map(ask, hosts))


def _settings_of(folder: Path) -> Hosts:
    """Return the hosts of a run from its plan.

    Raises:
        CannotStart: the plan cannot be read.
    """
    file = folder / RUN / PLAN
    try:
        return EXECUTOR.stored_settings(json.loads(file.read_text(encoding="utf-8"))["start"]["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotStart(f"{file} does not name the hosts of the run ({type(error).__name__})") from None


def _hosts_count(job: Job) -> bool:
    """Return whether the number of hosts is the number of nodes: a recipe's is replaced if the user sets the hosts."""
    kind = job.origin("cluster.nodes").kind
    named = "override" in (job.origin("cluster.hosts").kind, job.origin("cluster.host_file").kind)
    return kind in ("default", "derived") or (kind == "recipe" and named)


def _settings(plan: LaunchPlan) -> Hosts:
    settings = plan.start.settings
    assert isinstance(settings, Hosts), "a plan for ssh has its hosts"
    return settings


def _hosts(plan: LaunchPlan) -> tuple[str, ...]:
    return _checked(_settings(plan), len(plan.nodes))


def _checked(settings: Hosts, count: int) -> tuple[str, ...]:
    """Return one host for each node; neither they nor the options are read as anything else by ssh.

    Raises:
        CannotStart: there are too few, or one is no host.
    """
    hosts = settings.hosts
    if not hosts:
        raise CannotStart("no hosts are named: add cluster.hosts=[HOST,…] or cluster.host_file=FILE")
    if len(hosts) < count:
        raise CannotStart(
            f"the job has {count} nodes and cluster.hosts names {len(hosts)} ({', '.join(hosts)}): "
            f"name more, or set cluster.nodes={len(hosts)}"
        )
    for host in hosts[:count]:
        if not is_ssh_host(host):
            raise CannotStart(f"{shown(host)} is not a [USER@]HOST of ssh: cluster.hosts")
    problem = ssh_options_problem(settings.options)
    if problem:
        raise CannotStart(f"cluster.ssh_options: {problem}")
    return hosts[:count]


def _ssh(settings: Hosts) -> tuple[str, ...]:
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": _CONNECT_SECONDS,
        "ServerAliveInterval": _ALIVE_SECONDS,
        "ServerAliveCountMax": _ALIVE_COUNT,
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ("ssh", *settings.options, "-T", *words)


def _groups(hosts: Sequence[str], fanout: int) -> list[Sequence[str]]:
    """Return the groups of hosts that their first one connects to; none where all are reached from here.

    As `start_nodes` of shell/ssh.sh forms them.
    """
    if fanout == 0 or len(hosts) <= fanout:
        return []
    size = -(-len(hosts) // fanout)
    return [hosts[first : first + size] for first in range(0, len(hosts), size)]


def _out_of_reach(plan: LaunchPlan, group: Sequence[str]) -> str:
    """Return which hosts of its group the first one cannot reach, in one line; "" if it reaches all."""
    lines = [
        array("hosts", group),
        array("ssh", _ssh(_settings(plan))),
        "reach() { " + '"${ssh[@]}" -n -- "$1" true >/dev/null 2>&1 || printf "%s " "$1"; }',
        f'for host in "${{hosts[@]}}"; do reach "$host" & (( ++n % {_PARALLEL} )) || wait; done; wait',
    ]
    ((_, done),) = _answers(_settings(plan), group[:1], "\n".join(lines))
    missing = [host for host in group if host in done.stdout.split()]
    if done.returncode == 0 and not missing:
        return ""
    what = " ".join(missing) if done.returncode == 0 else f"any of its group ({done.stderr.strip()[-200:]})"
    return (
        f"{group[0]} cannot reach {what} by ssh, which it must as there are more hosts than cluster.ssh_fanout; "
        "works: cluster.ssh_fanout=0 (all connections from here)"
    )


def _probe(plan: LaunchPlan, rank: int, host: str) -> str:
    """Return why a host cannot take part, in one line; "" if it can."""
    script = "\n".join(_questions(plan, rank))
    try:
        done = subprocess.run(
            [*_ssh(_settings(plan)), "--", host, "exec bash -s"],
            input=script,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{host}: no response within {_PROBE_SECONDS} s"
    if done.returncode == 0:
        return ""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode == 255:
        return f"{host}: cannot be reached: {lines[-1] if lines else 'ssh gives no reason'}"
    return f"{host}: {lines[-1] if lines else f'exit code {done.returncode}'}"


def _questions(plan: LaunchPlan, rank: int) -> Iterator[str]:
    yield from port_head()
    yield shell_body("common")
    yield assignment("launch_dir", getcwd())
    yield '[ -d "$launch_dir" ] || { echo "$launch_dir does not exist: every host needs the same folders"; exit 72; }'
    yield 'for program in setsid grep tee; do command -v $program >/dev/null || { echo "no $program"; exit 72; }; done'
    if rank == 0 and plan.start.port is not None:
        port = plan.start.port
        yield f'if port_taken {port}; then echo "port {port} is in use: another cluster.master_port"; exit {_TAKEN}; fi'


EXECUTOR = Ssh()

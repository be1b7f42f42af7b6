"""Hosts of `cluster.hosts` or `cluster.host_file`: without duplicates, with as many devices as the job sets."""

import re
from pathlib import Path

from launcher.executors.ssh.syntax import is_ssh_host
from launcher.job import Job, Origin, with_values
from launcher.plan.executor import WrongOption, WrongOptions

_SLOTS = re.compile(r"slots=(\d+)")


def with_hosts(job: Job) -> Job:
    """Return the job with the hosts of its host file.

    Raises:
        WrongOptions: the file cannot be read, a host is repeated or invalid, slots differ from the job's devices.
    """
    cluster = job.cluster
    mistakes: list[WrongOption] = []
    if cluster.host_file is not None and not cluster.hosts:
        path = Path(cluster.host_file).expanduser()
        hosts = _read(path, job, mistakes)
        job = with_values(job, {"cluster.hosts": tuple(hosts)}, Origin(kind="derived", where=str(path)))
    where = job.origin("cluster.hosts").where
    seen: set[str] = set()
    for host in job.cluster.hosts:
        if host in seen:
            mistakes.append(
                WrongOption(
                    message=f"cluster.hosts: {host} is listed twice; one host is one node", where=where, works=()
                )
            )
        if not is_ssh_host(host):
            mistakes.append(WrongOption(message=f"cluster.hosts: {host!r} is not a host name", where=where))
        seen.add(host)
    if mistakes:
        raise WrongOptions(dict.fromkeys(mistakes))
    return job


def _read(path: Path, job: Job, mistakes: list[WrongOption]) -> list[str]:
    where = job.origin("cluster.host_file").where
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise WrongOptions([WrongOption(message=f"cluster.host_file: {path}: {reason}", where=where)]) from None
    hosts = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        hosts.append(words[0])
        for word in words[1:]:
            slots = _SLOTS.fullmatch(word)
            if slots is None:
                mistakes.append(
                    WrongOption(
                        message=f"cluster.host_file: {word!r} is not understood",
                        where=f"{path}:{number}",
                        works=("HOST", f"HOST slots={job.cluster.devices_per_node}"),
                    )
                )
            elif int(slots[1]) != job.cluster.devices_per_node:
                message = (
                    f"cluster.host_file: slots={slots[1]}, but cluster.devices_per_node={job.cluster.devices_per_node}"
                )
                mistakes.append(
                    WrongOption(
                        message=message, where=f"{path}:{number}", works=(f"cluster.devices_per_node={slots[1]}",)
                    )
                )
    if not hosts and not mistakes:
        mistakes.append(WrongOption(message=f"cluster.host_file: {path} names no host", where=where))
    return hosts

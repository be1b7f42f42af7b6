"""Rules about ssh's options: nothing in them is read as another host or as a command."""

from collections.abc import Iterator

from launcher.executors.ssh.syntax import is_ssh_host, ssh_options_problem
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.syntax import shown


@rule(
    "SSH-HOST",
    source="ssh(1): [USER@]HOST; OpenSSH 9.6 refuses shell metacharacters in both",
    reads="job.cluster.hosts",
    mandatory=True,
)
def hosts_are_hosts(context: RuleContext) -> Iterator[Violation]:
    """A host must be a name or an address, optionally with a user before it; never an option of ssh."""
    for host in context.job.cluster.hosts:
        if not is_ssh_host(host):
            yield Violation(
                message=f"cluster.hosts: {shown(host)} is not a [USER@]HOST of ssh", fields=("cluster.hosts",)
            )


@rule("SSH-OPTION", source="ssh(1)", reads="job.cluster.ssh_options", mandatory=True)
def ssh_options_are_options(context: RuleContext) -> Iterator[Violation]:
    """Every argument for ssh must be an option or an option's value: ssh takes any other argument as the host."""
    problem = ssh_options_problem(context.job.cluster.ssh_options)
    if problem:
        yield Violation(
            message=f"cluster.ssh_options: {problem}; one word each, such as [-p,2222]",
            fields=("cluster.ssh_options",),
        )

"""How a secret reaches the processes of a job, by executor; its value is never written to a file."""

from collections.abc import Mapping

from launcher.executors.forwarded_env import READ
from launcher.job import field_at
from launcher.job.secret import is_secret, variable_of
from launcher.plan.executor import executor_names, get_executor

_REFERRED = "backend.env.{name}='${{oc.env:{name}}}'"


def explained_secret(name: str) -> Mapping[str, object] | None:
    """Return how to set a variable that is a secret; None for other names."""
    variable = variable_of(name)
    if not is_secret(variable) or name.upper() != variable:
        return None
    goes_along = variable in READ
    words = {
        "name": variable,
        "refer": _REFERRED.format(name=variable),
        "secret": field_at("cluster.secret").default,
    }
    return {
        "set": f"export {variable}=… in the shell that calls launch",
        "reaches the processes": [
            f"cluster={name}: {get_executor(name).secrets[0 if goes_along else 1].format(**words)}"
            for name in executor_names()
        ],
        "never written": f"backend.env.{variable}=VALUE works as well, but the value itself is dropped: dry-run, "
        f"records, plans, job files and scripts hold ${{{variable}}}, and the environment must have it when the job "
        "starts; "
        "a shell's history and the list of processes keep what is typed",
    }

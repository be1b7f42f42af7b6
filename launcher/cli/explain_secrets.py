"""How a secret reaches the processes of a job, by executor; none of these ways writes its value to a file."""

from collections.abc import Mapping

from launcher.executors.forwarded_env import READ
from launcher.job import field_at
from launcher.job.secret import is_secret, variable_of

_INHERITED = "inherited from the shell that calls launch"
_REFERRED = "backend.env.{name}='${{oc.env:{name}}}'"
# Executor: how a variable reaches the processes, for names that are forwarded by default, and for others.
_WAYS = {
    "local": (_INHERITED, _INHERITED),
    "environment": (
        "inherited from the platform's job: set {name} there, as one of its secrets",
        "inherited from the platform's job: set {name} there, as one of its secrets",
    ),
    "ssh": (
        "sent to every host through ssh's standard input, from the shell that calls launch",
        "sent only if the job refers to it: {refer}",
    ),
    "slurm": (
        "sbatch hands on the environment of the shell that calls launch (--export=ALL, its default; a site or "
        "cluster.sbatch_options may say otherwise: then --export=ALL,{name}, without a value)",
        "sbatch hands on the environment of the shell that calls launch (--export=ALL, its default); into a container "
        "only if the job refers to it: {refer}",
    ),
    "kubernetes": (
        "from the key {name} of the Secret {secret} (cluster.secret): kubectl create secret generic {secret} "
        "--from-env-file=FILE",
        "from the key {name} of the Secret {secret} (cluster.secret), if the job refers to it: {refer}",
    ),
}


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
            f"cluster={executor}: {ways[0 if goes_along else 1].format(**words)}" for executor, ways in _WAYS.items()
        ],
        "never written": f"backend.env.{variable}=VALUE works as well, but the value itself is dropped: dry-run, "
        f"records, plans, job files and scripts hold ${{{variable}}}, and the environment must have it when the job "
        "starts; "
        "a shell's history and the list of processes keep what is typed",
    }

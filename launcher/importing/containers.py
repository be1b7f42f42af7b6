"""Notes on container programs that start a training command (`docker run IMAGE …`), which the job does not start."""

from collections.abc import Iterator, Mapping, Sequence

from launcher.importing.notes import Note
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerProgram:
    """Command-line syntax of a container program.

    Attributes:
        commands: sub-commands that start a command, and what their first argument names.
        flags: options without a value; all others take one.
        mounts: options that mount a folder.
        variables: options that set a variable, or name a file of them (`env-file`).
    """

    commands: Mapping[str, str]
    flags: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset({"env", "env-file"})


_DOCKER = ContainerProgram(
    commands={"run": "image", "exec": "container"},
    flags=frozenset(
        {
            *("i", "t", "d", "q", "P", "interactive", "tty", "detach", "quiet", "publish-all", "rm", "init"),
            *("privileged", "read-only", "no-healthcheck", "oom-kill-disable"),
        }
    ),
    mounts=frozenset({"v", "volume", "mount"}),
    variables=frozenset({"e", "env", "env-file"}),
)
_SINGULARITY = ContainerProgram(
    commands={"exec": "image", "run": "image"},
    flags=frozenset(
        {
            *("c", "C", "e", "f", "i", "p", "q", "s", "u", "w", "contain", "containall", "cleanenv", "fakeroot"),
            *("ipc", "pid", "quiet", "silent", "userns", "writable", "writable-tmpfs", "nv", "nvccli", "rocm"),
            *("no-home", "no-init", "no-umask", "no-privs", "keep-privs", "compat", "uts", "net"),
        }
    ),
    mounts=frozenset({"B", "bind", "mount"}),
)
# enroot(1) start
_ENROOT = ContainerProgram(
    commands={"start": "image"},
    flags=frozenset({"r", "root", "w", "rw"}),
    mounts=frozenset({"m", "mount"}),
    variables=frozenset({"e", "env"}),
)
_KUBECTL = ContainerProgram(commands={"exec": "pod"}, flags=frozenset({"i", "t", "q", "stdin", "tty", "quiet"}))
_PROGRAMS: Mapping[str, ContainerProgram] = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "nvidia-docker"), _DOCKER),
    **dict.fromkeys(("singularity", "apptainer"), _SINGULARITY),
    **dict.fromkeys(("kubectl", "oc"), _KUBECTL),
    "enroot": _ENROOT,
}
_REGISTRY = "docker://"
_LONGEST = 120


def container_notes(words: Sequence[str], where: str) -> Iterator[Note]:
    """Yield a note for each container program among the words before a training command.

    Args:
        words: what starts the command, with its options; command lines that enclose each other follow one another.
    """
    for at, word in enumerate(words[:-1]):
        name = word.rpartition("/")[2]
        program = _PROGRAMS.get(name)
        command = words[at + 1]
        if program is None or command not in program.commands:
            continue
        target, mounts, variables = _target(words[at + 2 :], program)
        kind = program.commands[command]
        given = {"mounts": mounts, "variables": variables}
        parts = [f"{kind} {target}".strip(), *(f"{what} {_short(', '.join(of))}" for what, of in given.items() if of)]
        dropped = ", ".join(parts[:-1]) + f" and {parts[-1]}" if len(parts) > 1 else parts[0]
        start = "start launch inside it"
        image = target.removeprefix(_REGISTRY)
        # Pyxis and Kubernetes pull images from registries; they read no file of Singularity.
        pulled = kind == "image" and image and (program is _DOCKER or image != target)
        works = (f"cluster.container={image} with cluster=slurm or cluster=kubernetes", start)
        yield Note(
            message=f"{name} {command}: {dropped}: dropped, the job starts on the machine itself",
            where=where,
            works=works if pulled else (start,),
        )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _target(words: Sequence[str], program: ContainerProgram) -> tuple[str, list[str], list[str]]:
    """Return the first argument that is no option, the folders that options mount, and names of variables or files."""
    mounts: list[str] = []
    variables: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        at += 1
        name = option.lstrip("-")
        letters = name if not option.startswith("--") else ""
        if name in program.flags or (letters and set(letters) <= program.flags):
            continue
        if not equals and at < len(words):
            value = words[at]
            at += 1
        if name in program.mounts:
            mounts.append(value)
        elif name in program.variables:  # without their values, which may be secrets
            variables.append(f"of {value}" if name == "env-file" else value.partition("=")[0])
    return (words[at] if at < len(words) else ""), mounts, variables

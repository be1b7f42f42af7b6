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
    """

    commands: Mapping[str, str]
    flags: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()


_DOCKER = ContainerProgram(
    commands={"run": "image", "exec": "container"},
    flags=frozenset(
        {
            *("i", "t", "d", "q", "P", "interactive", "tty", "detach", "quiet", "publish-all", "rm", "init"),
            *("privileged", "read-only", "no-healthcheck", "oom-kill-disable"),
        }
    ),
    mounts=frozenset({"v", "volume", "mount"}),
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
_KUBECTL = ContainerProgram(commands={"exec": "pod"}, flags=frozenset({"i", "t", "q", "stdin", "tty", "quiet"}))
_PROGRAMS: Mapping[str, ContainerProgram] = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "nvidia-docker"), _DOCKER),
    **dict.fromkeys(("singularity", "apptainer"), _SINGULARITY),
    **dict.fromkeys(("kubectl", "oc"), _KUBECTL),
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
        target, mounts = _target(words[at + 2 :], program)
        kind = program.commands[command]
        dropped = f"{kind} {target}".strip() + (f" and mounts {_short(', '.join(mounts))}" if mounts else "")
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


def _target(words: Sequence[str], program: ContainerProgram) -> tuple[str, list[str]]:
    """Return the first argument that is no option, and the folders that options mount."""
    mounts: list[str] = []
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
    return (words[at] if at < len(words) else ""), mounts

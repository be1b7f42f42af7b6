"""Rules about Slurm's options: values must be of the form that sbatch and srun read."""

import re
from collections.abc import Iterator

from launcher.executors.slurm.executor import EXECUTOR
from launcher.executors.slurm.syntax import sbatch_options_problem
from launcher.executors.time_limit import seconds_of
from launcher.rules.registry import RuleContext, Violation, rule

_UNLIMITED = ("UNLIMITED", "INFINITE")
_UNITS = {"d": "{}-00:00:00", "h": "{}:00:00", "m": "{}"}
_MEMORY = re.compile(r"\d+[KMGT]?", re.IGNORECASE)
_NAMES = ("partition", "account", "qos", "reservation", "nodelist", "exclude", "gres", "constraint")


@rule("WORD-SLURM", source="Slurm sbatch(1) --time, --mem, --partition …", reads="job.cluster.*")
def slurm_s_words_are_understood(context: RuleContext) -> Iterator[Violation]:
    """Values for Slurm must be times, sizes and names in the form that sbatch reads."""
    cluster = context.job.cluster
    if cluster.executor != EXECUTOR.name:
        return
    limit = cluster.time_limit
    if (
        limit is not None
        and limit.strip()
        and limit.isprintable()
        and seconds_of(limit) is None
        and limit.upper() not in _UNLIMITED
    ):
        yield Violation(
            message=f"cluster.time_limit {limit!r} is not a time: minutes, H:M:S, DAYS-HOURS or DAYS-H:M:S",
            fields=("cluster.time_limit",),
            works=tuple(f"cluster.time_limit={each}" for each in _times(limit)),
        )
    memory = cluster.memory
    if memory is not None and memory.strip() and memory.isprintable() and not _MEMORY.fullmatch(memory):
        yield Violation(
            message=f"cluster.memory {memory!r} is not a Slurm memory size: a number with K, M, G or T, or 0 for all",
            fields=("cluster.memory",),
            works=(f"cluster.memory={_size(memory)}", "cluster.memory=0"),
        )
    for name in _NAMES:
        text = getattr(cluster, name)
        if text is not None and text.strip() and text.isprintable() and set(text) & set(" \"';`$\\"):
            yield Violation(
                message=f"cluster.{name} {text!r}: a Slurm value has no spaces, quotes or variables",
                fields=(f"cluster.{name}",),
            )


def _times(text: str) -> tuple[str, ...]:
    """Return a time with a unit as Slurm writes it; examples where it has none."""
    found = re.fullmatch(r"(\d+)\s*([dhm])[a-z]*", text.strip(), re.IGNORECASE)
    return (_UNITS[found[2].lower()].format(found[1]),) if found else ("12:00:00", "2-00:00:00")


def _size(text: str) -> str:
    """Return a size as Slurm writes it, in whole numbers only; an example where the text is not a size."""
    found = re.match(r"(\d+)(\.\d+)?\s*([KMGT])", text.strip(), re.IGNORECASE)
    if found is None:
        return "500G"
    unit = found[3].upper()
    if found[2] is None or unit == "K":
        return f"{found[1]}{unit}"
    return f"{int(1024 * float(found[1] + found[2]))}{'KMGT'['KMGT'.index(unit) - 1]}"


@rule(
    "CLUSTER-MOUNT",
    source="Pyxis srun --container-mounts",
    reads="job.cluster.executor job.cluster.container job.cluster.container_mounts",
)
def mounts_are_folders(context: RuleContext) -> Iterator[Violation]:
    """A mount of a container is SOURCE:TARGET[:FLAG+FLAG] of folders, without spaces and commas."""
    cluster = context.job.cluster
    if cluster.executor != EXECUTOR.name or cluster.container is None:
        return
    for mount in cluster.container_mounts:
        source, _, rest = mount.partition(":")
        target = rest.partition(":")[0] or source
        if " " in mount or "," in mount or not source.startswith(("/", ".")) or not target.startswith(("/", ".")):
            yield Violation(
                message=f"cluster.container_mounts {mount!r} is not SOURCE:TARGET[:FLAG+FLAG] of folders, without "
                "spaces and commas",
                fields=("cluster.container_mounts",),
            )


# A word that needs no quotes in an override.
_SIMPLE = re.compile(r"[\w./:@%+=,-]+")


@rule("SBATCH-OPTION", source="sbatch(1), getopt_long(3)", reads="job.cluster.sbatch_options", mandatory=True)
def sbatch_options_are_options(context: RuleContext) -> Iterator[Violation]:
    """Every argument for sbatch must be one of its options, or the value of the option before it."""
    words = context.job.cluster.sbatch_options
    problem = sbatch_options_problem(words)
    if not problem:
        return
    # `--name value` as one argument is often copied from a script.
    mended = [re.sub(r"^(--[A-Za-z][A-Za-z0-9-]*)[ \t]+(?=\S)", r"\1=", word) for word in words]
    plain = all(_SIMPLE.fullmatch(word) for word in mended) and not sbatch_options_problem(mended)
    works = (f"cluster.sbatch_options=[{','.join(mended)}]",) if plain else ()
    yield Violation(message=f"cluster.sbatch_options: {problem}", fields=("cluster.sbatch_options",), works=works)

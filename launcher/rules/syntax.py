"""Syntax checks for names, paths, time limits, memory sizes and image references."""

import re
from collections.abc import Iterator

from launcher.job import Job, value_at
from launcher.job.pods import seconds_of
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.syntax import is_text

# A name is a folder below ./launch_output, the prefix of a run's id, and the name of the queue's job.
_NAME = re.compile(r"[^/\\\s.~-][^/\\]*")
_LONGEST_NAME = 128
# Paths and names that mean nothing when they are empty; elsewhere '' may be a value (cluster.gres, data.system).
_NEVER_EMPTY = (
    *("output_dir", "model.path", "model.hub_id", "tokenizer.path", "lora.load", "task.reference_model"),
    *("checkpoint.save", "checkpoint.load", "data.cache_path", "profiler.path", "logging.tensorboard_dir"),
    *("cluster.python", "cluster.container", "cluster.host_file", "cluster.partition", "cluster.account"),
    *("cluster.qos", "cluster.time_limit", "cluster.memory", "cluster.nodelist", "cluster.reservation"),
)
_PATHS = ("output_dir", "checkpoint.save", "checkpoint.load", "model.path")
_UNLIMITED = ("UNLIMITED", "INFINITE")
_UNITS = {"d": "{}-00:00:00", "h": "{}:00:00", "m": "{}"}
_SLURM_MEMORY = re.compile(r"\d+[KMGT]?", re.IGNORECASE)
_SLURM_NAMES = ("partition", "account", "qos", "reservation", "nodelist", "exclude", "gres", "constraint")


@rule("WORD-NAME", source="launch: ./launch_output/NAME, run ids, Slurm --job-name")
def name_is_a_file_s_name(facts: RuleContext) -> Iterator[Violation]:
    """A job's name is a folder name and the prefix of its runs' ids: no path, not hidden, of limited length."""
    name = facts.job.name
    if name is None or not name.isprintable() or (_NAME.fullmatch(name) and len(name.encode()) <= _LONGEST_NAME):
        return  # TEXT-CHARACTERS reports what cannot be printed
    plain = re.sub(r"[^\w.+=@-]+", "-", name).strip("-.+=@ ").encode()[:_LONGEST_NAME].decode(errors="ignore")
    why = "is empty" if not name else "is too long" if len(name.encode()) > _LONGEST_NAME else "is no name of a folder"
    yield Violation(
        message=f"name {name[:_LONGEST_NAME]!r} {why}: up to {_LONGEST_NAME} bytes without / and \\, and none of "
        ". - ~ first",
        fields=("name",),
        works=(f"name={plain}",) if plain else (),
    )


@rule("WORD-EMPTY", source="launch: an empty path is the folder in which a program happens to be")
def paths_say_something(facts: RuleContext) -> Iterator[Violation]:
    """A path or name that is set must not be empty; null leaves it to the launcher or the backend."""
    if facts.as_written:
        return
    for path in _NEVER_EMPTY:
        text = value_at(facts.job, path)
        if text is None:
            continue
        if not text.strip():
            yield Violation(message=f"{path} is given and empty", fields=(path,), works=(f"{path}=null",))
        elif path in _PATHS and path != "output_dir" and is_text(text) and not text.isprintable():
            yield Violation(message=f"{path} {text!r} holds characters that cannot be printed", fields=(path,))


@rule("WORD-SLURM", source="Slurm sbatch(1) --time, --mem, --partition …")
def slurm_s_words_are_understood(facts: RuleContext) -> Iterator[Violation]:
    """Values for Slurm must be times, sizes and names in the form that sbatch reads."""
    cluster = facts.job.cluster
    if cluster.executor != "slurm":
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
            message=f"cluster.time_limit {limit!r} is no time: minutes, H:M:S, DAYS-HOURS or DAYS-H:M:S",
            fields=("cluster.time_limit",),
            works=tuple(f"cluster.time_limit={each}" for each in _times(limit)),
        )
    memory = cluster.memory
    if memory is not None and memory.strip() and memory.isprintable() and not _SLURM_MEMORY.fullmatch(memory):
        yield Violation(
            message=f"cluster.memory {memory!r} is no size of Slurm: a number with K, M, G or T, or 0 for all",
            fields=("cluster.memory",),
            works=(f"cluster.memory={_size(memory)}", "cluster.memory=0"),
        )
    for name in _SLURM_NAMES:
        text = getattr(cluster, name)
        if text is not None and text.strip() and text.isprintable() and set(text) & set(" \"';`$\\"):
            yield Violation(
                message=f"cluster.{name} {text!r}: a word of Slurm has no spaces, quotes or variables",
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


@rule("WORD-IMAGE", source="OCI image references; Pyxis --container-image")
def image_is_a_reference(facts: RuleContext) -> Iterator[Violation]:
    """A container image is a reference without spaces: REGISTRY/IMAGE:TAG, or for Slurm a .sqsh file."""
    image = facts.job.cluster.container
    if image is None or not image.strip() or not _is_read(facts.job):
        return
    if image.isprintable() and (" " in image or image.startswith("-")):
        yield Violation(
            message=f"cluster.container {image!r} is no image: REGISTRY/IMAGE:TAG without spaces"
            + (", or a .sqsh file" if facts.job.cluster.executor == "slurm" else ""),
            fields=("cluster.container",),
        )


def _is_read(job: Job) -> bool:
    return job.cluster.executor in ("slurm", "kubernetes")

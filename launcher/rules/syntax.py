"""Syntax checks for names, paths, time limits, memory sizes and image references."""

import re
from collections.abc import Iterator

from launcher.job import value_at
from launcher.plan.executor import find_executor
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.syntax import is_text

# A name is a folder below ./launch_output, the prefix of a run's id, and the name of the queue's job.
_NAME = re.compile(r"[^/\\\s.~-][^/\\]*")
_LONGEST_NAME = 128
# Paths and names that mean nothing when they are empty; for other fields '' may be a value (cluster.gres, data.system).
_NEVER_EMPTY = (
    *("output_dir", "model.path", "model.hub_id", "tokenizer.path", "lora.load", "task.reference_model"),
    *("checkpoint.save", "checkpoint.load", "data.cache_path", "profiler.path", "logging.tensorboard_dir"),
    *("cluster.python", "cluster.container", "cluster.host_file", "cluster.partition", "cluster.account"),
    *("cluster.qos", "cluster.time_limit", "cluster.memory", "cluster.nodelist", "cluster.reservation"),
)
_PATHS = ("output_dir", "checkpoint.save", "checkpoint.load", "model.path")


@rule("WORD-NAME", source="launch: ./launch_output/NAME, run ids, Slurm --job-name", reads="job.name")
def name_is_a_file_s_name(context: RuleContext) -> Iterator[Violation]:
    """A job's name is a folder name and the prefix of its runs' ids: no path, not hidden, of limited length."""
    name = context.job.name
    if name is None or not name.isprintable() or (_NAME.fullmatch(name) and len(name.encode()) <= _LONGEST_NAME):
        return  # TEXT-CHARACTERS reports what cannot be printed
    plain = re.sub(r"[^\w.+=@-]+", "-", name).strip("-.+=@ ").encode()[:_LONGEST_NAME].decode(errors="ignore")
    why = (
        "is empty"
        if not name
        else "is too long"
        if len(name.encode()) > _LONGEST_NAME
        else "is not a valid folder name"
    )
    yield Violation(
        message=f"name {name[:_LONGEST_NAME]!r} {why}: up to {_LONGEST_NAME} bytes without / and \\, not beginning "
        "with . - ~",
        fields=("name",),
        works=(f"name={plain}",) if plain else (),
    )


@rule(
    "WORD-EMPTY",
    source="launch: an empty path is the folder in which a program happens to be",
    reads="job.checkpoint.load job.checkpoint.save job.data.cache_path job.logging.tensorboard_dir job.lora.load "
    "job.model.hub_id job.model.path job.output_dir job.profiler.path job.task.reference_model "
    "job.tokenizer.path job.cluster.*",
)
def paths_are_not_empty(context: RuleContext) -> Iterator[Violation]:
    """A path or name that is set must not be empty; null leaves it to the launcher or the backend."""
    if context.as_written:
        return
    for path in _NEVER_EMPTY:
        text = value_at(context.job, path)
        if text is None:
            continue
        if not text.strip():
            yield Violation(message=f"{path} is empty", fields=(path,), works=(f"{path}=null",))
        elif path in _PATHS and path != "output_dir" and is_text(text) and not text.isprintable():
            yield Violation(message=f"{path} {text!r} contains unprintable characters", fields=(path,))


@rule(
    "WORD-IMAGE",
    source="OCI image references; Pyxis --container-image",
    reads="job.cluster.container job.cluster.executor",
)
def image_is_a_reference(context: RuleContext) -> Iterator[Violation]:
    """A container image is a reference without spaces: REGISTRY/NAME:TAG in lower case, or for Slurm a .sqsh file."""
    image = context.job.cluster.container
    executor = find_executor(context.job.cluster.executor)
    if image is None or not image.strip() or executor is None or not executor.containers:
        return
    if image.isprintable() and (" " in image or image.startswith("-")):
        message = f"cluster.container {image!r} is not an image reference: {executor.image_forms}"
        yield Violation(message=message, fields=("cluster.container",))
    elif image.isprintable() and not _is_file(image) and not _IMAGE.fullmatch(image):
        stands = " (IMAGE in the documentation stands for yours)" if image.strip("<>{}$") == "IMAGE" else ""
        message = f"cluster.container {image!r} is not an image reference{stands}: {executor.image_forms}; the name is "
        message += "of lower-case letters, digits, '.', '_' and '-'"
        yield Violation(message=message, fields=("cluster.container",))


# `distribution/reference` of containerd and Docker: registry, path of the name, tag, digest; before it the scheme and
# user of Pyxis and enroot, which write # after the registry.
_IMAGE = re.compile(
    r"(?:[a-z]+://)?(?:[^@/#\s]+@)?(?:[A-Za-z0-9.-]*[.:][A-Za-z0-9.:-]*[/#]|localhost[/#]|[a-z0-9.-]+#)?"
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::\w[\w.-]{0,127})?(?:@[\w+.-]+:[0-9a-fA-F]{32,})?"
)


def _is_file(image: str) -> bool:
    """Return whether an image is a path, or a reference to a variable that holds one."""
    return image.startswith(("/", ".", "~")) or image.endswith((".sqsh", ".sif")) or "${" in image

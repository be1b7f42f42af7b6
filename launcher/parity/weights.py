"""Whether the user's own weights are there, and those of the model that the job trains: before anything is trained."""

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.safetensors import read
from launcher.convert.layouts.huggingface import huggingface_read
from launcher.convert.logical import logical_model
from launcher.convert.model import model_in
from launcher.families.registry import weights_of
from launcher.job import Job
from launcher.parity.sides import RANDOM_WEIGHTS, CannotCompare, own_weights
from launcher.rules.sanity_checks import NOT_ARCHITECTURE


def check_weights(job: Job) -> None:
    """Refuse a folder without weights, and a job that changes their model.

    Args:
        job: the first side's small job.

    Raises:
        CannotCompare: with what is wrong.
    """
    folder = own_weights(job)
    if folder is None:
        return
    if not any(folder.glob("*.safetensors")):
        raise CannotCompare(f"model.path={folder}: no weights (*.safetensors) there", RANDOM_WEIGHTS, job=job)
    other = ", ".join(f"model.{name}" for name in job.model.overridden if name not in NOT_ARCHITECTURE)
    if other:
        why = f"model.path={folder}: its weights are another model's: {other} differ from its config.json"
        raise CannotCompare(why, f"without {other}", RANDOM_WEIGHTS, job=job)


def check_shapes(job: Job) -> None:
    """Refuse weights that contradict the config.json beside them, from the headers of their files.

    A family whose parameters are not known here is not checked.

    Raises:
        CannotCompare: with the first tensor that is missing, unknown or of another shape.
        ContainerError: a file is damaged.
    """
    folder = own_weights(job)
    if folder is None or weights_of(job.model.model_type) is None:
        return
    slots = read(folder).slots
    try:
        huggingface_read(logical_model(model_in(folder)), slots)
    except ConvertError as error:
        first, *more = error.problems
        others = f", and {len(more)} more" if more else ""
        why = f"model.path={folder}: its weights contradict its config.json: {first}{others}"
        raise CannotCompare(why, RANDOM_WEIGHTS, job=job) from None

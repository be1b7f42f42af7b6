"""What a rehearsal of ms-swift on CPU cannot do, beside what its stand-ins for a trainer that generates lack."""

from launcher.job import Job
from launcher.job.finding import Finding, Fix
from launcher.rehearse.refusal import RehearsalRefused

_COMPRESSED = "dsv4_hybrid"


def refuse_compressed(job: Job) -> None:
    """Refuse compressed attention: megatron-core 0.16.1, on which ms-swift is rehearsed, has none.

    Raises:
        RehearsalRefused: the model has it.
    """
    if job.model.experimental_attention_variant == _COMPRESSED:
        raise refused(
            "model.experimental_attention_variant",
            "compressed attention is in megatron-core's development branch, and ms-swift is rehearsed on 0.16.1",
            ("backend=mindspeed",),
        )


def refused(path: str, message: str, works: tuple[str, ...]) -> RehearsalRefused:
    """Return the refusal of a field's or argument's value, with overrides that change it."""
    fix = Fix(overrides=works)
    found = Finding(
        rule="REHEARSE-NATIVE", severity="error", message=message, fields=(path,), fixes=(fix,), source="launch"
    )
    return RehearsalRefused([found])

"""Names and modes of Weights & Biases and SwanLab: what ends the training when its tracker starts, or logs nothing."""

from collections.abc import Iterator

from launcher.job import value_at
from launcher.nearest import nearest
from launcher.rules.registry import RuleContext, Violation, rule

# wandb 0.31.0 sdk/wandb_settings.py, validate_project.
_INVALID = "/\\#?%:"
_LONGEST = 128
# wandb 0.31.0 sdk/wandb_settings.py, Settings.mode.
MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")
MODE = "WANDB_MODE"
# Native arguments that switch a tracker on without the field of its project.
_SWITCHES = frozenset({"report_to", "wandb_project", "use_wandb", "swanlab_project"})


@rule(
    "WORD-WANDB",
    source="wandb 0.31.0 sdk/wandb_settings.py, validate_project and mode: seen in runs, which end there",
    reads="job.logging.wandb_project job.backend.env",
)
def wandb_accepts_its_settings(context: RuleContext) -> Iterator[Violation]:
    """A project of Weights & Biases has at most 128 characters and none of / \\ # ? % : and its mode is a known one."""
    if not _has_tracker(context, "wandb"):
        return
    project = context.job.logging.wandb_project
    if project is not None:
        found = [character for character in _INVALID if character in project]
        plain = "".join("-" if character in _INVALID else character for character in project)[:_LONGEST]
        if found or len(project) > _LONGEST:
            why = f"has {' '.join(found)}" if found else f"has more than {_LONGEST} characters"
            yield Violation(
                message=f"logging.wandb_project {project[:_LONGEST]!r} {why}: wandb refuses it when training starts",
                fields=("logging.wandb_project",),
                works=(f"logging.wandb_project={plain}",) if plain.strip("-") else (),
            )
    mode = context.job.backend.env.get(MODE)
    if mode is not None and mode not in MODES and "${" not in mode:
        works = nearest(mode, MODES, cutoff=0.5) or ("offline",)
        yield Violation(
            message=f"{MODE} {mode!r} is not one of {', '.join(MODES)}",
            fields=(f"backend.env.{MODE}",),
            works=tuple(f"backend.env.{MODE}={name}" for name in works),
        )


def _has_tracker(context: RuleContext, tracker: str) -> bool:
    """Return whether the backend has an argument for a tracker's project; where not, the mapping says so."""
    return context.native is None or f"logging.{tracker}_project" in context.fields_by_flag.values()


@rule(
    "SENSE-TRACKER",
    source="Megatron-LM core_v0.16.1 megatron/training/global_vars.py, _set_wandb_writer; ms-swift 4.6.0 report_to",
    reads="job.name job.logging.wandb_name job.logging.wandb_project job.logging.swanlab_name "
    "job.logging.swanlab_project job.backend.args",
    severity="warning",
)
def tracker_has_a_project(context: RuleContext) -> Iterator[Violation]:
    """The name of a run alone switches no tracker on: its project does."""
    job = context.job
    if context.as_written or _SWITCHES & {name.replace("-", "_") for name in job.backend.args}:
        return
    for tracker, title in (("wandb", "Weights & Biases"), ("swanlab", "SwanLab")):
        name, project = (value_at(job, f"logging.{tracker}_{part}") for part in ("name", "project"))
        if _has_tracker(context, tracker) and name is not None and project is None:
            yield Violation(
                message=f"logging.{tracker}_name without logging.{tracker}_project: nothing is logged to {title}",
                fields=(f"logging.{tracker}_name", f"logging.{tracker}_project"),
                works=(f"logging.{tracker}_project={job.name or 'launch'}", f"logging.{tracker}_name=null"),
            )

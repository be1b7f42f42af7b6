"""Which variables go along to nodes that do not inherit the submitter's environment: names, never values."""

from launcher.plan import LaunchPlan
from launcher.plan.shell import LAUNCH_DIR, OPTIONAL, references
from launcher.plan.start import RESUME

# What the rendered files assign themselves.
ASSIGNED = (LAUNCH_DIR, RESUME, "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
# What libraries read besides: secrets, and places that a user sets once for all jobs.
_READ = (
    "HF_TOKEN",
    "HF_HOME",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "MODELSCOPE_CACHE",
    "MODELSCOPE_API_TOKEN",
    "WANDB_API_KEY",
    "WANDB_BASE_URL",
    "WANDB_MODE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)


def carried_names(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the names of variables to hand on: what the plan refers to, search paths, and what libraries read."""
    named = [name for name in references(plan) if name not in ASSIGNED]
    return tuple(dict.fromkeys([*OPTIONAL, *named, *_READ]))

"""Environment variables forwarded to nodes that do not inherit the submitter's: names, never values."""

from launcher.job.secret import is_secret
from launcher.plan import LaunchPlan
from launcher.plan.shell import LAUNCH_DIR, OPTIONAL, REFERENCE, references
from launcher.plan.start import RESUME

# Set by the rendered files.
ASSIGNED = (LAUNCH_DIR, RESUME, "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
# Further variables that libraries read: secrets, and locations that a user sets once for all jobs.
READ = (
    "HF_TOKEN",
    "HF_HOME",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "MODELSCOPE_CACHE",
    "MODELSCOPE_API_TOKEN",
    "WANDB_API_KEY",
    "SWANLAB_API_KEY",
    "WANDB_BASE_URL",
    "WANDB_MODE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)


def forwarded_names(plan: LaunchPlan) -> tuple[str, ...]:
    """Return the names of variables to forward: the plan's references, search paths, and those of libraries."""
    named = [name for name in references(plan) if name not in ASSIGNED]
    named += [name for text in plan.start.setup for name in REFERENCE.findall(text) if is_secret(name)]
    return tuple(dict.fromkeys([*OPTIONAL, *named, *READ]))

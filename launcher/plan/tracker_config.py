"""The canonical job as configuration of its run in Weights & Biases, which takes a file that its environment names.

Source: wandb 0.31.0 (2026-11), offline: `WANDB_SWEEP_PARAM_PATH` is read without a sweep, too, and merged with what the
program passes to `wandb.init`. `WANDB_CONFIG_PATHS` ends in an error there, whatever its value. SwanLab 0.10.3 reads
the file that `SWANLAB_RUN_CONFIG` names only where the program passes no configuration, which ms-swift does.
"""

import json
import os
from dataclasses import replace

from launcher.job import Job, as_tree
from launcher.job.secret import redacted_tree
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.plan.shell import LAUNCH_DIR

FILE, VARIABLE, KEY = "wandb_config.json", "WANDB_SWEEP_PARAM_PATH", "launch_job"


def with_job_as_config(plan: LaunchPlan, job: Job) -> LaunchPlan:
    """Return the plan with a file that W&B adds to a run's configuration, if the job names a project or a run there.

    What `backend.env` says of the variable stays: a sweep of W&B itself has such a file.
    """
    if job.logging.wandb_project is None and job.logging.wandb_name is None:
        return plan
    path = os.path.join(plan.output_dir, FILE)
    text = json.dumps({"wandb_version": 1, KEY: {"value": redacted_tree(as_tree(job))}})
    # References to variables stay what they are in files that the launcher writes.
    file = PlanFile(path=path, content=text.replace("${", "\\u0024{") + "\n")
    named = path if os.path.isabs(path) else f"${{{LAUNCH_DIR}}}/{path}"
    nodes = tuple(replace(node, env={VARIABLE: named, **node.env}) for node in plan.nodes)
    return replace(plan, files=(*plan.files, file), nodes=nodes)

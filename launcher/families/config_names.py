"""Names in config.json that transformers 5 gave to older keys, which readers of the older ones do not know."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.families.registry import FAMILIES
from launcher.job import Job, Origin
from launcher.job.derive import with_values

_PATH = "model.newer_names"
# New name to the older ones. Source: config.json as transformers 4.57.1 and 5.2.0 to 5.23.0 save it (`dtype` since
# 4.56).
RENAMED: Mapping[str, tuple[str, ...]] = {
    "rope_parameters": ("rope_theta", "rope_scaling"),
    "num_local_experts": ("num_experts",),
    "dtype": ("torch_dtype",),
}


def with_config_names(job: Job) -> Job:
    """Return the job with `model.newer_names` of the config.json in `model.path`, if it is on this machine."""
    if job.model.path is None:
        return job
    folder = Path(job.model.path).expanduser()
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return job
    found = tuple(_newer(config)) if isinstance(config, dict) else ()
    return with_values(job, {_PATH: found}, Origin(kind="derived", where=str(folder))) if found else job


def _newer(config: Mapping[str, Any]) -> Iterator[str]:
    family = FAMILIES.get(str(config.get("model_type")))
    # Mixtral's number of experts is num_local_experts in all releases.
    always = {key.spellings[0] for key in family.keys} if family is not None else set()
    for name, older in RENAMED.items():
        if name in config and name not in always and not any(each in config for each in older):
            yield name

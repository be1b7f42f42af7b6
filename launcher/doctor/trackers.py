"""Checks that Weights & Biases is installed and can log in where a job runs, and gets figures there."""

import netrc
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from launcher.doctor.check import ERROR, OK, WARNING, Check
from launcher.installed import installed
from launcher.job import Job
from launcher.rules.trackers import MODE

_SOURCE = "wandb 0.31.0 sdk/lib/wbauth"
_BESIDE = (
    "MindSpeed-LLM 26.1.0 mindspeed_llm/training/training.py:1025; ms-swift 4.6.0 megatron/callbacks/tensorboard.py:16"
)
_WITHOUT_KEY = ("offline", "disabled", "dryrun")
# Other ways to log in: a token's file, a key in the settings of SageMaker.
_LOGINS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")
_NETRC = ("~/.netrc", "~/_netrc")
_HOST = "https://api.wandb.ai"


def wandb(job: Job, environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield whether the packages are there and a key is found, of a job that logs to it and runs on this machine."""
    if job.logging.wandb_project is None:
        return
    found = installed(["wandb", "tensorboard"], job.cluster.python)
    if not found.problem and "wandb" not in found.versions:
        of = f" of {found.other_python}" if found.other_python else ""
        yield Check(
            what="wandb",
            verdict=ERROR,
            found=f"Python package wandb{of} is missing",
            works="pip install wandb · logging.wandb_project=null",
            source=_SOURCE,
        )
        return
    if not found.problem and "tensorboard" not in found.versions:
        yield Check(
            what="tensorboard",
            verdict=WARNING,
            found="Python package tensorboard is missing: W&B gets figures beside TensorBoard's, here none, or the "
            "training ends",
            works="pip install tensorboard",
            source=_BESIDE,
        )
    values = {**environ, **job.backend.env}
    if values.get(MODE) in _WITHOUT_KEY or any(values.get(name) for name in _LOGINS) or _has_login(values):
        yield Check(what="wandb", verdict=OK, found=found.versions.get("wandb", "logs in"), source=_SOURCE)
        return
    yield Check(
        what="wandb",
        verdict=WARNING,
        found="no key: WANDB_API_KEY is not set, and ~/.netrc has none; without a terminal the training ends there",
        works=f"export WANDB_API_KEY=… · wandb login · backend.env.{MODE}=offline (wandb sync uploads later)",
        source=_SOURCE,
    )


def _has_login(values: Mapping[str, str]) -> bool:
    host = urlsplit(values.get("WANDB_BASE_URL") or _HOST).hostname or ""
    for name in (values.get("NETRC"), *_NETRC):
        file = Path(name).expanduser() if name else None
        try:
            if file is not None and file.is_file() and netrc.netrc(str(file)).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            continue  # wandb does not read it either
    return False

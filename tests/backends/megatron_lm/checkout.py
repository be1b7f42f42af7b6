"""The checkout of Megatron-LM that the user names, for tests against its real code."""

import os
import re
from pathlib import Path

from backends.megatron_lm import BACKEND

CHECKOUT = os.environ.get("MEGATRON_LM_PATH", "")


def checked_out_version() -> str | None:
    """Return the backend version that the named checkout is of; None: no checkout, or one of another version."""
    return version_of(CHECKOUT)


def version_of(checkout: str) -> str | None:
    """Return the backend version that a checkout of Megatron-LM is of; None: it is none, or of another version."""
    info = Path(checkout) / "megatron" / "core" / "package_info.py"
    if not checkout or not info.is_file():
        return None
    major_minor = ".".join(re.findall(r"^(?:MAJOR|MINOR) = (\d+)", info.read_text(), flags=re.MULTILINE))
    return next((version for version in BACKEND.versions if version.startswith(f"{major_minor}.")), None)

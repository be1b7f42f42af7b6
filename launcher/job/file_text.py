"""The text of a job file: YAML that Hydra reads as the same values."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from launcher.job.migrations import JOB_FILES, versioned

# A number to OmegaConf (omegaconf._utils.get_yaml_loader), but text to PyYAML, which would not quote it.
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")


def job_file_text(tree: Mapping[str, Any]) -> str:
    """Return the text of a job file with the current version; fields keep their order."""
    import yaml

    return yaml.dump(versioned(tree, JOB_FILES), Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes text that would be read as a number."""

    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    return Dumper

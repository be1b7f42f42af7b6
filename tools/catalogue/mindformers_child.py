"""Prints what an installed MindFormers really has: the sections of its template and the mcore alias map, imported.

python -m tools.catalogue.mindformers_child
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from tools.catalogue.recorder import plain_value


def main() -> None:
    """Print {"sections": {name: {"keys", "open"}}, "aliases": {key: mcore key}} as JSON."""
    with contextlib.redirect_stdout(sys.stderr):
        from mindformers.parallel_core import transformer_config_utils as utils
        from mindformers.tools.register.template import CONFIG_NAME_TO_CLASS

        sections: dict[str, Any] = {}
        for name, section in CONFIG_NAME_TO_CLASS.items():
            keys = {key: plain_value(getattr(section, key)) for key in section.keys()}  # noqa: SIM118  a method of theirs
            sections[name] = {"keys": keys, "open": not section._raise_error_for_unexpected_key}
        mapping = utils.scatter_multi_mapping_keys_to_mapping(dict(utils.COMMON_CONFIG_MAPPING))
    aliases = {key: target if isinstance(target, str) else target[0] for key, target in mapping.items()}
    print("\n" + json.dumps({"sections": sections, "aliases": aliases}, default=repr))


if __name__ == "__main__":
    main()

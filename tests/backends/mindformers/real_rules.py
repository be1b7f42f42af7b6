"""Run in an environment with MindFormers 1.6.0: its own checks and classes judge files, an endless loop included.

Standard input: JSON list of [file, devices]. Standard output: one JSON line of `null` or the error of each.
"""

import json
import logging
import os
import signal
import sys
from typing import Any

from real_config import _context, judge

_SECONDS = 10


class _Endless(Exception):
    pass


def _stop(*_: Any) -> None:
    raise _Endless("an endless loop")


def _checked(path: str, devices: int) -> None:
    """Apply MindFormers' check_rules as its trainer does before it builds anything."""
    from mindformers.core.context.build_context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.tools import check_rules
    from mindformers.tools.register.config import MindFormerConfig

    config = MindFormerConfig(path)
    config.use_parallel, config.context = False, MindFormerConfig(mode=0, device_target="CPU")
    build_context(config)
    _context(config, devices)
    build_parallel_config(config)
    check_rules.get_device_num = lambda: devices
    check_rules.get_server_num = lambda: max(1, devices // 8)
    config.moe_config = None
    check_rules._check_parallel(config)
    check_rules._check_recompute(config)
    check_rules._check_swap(config)


def main() -> None:
    """Judge every file."""
    logging.disable(logging.CRITICAL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # MindSpore and MindFormers print.
    import mindformers.trainer.base_trainer  # noqa: F401  (imports take longer than any case)

    signal.signal(signal.SIGALRM, _stop)
    for path, devices in json.load(sys.stdin):
        error = None
        signal.alarm(_SECONDS)
        try:
            _checked(path, devices)
            judge(path, devices)
        except Exception as reason:
            error = f"{type(reason).__name__}: {reason}"
        signal.alarm(0)
        print(json.dumps(error), file=out, flush=True)


if __name__ == "__main__":
    main()

"""Verdicts of Megatron-LM on many command lines, those among them that end the program; see parser_child.py.

`einops` is stubbed where it is not installed: 0.12 imports it for vision models.
"""

import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import parser_child


def main() -> None:
    """Answer every line of the input with one line."""
    # All at once: `exit()` in a checked program closes the standard input.
    lines = [json.loads(line) for line in sys.stdin]
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    os.environ["NVTE_CPU_OFFLOAD_V1"] = "1"
    if importlib.util.find_spec("einops") is None:
        sys.modules["einops"] = mock.MagicMock(__spec__=importlib.machinery.ModuleSpec("einops", None))
    modules = parser_child.prepare(sys.argv[1])
    print(json.dumps([parser_child.verdict(*modules, line["argv"], line["world_size"]) for line in lines]))


if __name__ == "__main__":
    main()

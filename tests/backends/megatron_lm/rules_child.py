"""Verdicts of Megatron-LM on many command lines, those among them that end the program; see parser_child.py.

`einops` is stubbed where it is not installed: 0.12 imports it for vision models.
"""

import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import parser_child

# Some arguments connect to services that are not there.
SECONDS = 20


def main() -> None:
    """Answer every line of the input: with one list, or (`each`) each with a line of its own.

    With `values` an answer has what validation changes in the namespace, too.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # upstream prints
    each = "each" in sys.argv[1:]
    # All at once: `exit()` in a checked program closes the standard input.
    lines = [json.loads(line) for line in sys.stdin]
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    os.environ["NVTE_CPU_OFFLOAD_V1"] = "1"
    if importlib.util.find_spec("einops") is None:
        sys.modules["einops"] = mock.MagicMock(__spec__=importlib.machinery.ModuleSpec("einops", None))
    modules = parser_child.prepare(sys.argv[1])
    _build_the_parser_once(modules[0])
    signal.signal(signal.SIGALRM, _too_long)
    answers: list[Any] = []
    answer = parser_child.values if "values" in sys.argv[1:] else parser_child.verdict
    for line in lines:
        signal.alarm(SECONDS)
        answers.append(answer(*modules, line["argv"], line["world_size"], line.get("env")))
        signal.alarm(0)
        if each:
            print(json.dumps(answers[-1]), file=out, flush=True)
    if not each:
        print(json.dumps(answers), file=out)


def _build_the_parser_once(arguments: Any) -> None:
    """Keep the parser of the first command line: building it takes longer than all checks."""
    add, built = arguments.add_megatron_arguments, []

    def added(parser: Any) -> Any:
        if not built:
            built.append(add(parser))
        return built[0]

    arguments.add_megatron_arguments = added


def _too_long(*_: object) -> None:
    raise TimeoutError(f"no verdict within {SECONDS} s")


if __name__ == "__main__":
    main()

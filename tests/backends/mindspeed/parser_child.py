"""MindSpeed-LLM's own parser, validators and configuration on CPU: reads command lines as JSON, answers with verdicts.

Each command line has a process of its own, because MindSpeed decides by the command line what it patches at import.
Input: one JSON object per line (argv, world_size); output: one JSON list of verdicts, empty where it is accepted.
"""

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path


def verdict(words: list[str], world_size: int) -> str:
    """Return what MindSpeed-LLM has against a command line, in a child process; empty where it accepts it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, _judge(words, world_size).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def _judge(words: list[str], world_size: int) -> str:
    os.environ["WORLD_SIZE"] = str(world_size)
    sys.argv = ["pretrain_gpt.py", *words]
    with tempfile.TemporaryFile("w+") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        reached: list[str] = []
        try:
            _check(reached)
        except (Exception, SystemExit) as error:
            sys.stdout.flush()
            output.seek(0)
            last = output.read().strip().rpartition("\n")[2] if isinstance(error, SystemExit) else ""
            return f"{reached[-1]}: {type(error).__name__}: {error} {last}"
    return ""


def _check(reached: list[str]) -> None:
    """Go through the stages of a start, noting each one before it begins."""
    reached.append("import")
    _ = importlib.import_module("mindspeed_llm").megatron_adaptor
    arguments = importlib.import_module("megatron.training.arguments")
    importlib.import_module("mindspeed_llm.training.initialize")
    reached.append("parser")
    args = arguments.parse_args()
    reached.append("validators")
    arguments.validate_args(args)
    reached.append("TransformerConfig")
    importlib.import_module("megatron.training.global_vars").set_args(args)
    arguments.core_transformer_config_from_args(args)


def main() -> None:
    """Answer every line of the input."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.path.insert(0, str(Path(__file__).parents[3]))
    importlib.import_module("backends.mindspeed.rehearse.cpu").install("pretrain_gpt.py")
    sys.path.insert(0, os.environ["MINDSPEED_LLM_PATH"])
    importlib.import_module("transformers")
    answers = [verdict(line["argv"], line["world_size"]) for line in map(json.loads, sys.stdin)]
    print(json.dumps(answers), file=sys.__stdout__)


if __name__ == "__main__":
    main()

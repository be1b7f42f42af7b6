"""What ms-swift and the library that Megatron-LM's --sft reads with make of the same files, themselves."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.rehearse.native.environments import mindspeed_python, swift_python
from tests.rules.data_samples import FILES, SWIFT_READS, write

pytestmark = pytest.mark.slow

_READ = """
import json, os, sys
from swift.dataset import load_dataset
from datasets import load_dataset as json_lines
answers = {"swift": [], "sft": []}
for name in sorted(os.listdir(sys.argv[1])):
    path = os.path.join(sys.argv[1], name)
    try:
        if len(load_dataset([path], num_proc=1, use_hf=True)[0]):
            answers["swift"].append(name)
    except Exception as error:
        print(name, type(error).__name__, error, file=sys.stderr)
    try:
        turn = json_lines("json", data_files=path, split="all")[0]["messages"][0]
        turn["role"], turn["content"]
        answers["sft"].append(name)
    except Exception as error:
        print(name, type(error).__name__, error, file=sys.stderr)
print(json.dumps(answers))
"""
# The modules of MindSpeed-LLM that look at columns need Megatron only for what is put in place here.
_ALIGN = """
import argparse, enum, json, os, sys, types
root, folder, *handlers = sys.argv[1:]
for name in ("mindspeed_llm", "mindspeed_llm.tasks", "mindspeed_llm.tasks.preprocess"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(root, *name.split("."))]
templates = types.ModuleType("mindspeed_llm.tasks.preprocess.templates")
roles = "user assistant system function observation"
templates.Role = enum.Enum("Role", {each.upper(): each for each in roles.split()}, type=str)
sys.modules[templates.__name__] = templates
from mindspeed_llm.tasks.preprocess.utils import align_dataset, get_handler_dataset_attr
from datasets import load_dataset
kinds = {"json": "json", "jsonl": "json", "csv": "csv", "parquet": "parquet", "txt": "text"}
answers = {handler: [] for handler in handlers}
for handler in handlers:
    for name in sorted(os.listdir(folder)):
        args = argparse.Namespace(handler_name=handler, dataset_additional_keys=[], map_keys=None, cache_dir=None)
        args.streaming, args.workers, args.overwrite_cache = False, 1, True
        try:
            data = load_dataset(kinds[name.split(".")[-1]], split="train", data_files=[os.path.join(folder, name)])
            if align_dataset(data, get_handler_dataset_attr(args, data), args)[0]["prompt"]:
                answers[handler].append(name)
        except Exception as error:
            print(handler, name, type(error).__name__, error, file=sys.stderr)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("data")
    for name in FILES:
        write(folder, name)
    cache = str(tmp_path_factory.mktemp("cache"))
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": cache, "MODELSCOPE_CACHE": cache}
    done = subprocess.run(
        [str(swift_python()), "-c", _READ, str(folder)],
        env={"PATH": "/usr/bin:/bin", "HOME": cache, **offline},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_ms_swift(answers: dict[str, list[str]]) -> None:
    assert answers["swift"] == sorted(SWIFT_READS)


def test_megatron_lm(answers: dict[str, list[str]], tmp_path: Path) -> None:
    from tests.rules.test_data_files import PLAIN, SFT, found

    accepted = []
    for name in sorted(FILES):
        path = write(tmp_path, name)
        if not found(*SFT, *PLAIN, "backend=megatron_lm", f"data.paths=[{path}]"):
            accepted.append(name)
    assert accepted == answers["sft"]


HANDLERS = ("OpenAIInstructionHandler", "SharegptStyleInstructionHandler", "AlpacaStyleInstructionHandler")
# What is not looked into: compressed files, and records longer than what is read.
_UNSEEN = {"gzip.jsonl", "long_record.jsonl"}


def test_mindspeed_llm(tmp_path: Path) -> None:
    from tests.rules.test_data_files import SFT, found

    checkout = os.environ.get("MINDSPEED_LLM_PATH")
    if not checkout:
        pytest.skip("MINDSPEED_LLM_PATH is not set: it must name a checkout of MindSpeed-LLM 26.1.0")
    folder = tmp_path / "data"
    folder.mkdir()
    paths = {name: write(folder, name) for name in FILES}
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HOME": str(tmp_path), "HF_DATASETS_OFFLINE": "1"}
    argv = [str(mindspeed_python()), "-c", _ALIGN, checkout, str(folder), *HANDLERS]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    real = json.loads(done.stdout.splitlines()[-1])
    for handler in HANDLERS:
        words = [*SFT, "backend=mindspeed", f"backend.args.handler-name={handler}"]
        ours = {name for name, path in paths.items() if not found(*words, f"data.paths=[{path}]")}
        assert ours - _UNSEEN == set(real[handler]) - _UNSEEN, handler
        assert set(real[handler]) <= ours, handler

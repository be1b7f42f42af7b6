"""What ms-swift and the library that Megatron-LM's --sft reads with make of the same files, themselves."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.rehearse.native.environments import swift_python
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

"""The hook of .pre-commit-hooks.yaml, as docs/pull_requests.md configures it, run by pre-commit in another repository.

pre-commit makes an environment of its own: the last commit of this repository, and what the hook needs, by pip.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

SCRIPT = """#!/bin/bash
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --dataset chats.jsonl \\
  --tensor_model_parallel_size {tp} --micro_batch_size 1 --global_batch_size 64 \\
  --max_length 8192 --num_train_epochs 2 --lr 1e-5 --output_dir qwen3-sft
"""
# What pip says where there is no index.
OFFLINE = ("Temporary failure in name resolution", "NewConnectionError", "ConnectTimeoutError")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_commit_with_a_script_that_cannot_run_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pre_commit")
    try:
        commit = _git(ROOT, "rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git repository: pre-commit clones one")
    page = ROOT.joinpath("docs/pull_requests.md").read_text(encoding="utf-8")
    found = re.search(r"## pre-commit\n\n```yaml\n(.*?)```", page, re.DOTALL)
    assert found
    config = found[1].replace("URL_OF_THIS_REPOSITORY", str(ROOT)).replace("COMMIT", commit)
    theirs = tmp_path / "theirs"
    (theirs / "scripts").mkdir(parents=True)
    _git(theirs, "init", "-q")
    (theirs / ".pre-commit-config.yaml").write_text(config)
    (theirs / "elsewhere.sh").write_text(SCRIPT.format(tp=5))

    def hook(tp: int) -> subprocess.CompletedProcess[str]:
        (theirs / "scripts" / "train.sh").write_text(SCRIPT.format(tp=tp))
        _git(theirs, "add", ".")
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run"],
            cwd=theirs,
            env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home"), "LAUNCH_HOME": str(tmp_path / "runs")},
            capture_output=True,
            text=True,
            check=False,
        )

    refused = hook(3)
    if any(text in refused.stdout for text in OFFLINE):
        pytest.skip("no package index: pre-commit installs the hook by pip")
    assert refused.returncode == 1, refused
    assert "error PAR-TP-HEADS  parallel.tp=3 (scripts/train.sh:3 --tensor_model_parallel_size)" in refused.stdout
    assert "elsewhere.sh" not in refused.stdout
    passed = hook(4)
    assert passed.returncode == 0, passed

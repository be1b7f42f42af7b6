"""The root in which benchmarks run scripts with a real bash has what scripts need."""

import os
import shutil
from pathlib import Path

import pytest

from tools.bench.real_bash import commands_of, make_root

SCRIPT = """set -euo pipefail
exec > >(tee -a run.log) 2>&1
command -v torchrun > /dev/null
mkdir -p /data/logs out
mapfile -t LAYERS < <(seq 3)
torchrun pretrain_gpt.py --lr "$LR" "${LAYERS[@]}" "$2" "${10}"
"""
PARAMETERS = {str(number): f"p{number}" for number in range(1, 11)}


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, and Linux's unshare")
def test_a_script_that_stops_at_its_first_error_reaches_its_command(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "run.sh").write_text(SCRIPT)
    try:
        make_root(tmp_path / "root")
    except PermissionError:
        pytest.skip("no right to create device files here (mknod)")
    found = commands_of(tmp_path / "root", folder, "scripts/run.sh", {"LR": "1e-4", **PARAMETERS})
    assert ["torchrun", "pretrain_gpt.py", "--lr", "1e-4", "1", "2", "3", "p2", "p10"] in found

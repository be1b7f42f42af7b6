"""Every recipe that the core trainer knows shrinks to this machine and trains."""

import json
from pathlib import Path

import pytest
from core_world import Zygote

from launcher.compose import compose
from launcher.job.shipped import shipped
from launcher.pipeline import judge
from launcher.runtime import planned
from tests.rehearse.not_on_core import NOT_ON_CORE

NAMES = {path.stem for path in shipped("recipes").glob("*.yaml")}
# name: overrides
CASES = {
    **{name: (f"+recipe={name}", "rehearse.shrink=true") for name in sorted(NAMES - NOT_ON_CORE.keys())},
    # Experts split over tp and ep: etp is tp, and gloo gathers parts of one length only.
    "experts of tp 2 and ep 2": (
        *("+recipe=tiny_qwen3_moe", "runtime=rehearsal", "cluster.devices_per_node=4"),
        *("parallel.tp=2", "parallel.ep=2", "parallel.sequence_parallel=true", "schedule.lr_warmup_iters=1"),
    ),
}


@pytest.mark.slow
@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("overrides", CASES.values(), ids=CASES.keys())
def test_a_recipe_trains(zygote: Zygote, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    size = ("rehearse.max_processes=4", "schedule.train_iters=10", f"output_dir={tmp_path}/out")
    job = compose([*overrides, *size, "backend=megatron"])
    plan = planned(judge(job, fixes=False))
    argv = list(plan.nodes[0].argv)
    ranks = int(argv[argv.index("--nproc_per_node") + 1]) if "--nproc_per_node" in argv else 1
    options = tmp_path / "options.json"
    options.write_text(plan.files[0].content)
    words = ["--options", str(options), "--", *argv[argv.index("--") + 1 :]]
    exit_codes, output = zygote.call("launcher.rehearse.core.__main__:main", words, ranks=ranks)
    assert exit_codes == [0] * ranks, output
    losses = json.loads((tmp_path / "out" / "result.json").read_text())["losses"]
    assert len(losses) == 10
    assert min(losses[5:]) < losses[0]

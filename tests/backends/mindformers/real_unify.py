"""Run by MindSpore's own interpreter: its tools make whole files of rank folders, or rank folders of whole files.

python real_unify.py unify RANKS STRATEGIES OUT: merge_pipeline_strategys and unified_safetensors, as MindFormers does.
python real_unify.py cut WHOLE OUT CASES: a file of each rank and its strategy, cut as CASES (JSON) say.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def unify(ranks: str, strategies: str, out: str) -> None:
    """Make whole files of rank folders."""
    import mindspore

    merged = os.path.join(os.path.dirname(out), "merged.ckpt")
    mindspore.merge_pipeline_strategys(src_strategy_dirs=strategies, dst_strategy_file=merged)
    mindspore.unified_safetensors(src_dir=ranks, src_strategy_file=merged, dst_dir=out, max_process_num=1)


def _strategy(cases: dict[str, Any]) -> Any:
    from mindspore.train import node_strategy_pb2

    made = node_strategy_pb2.ParallelStrategyMap()
    made.current_stage = 1
    item = made.parallel_strategy_item.add()
    item.node_name = "node"
    item.parallel_strategys.stage = 0
    for name, case in cases.items():
        entry = made.parallel_layout_item.add()
        entry.param_name = name
        layout = entry.parallel_layouts
        layout.dev_matrix.add().dim.extend(case["devices"])
        nested = any(isinstance(axis, list) for axis in case["map"])
        for axes in case["map"] if nested else [case["map"]]:
            layout.tensor_map.add().dim.extend(axes if isinstance(axes, list) else [axes])
        layout.param_split_shape.add().dim.extend(case["shape"])
        layout.field = 0
        layout.opt_weight_shard_step, layout.opt_weight_shard_size = case.get("optimizer", (0, 0))
    return made


def cut(whole: str, out: str, cases: dict[str, Any]) -> None:
    """Cut whole files for the ranks of one stage."""
    import mindspore

    Path(out, "strategy").mkdir(parents=True)
    strategy = Path(out, "strategy", "ckpt_strategy_rank_0.ckpt")
    strategy.write_bytes(_strategy(cases).SerializeToString())
    mindspore.transform_checkpoints(
        whole, os.path.join(out, "checkpoint"), "cut_", None, str(strategy), process_num=1, output_format="safetensors"
    )


if __name__ == "__main__":
    if sys.argv[1] == "unify":
        unify(*sys.argv[2:5])
    else:
        cut(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))

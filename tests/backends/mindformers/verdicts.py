"""Our verdict and the real one of MindFormers 1.6.0 for jobs drawn at random, and what may differ, with the reason."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backends.mindformers.launch import launch
from launcher.job import Job, derive
from launcher.pipeline import judge
from tests.backends.mindformers.jobs import DEEPSEEK, OLD, make, tree
from tests.backends.verdicts import Validator, Verdict, ask

_MODEL = "model.model_config."
# Rules whose fault neither MindFormers' checks nor its classes see before the network is built.
LATER = {
    "MF-MICRO-BATCHES": "in MindSpore's graph compiler",
    "MF-OFFSET-REPEATED": "never: a wrong number of layers is trained",
    "MF-OFFSET-ENDLESS": "never, unless recompute counts layers of stages: then the loop has no end",
    "PAR-EXPERT-WORLD": "when the experts are built (moe/ffn.py:145)",
    "MF-EP-RANKS": "when the experts are built (moe/ffn.py:145)",
    "MOE-EP-EXPERTS": "when the experts are built (moe_layer.py:61)",
    "MOE-TP-SP": "when the experts are built (moe_layer.py:144)",
    "MOE-TOPK": "in the first forward pass",
    "PAR-TP-FFN": "when the network is built",
    "PAR-CP-SEQ": "in the first forward pass",
    "PAR-SP-SEQ": "in the first forward pass",
    "MF-STAGE-LAYERS": "when the network is built (modeling_utils.py:330)",
    "MF-CHUNK-LAYERS": "when the network is built (modeling_utils.py:337)",
}
_SIZES = ((1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 1), (4, 2, 1), (1, 4, 1), (2, 2, 2), (1, 1, 2))
_KEYS: Mapping[str, tuple[Any, ...]] = {
    _MODEL + "offset": (0, [0, 0], [1, -1], [1, 0], [[0, 0], [0, 0]], [0, 0, 0, 0], [30, -30], [-31, 31]),
    "recompute_config.recompute": (True, [1, 1], [1, 1, 1], [[1, 1], [1, 0]], "full", [1, -1], [40, 1]),
    "recompute_config.select_recompute": (True, [1, 1], [1, 1, 1, 1, 1], ["mlp"]),
    "swap_config.swap": (True, False),
    "swap_config.default_prefetch": (1, 0),
    "swap_config.layer_swap": ([{"layers": [1], "backward_prefetch": 1}], [{"layers": [1], "backward_prefetch": 0}]),
    "parallel.pipeline_config.pipeline_scheduler": ("1f1b", "gpipe", "2f2b", "seqvpp"),
    "parallel_config.seq_split_num": (1, 2, 0),
    "parallel_config.micro_batch_num": (1, 2, 8, 0),
    "runner_config.gradient_accumulation_steps": (1, 2, 0),
    "parallel_config.use_seq_parallel": (True, False),
    "parallel_config.model_parallel": (1, 2, 3),
    "parallel_config.vocab_emb_dp": (True, False),
    _MODEL + "hidden_dropout": (0.0, 0.1, 0, 1.0),
    _MODEL + "attention_dropout": (0.0, 0),
    _MODEL + "num_nextn_predict_layers": (0, 1, 2),
    _MODEL + "use_flash_attention": (True, False),
    _MODEL + "use_ring_attention": (True, False),
    _MODEL + "first_k_dense_replace": (3, 0, 70),
    _MODEL + "moe_layer_freq": (1, 2),
    _MODEL + "add_bias_linear": (False, True),
    _MODEL + "num_experts_per_tok": (8, 1),
    _MODEL + "moe_expert_capacity_factor": (1.5,),
    _MODEL + "moe_pad_expert_input_to_capacity": (True, False),
    _MODEL + "num_attention_heads": (128, 126),
}
_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "parallel.vpp": (None, 1, 2),
    "parallel.ep": (1, 2, 4, 8, 16),
    "parallel.sequence_parallel": (True, False),
    "model.num_hidden_layers": (60, 61, 58),
    "model.scoring_func": ("sigmoid", "softmax"),
    "model.router_expert_bias": (True, False),
    "cluster.nodes": (1, 2),
}


def jobs(count: int, seed: int = 0) -> Iterator[tuple[str, dict[str, Any], Job]]:
    """Yield named jobs with their changes; the same seed draws the same ones."""
    for number in range(count):
        changes, job = _job(random.Random(seed * 100_003 + number))
        yield f"fuzzed {number}", changes, job


def _job(draw: random.Random) -> tuple[dict[str, Any], Job]:
    tp, pp, cp = draw.choice(_SIZES)
    chosen: dict[str, Any] = {"parallel.tp": tp, "parallel.pp": pp, "parallel.cp": cp}
    chosen["parallel.sequence_parallel"] = tp > 1
    keys: dict[str, Any] = {}
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3))):
        if draw.random() < 0.3:
            path = draw.choice(sorted(_FIELDS))
            chosen[path] = draw.choice(_FIELDS[path])
        else:
            key = draw.choice(sorted(_KEYS))
            keys[key] = draw.choice(_KEYS[key])
    model = {**DEEPSEEK, "num_hidden_layers": 60, "n_group": None, "topk_group": None, "num_nextn_predict_layers": 0}
    whole = tree(model)
    for path, value in chosen.items():
        section, leaf = path.split(".")
        whole.setdefault(section, {})[leaf] = value
    whole["backend"] = {"name": "mindformers", "version": OLD, "args": keys}
    return {**chosen, **keys}, derive(make(whole))


def validator(python: Path, folder: Path, *, title: str = "", cache: Path | None = None, workers: int = 1) -> Validator:
    """Return the program that asks MindFormers itself, in an environment with MindFormers 1.6.0."""
    folder.mkdir(parents=True, exist_ok=True)
    return Validator(
        command=(str(python), str(Path(__file__).with_name("real_rules.py"))),
        cwd=folder,
        as_list=True,
        title=title,
        cache=cache,
        workers=workers,
    )


def compare(count: int, seed: int, folder: Path, program: Validator) -> list[Verdict]:
    """Judge jobs ourselves and by MindFormers; jobs that the mapping refuses are left out.

    Args:
        folder: for the files, which are named by their content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []
    cases = []
    for name, changes, job in jobs(count, seed):
        outcome = judge(job, fixes=False)
        errors = tuple(sorted({f.rule for f in outcome.findings if f.severity == "error"}))
        if {"MAP-UNSUPPORTED", "ARG-VALUE", "ARG-CONTRADICTION"} & set(errors):
            continue
        content = launch(outcome.job, outcome.native).files[0].content
        path = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.yaml"
        path.write_text(content, encoding="utf-8")
        drawn.append((name, errors, changes))
        cases.append([str(path), outcome.job.cluster.world_size])
    return [
        Verdict(name=name, ours=ours, real=said, later=LATER, about=changes)
        for (name, ours, changes), said in zip(drawn, ask(program, cases), strict=True)
    ]

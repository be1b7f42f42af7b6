"""Our verdict and the real one of MindFormers 1.6.0 for jobs drawn at random, and what may differ, with the reason."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from backends.mindformers.launch import launch
from launcher.compose import compose
from launcher.job import Job, derive
from launcher.pipeline import judge
from tests.backends.mindformers.jobs import DEEPSEEK, OLD, make, tree
from tests.backends.mindformers.mutated import changed_settings
from tests.backends.users_path import UsersPath, msrun_script, reasons, version_words
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
# The same for files, of which no network is built and no data is read.
_BUILDS = "when the network is built"
LATER_FILES = {
    **LATER,
    **dict.fromkeys(("MF-OFFSET-SUM", "MF-OFFSET-SHAPE", "MF-HEADS-LEGACY", "SENSE-HEADS", "PAR-TP-HEADS"), _BUILDS),
    **dict.fromkeys(("MF-RECOMPUTE-KIND", "MOE-EP-DENSE"), _BUILDS),
    "ARG-BOUND": "when the network is built, or in the first forward pass: a size of nothing",
    "ARG-VALUE": "when the object that takes the value is built",
    **dict.fromkeys(("PAR-TP-KV-HEADS", "MF-SWITCHES", "MF-RECOMPUTE-ENDLESS"), _BUILDS),
    "SENSE-SHARES": "when the optimizer is built",
    "LR-ORDER": "never: the learning rate grows, or stays at 0",
}
# What only the machine decides, not the file.
MACHINE = ("REGISTER_PATH",)
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


def validator(
    python: Path,
    folder: Path,
    program: str = "real_rules.py",
    *,
    title: str = "",
    cache: Path | None = None,
    workers: int = 1,
) -> Validator:
    """Return the program that asks MindFormers itself, in an environment with MindFormers 1.6.0."""
    folder.mkdir(parents=True, exist_ok=True)
    return Validator(
        command=(str(python), str(Path(__file__).with_name(program))),
        cwd=folder,
        as_list=True,
        title=title,
        cache=cache,
        workers=workers,
    )


def compare(count: int, seed: int, path: UsersPath, program: Validator) -> list[Verdict]:
    """Judge jobs as job files by `launch check`, their YAML by MindFormers; not those that the mapping refuses."""
    drawn: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []
    cases = []
    for name, changes, job in jobs(count, seed):
        errors = path.job(job).errors
        if {"MAP-UNSUPPORTED", "ARG-VALUE", "ARG-CONTRADICTION"} & set(errors):
            continue
        outcome = judge(compose([f"+job={path.job_file(job)}"]), fixes=False)
        file = path.file(launch(outcome.job, outcome.native).files[0].content, ".yaml")
        drawn.append((name, errors, changes))
        cases.append([str(file), outcome.job.cluster.world_size])
    return [
        Verdict(name=name, ours=ours, real=said, later=reasons(ours, OLD, LATER), about=changes)
        for (name, ours, changes), said in zip(drawn, ask(program, cases), strict=True)
    ]


def bases(corpus: Path) -> list[tuple[str, dict[str, Any], int]]:
    """Return the training files of the time of 1.6.0 in the corpus: name, content, devices.

    Files of MindFormers' tests are left out: their models are changed in Python.
    """
    records = map(json.loads, corpus.read_text(encoding="utf-8").splitlines())
    return [
        (record["path"], record["yaml"], record.get("world_size") or 8)
        for record in records
        if record.get("training") and record["source"].startswith("mirror_") and not record["path"].startswith("tests/")
    ]


def compare_files(corpus: Path, count: int, seed: int, path: UsersPath, program: Validator) -> list[Verdict]:
    """Judge changed files by `launch check` of the script that starts them, and by MindFormers' own start.

    Args:
        program: with `real_file.py`; files that it refuses as they are written are not changed.
    """
    known = bases(corpus)
    as_written = ask(program, [[str(path.file(_text(tree), ".yaml")), world] for _, tree, world in known])
    known = [base for base, said in zip(known, as_written, strict=True) if said is None]
    drawn = [*known, *(_changed(known, random.Random(seed * 100_003 + number)) for number in range(count))]
    files = [(path.file(_text(tree), ".yaml"), world) for _, tree, world in drawn]
    answers = ask(program, [[str(file), world] for file, world in files])
    ours = [path.script(msrun_script(file, world), *version_words("mindformers", OLD)).errors for file, world in files]
    return [
        Verdict(name=name, ours=refused, real=said, later=reasons(refused, OLD, LATER_FILES), machine=MACHINE)
        for (name, _, _), refused, said in zip(drawn, ours, answers, strict=True)
    ]


def _changed(known: Sequence[tuple[str, dict[str, Any], int]], draw: random.Random) -> tuple[str, dict[str, Any], int]:
    name, tree, world = draw.choice(known)
    if draw.random() < 0.1:
        return f"{name}: {world} devices -> {world * 2}", tree, world * 2
    made, change = changed_settings(tree, draw)
    return f"{name}: {change}", made, world


def _text(tree: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True)

"""Our verdict and the real one of MindFormers 1.6.0 for jobs drawn at random, and what may differ, with the reason."""

import json
import random
import re
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
from tests.backends.users_path import Answer, UsersPath, msrun_script, reasons, version_words
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
    "MF-NORMALIZATION": "when the network is built (transformer/norm.py)",
    "MF-ACTIVATION": "when the network is built (activation.py)",
    "MF-ROUTER-SCORE": "when the network is built (moe/router.py:103)",
    "PAR-TP-FFN": "when the network is built",
    "PAR-CP-SEQ": "in the first forward pass",
    "PAR-SP-SEQ": "in the first forward pass",
    "MF-STAGE-LAYERS": "when the network is built (modeling_utils.py:330)",
    "MF-CHUNK-LAYERS": "when the network is built (modeling_utils.py:337)",
}
# The same for files, of which no network is built and no data is read.
_LLAMA, _TRAINER = "models/llama/llama_transformer.py", "trainer/base_trainer.py"
_LAYERS = "when the network is built (models/utils.py:%s)"
LATER_FILES = {
    **LATER,
    "MF-OFFSET-SUM": _LAYERS % "600",
    "MF-OFFSET-SHAPE": _LAYERS % "593-596",
    "MF-RECOMPUTE-KIND": _LAYERS % "489-525",
    "MF-SELECT-KIND": _LAYERS % "516",
    "MF-RECOMPUTE-ENDLESS": _LAYERS % "480: a loop without an end",
    "MF-HEADS-LEGACY": f"when the network is built ({_LLAMA}:175)",
    "PAR-TP-HEADS": f"when the network is built ({_LLAMA}:179)",
    "PAR-TP-KV-HEADS": f"when the network is built ({_LLAMA}:187)",
    "SENSE-HEADS": "in the first forward pass, by the kernel of attention",
    "MF-DATASET-TASK": "with do_eval, when the data set of evaluation is built",
    "SENSE-SHARES": "when the optimizer is built (mindspore.nn checks its betas)",
    "MF-ALONE": f"never: every process trains a model of its own ({_TRAINER}:263-280)",
}
# Of a value that breaks its type or its least value (`BY_KEY`), by the start of its key.
BY_KEY = ("ARG-BOUND", "ARG-VALUE", "MF-TEXT-NUMBER")
_NAMED = re.compile(r"([\w.#]+): '")
LATER_KEYS = {
    "seed": "when the trainer starts (trainer/trainer.py:289)",
    "runner_config.batch_size": "when data is batched (dataset/causal_language_model_dataset.py:140)",
    "parallel_config.micro_batch_num": "when data is batched (dataset/causal_language_model_dataset.py:140)",
    "train_dataset.": "when the data set is built (dataset/causal_language_model_dataset.py:133-144,376)",
    "model.model_config.pad_token_id": "in the first forward pass",
    "model.model_config.ignore_token_id": "in the first forward pass",
    "model.model_config.": "when the network is built (models/llama/llama.py:87-260)",
    "micro_batch_interleave_num": f"when data is batched, or the network is wrapped ({_TRAINER}:496)",
    "optimizer.": f"when the optimizer is built ({_TRAINER}:552)",
    "runner_wrapper.": "when the wrapper is built (wrapper/wrapper.py:559)",
    "callbacks.": f"when callbacks are built ({_TRAINER}:1093)",
    "runner_config.stop_step": f"never: as text it is ignored, and training does not stop ({_TRAINER}:1022)",
    "swap_config.default_prefetch": "never: nothing reads it without swap",
    "context.device_id": "by MindSpore's context on Ascend",
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
        Verdict(name=name, ours=ours, real=reported, later=reasons(ours, OLD, LATER), about=changes)
        for (name, ours, changes), reported in zip(drawn, ask(program, cases), strict=True)
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
    known = [base for base, reported in zip(known, as_written, strict=True) if reported is None]
    drawn = [*known, *(_changed(known, random.Random(seed * 100_003 + number)) for number in range(count))]
    files = [(path.file(_text(tree), ".yaml"), world) for _, tree, world in drawn]
    answers = ask(program, [[str(file), world] for file, world in files])
    ours = [path.script(msrun_script(file, world), *version_words("mindformers", OLD)) for file, world in files]
    return [
        Verdict(name=name, ours=answer.errors, real=reported, later=later(answer), machine=MACHINE)
        for (name, _, _), answer, reported in zip(drawn, ours, answers, strict=True)
    ]


def later(answer: Answer) -> dict[str, str]:
    """Return where what we refuse in a file shows later, by rule."""
    found = reasons(answer.errors, OLD, LATER_FILES)
    for rule in set(answer.errors) & set(BY_KEY):
        told = [each for each in answer.findings if each["rule"] == rule]
        flags = [flag for each in told for flag in each["flags"] or _NAMED.findall(each["message"])]
        starts = [next((start for start in LATER_KEYS if flag.startswith(start)), None) for flag in flags]
        if flags and None not in starts:
            found[rule] = "; ".join(dict.fromkeys(LATER_KEYS[start] for start in starts if start))
    return found


def _changed(known: Sequence[tuple[str, dict[str, Any], int]], draw: random.Random) -> tuple[str, dict[str, Any], int]:
    name, tree, world = draw.choice(known)
    if draw.random() < 0.1:
        return f"{name}: {world} devices -> {world * 2}", tree, world * 2
    made, change = changed_settings(tree, draw)
    return f"{name}: {change}", made, world


def _text(tree: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(tree), sort_keys=False, allow_unicode=True)

"""The catalogue files that ship: complete, consistent, and equal to the real parsers where those are installed."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue import catalogue
from launcher.catalogue.catalogue import Catalogue
from tests.rehearse.native.environments import mindformers_1_6_python, swift_python
from tools.catalogue.renames import versions

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("backends/*/catalogue/*.json"))
COUNTS = {
    "megatron/3.5-dev": 203,
    "megatron/3.5.3": 212,
    "megatron/3.6.4": 245,
    "megatron/3.12.6": 417,
    "megatron/4.0.0": 356,
    "megatron/4.6.0": 418,
    "megatron_lm/0.12.1": 455,
    "megatron_lm/0.16.1": 651,
    "mindspeed/2.1.0": 585,
    "mindspeed/26.1.0": 795,
    "mindspeed/master": 799,
    "mindspeed/master-fsdp2": 154,
    "mindformers/1.6.0": 714,
    "mindformers/2.1.0": 781,
    "mindformers/1.9.0-pynative": 68,
    "mindformers/2.0.0-pynative": 125,
    "mindformers/2.1.0-pynative": 144,
}


@cache
def load(name: str) -> Catalogue:
    backend, _, version = name.partition("/")
    return catalogue.load(ROOT / "backends" / backend / "catalogue" / f"{version}.json")


def label(path: Path) -> str:
    return f"{path.parents[1].name}/{path.stem}"


@pytest.mark.parametrize("name, count", COUNTS.items())
def test_every_argument_is_there(name: str, count: int) -> None:
    assert len(load(name)) == count


@pytest.mark.parametrize("path", FILES, ids=label)
def test_the_file_is_consistent(path: Path) -> None:
    loaded = load(label(path))
    assert (loaded.backend, loaded.version) == (path.parents[1].name, path.stem)
    assert {"project", "version", "revision", "made_by"} <= set(loaded.source)
    names = [argument.name for argument in loaded.arguments]
    assert names == sorted(set(names))
    for argument in loaded.arguments:
        found = loaded.get(argument.name)
        assert found is argument, f"{argument.name} is hidden by {found}"
        assert argument.source, f"{argument.name} has no source"
        assert not argument.required or not argument.has_default, argument.name


@pytest.mark.parametrize("path", FILES, ids=label)
def test_defaults_pass_their_own_check(path: Path) -> None:
    loaded = load(label(path))
    bad = {}
    for argument in loaded.arguments:
        if not argument.has_default or argument.default is None or argument.is_flag:
            continue
        message = loaded.check(argument.name, argument.default)
        if message:
            bad[argument.name] = message
    assert bad == {}


FACTS: list[tuple[str, str, dict[str, Any]]] = [
    ("megatron/4.6.0", "tensor_model_parallel_size", {"type": "int", "default": 1}),
    ("megatron/4.6.0", "attention_backend", {"type": "str", "default": "flash"}),
    (
        "megatron/4.6.0",
        "gradient_accumulation_fusion",
        {"negation": "no_gradient_accumulation_fusion", "default": True},
    ),
    ("megatron/4.6.0", "moe_aux_loss_coeff", {"type": "float", "nargs": "+", "default": None}),
    ("megatron/4.6.0", "use_chat_template", {"default": None, "command_defaults": {"pt": False}}),
    ("megatron/4.6.0", "fp16", {"type": "bool", "optional_value": False, "nullable": True}),
    ("megatron/4.6.0", "recompute_granularity", {"choices": ("selective", "full", "none"), "default": "selective"}),
    ("megatron/3.5-dev", "eval_iters", {"default": 100}),
    ("megatron/3.5.3", "eval_iters", {"default": -1}),
    ("megatron/3.6.4", "rlhf_type", {"commands": ("rlhf",)}),
    ("megatron_lm/0.16.1", "moe-layer-freq", {"type": "expr", "default": 1}),
    ("megatron_lm/0.12.1", "no-masked-softmax-fusion", {"action": "store_false", "dest": "masked_softmax_fusion"}),
    ("megatron_lm/0.16.1", "attention-backend", {"choices": ("flash", "fused", "unfused", "local", "auto")}),
    ("mindspeed/master", "transformer-impl", {"default": "transformer_engine"}),
    ("mindspeed/2.1.0", "transformer-impl", {"default": "local"}),
    ("mindspeed/master", "context-parallel-algo", {"default": "megatron_cp_algo"}),
    ("mindspeed/master", "use-mc2", {"deprecated": True, "renamed_to": "use-ascend-mc2"}),
    ("mindspeed/master", "kv-head-repeat-before-uly-alltoall", {"action": "store_true", "default": True}),
    ("mindspeed/26.1.0", "swap-attention", {"origin": "mindspeed"}),
    ("mindspeed/master-fsdp2", "parallel.fsdp_size", {"type": "int"}),
    ("mindformers/1.6.0", "parallel_config.model_parallel", {"type": "int", "default": 1}),
    ("mindformers/1.6.0", "recompute_config.recompute", {"type": "bool|list", "default": False}),
    ("mindformers/1.6.0", "model.model_config.num_layers", {"aliases": ("model.model_config.num_hidden_layers",)}),
    ("mindformers/2.1.0", "use_legacy", {"default": True}),
    ("mindformers/2.1.0-pynative", "parallelism.tensor_parallel", {"type": "int", "default": 1}),
]


@pytest.mark.parametrize("name, argument, facts", FACTS, ids=[f"{name}:{argument}" for name, argument, _ in FACTS])
def test_known_facts(name: str, argument: str, facts: dict[str, Any]) -> None:
    found = load(name).get(argument)
    assert found is not None
    assert {key: getattr(found, key) for key in facts} == facts


LAUNCHERS = [
    ("megatron_lm/launchers/torchrun", "nproc_per_node", "nproc-per-node"),
    ("mindformers/launchers/msrun", "--worker_num", "worker_num"),
    ("mindformers/launchers/run_mindformer", "--register_path", "register_path"),
    ("megatron/launchers/environment", "NPROC_PER_NODE", "NPROC_PER_NODE"),
    ("mindspeed/launchers/environment", "HCCL_CONNECT_TIMEOUT", "HCCL_CONNECT_TIMEOUT"),
]


@pytest.mark.parametrize("name, given, found", LAUNCHERS, ids=[name for name, _, _ in LAUNCHERS])
def test_launchers_and_environments_are_catalogues_too(name: str, given: str, found: str) -> None:
    backend, _, rest = name.partition("/")
    argument = catalogue.load(ROOT / "backends" / backend / "catalogue" / f"{rest}.json").get(given)
    assert argument is not None
    assert argument.name == found


def test_mindspeed_extends_megatron_lm_of_its_version() -> None:
    extended, plain = load("mindspeed/master"), load("megatron_lm/0.12.1")
    own = {argument.name for argument in extended.arguments if argument.origin == "megatron"}
    assert own == {argument.name for argument in plain.arguments}
    origins = [argument.origin for argument in extended.arguments]
    assert {origin: origins.count(origin) for origin in sorted(set(origins))} == {
        "megatron": 455,
        "mindspeed": 62,
        "mindspeed_llm": 282,
    }


@pytest.mark.parametrize(
    "name, value, says",
    [
        pytest.param("context-parallel-algo", "adaptive_cp_algo", "must be one of", id="a choice that was dropped"),
        pytest.param("tensor-model-parallel", 2, "did you mean tensor-model-parallel-size", id="an abbreviation"),
        pytest.param("use-flash-attn", "true", "is a flag and takes no value", id="a value after a flag"),
    ],
)
def test_mindspeed_refuses_what_its_parser_refuses(name: str, value: Any, says: str) -> None:
    message = load("mindspeed/master").check(name, value)
    assert message is not None
    assert says in message


def test_mindformers_refuses_unknown_keys_only_where_it_does() -> None:
    loaded = load("mindformers/1.6.0")
    assert loaded.check("context.some_new_switch", True) is None
    assert loaded.check("model.model_config.rope_scaling.factor", 4.0) is None
    message = loaded.check("parallel_config.tensor_parallel", 2)
    assert message is not None
    assert "not an argument" in message


def test_the_rename_table_is_complete_and_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.catalogue.renames", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr or "run python -m tools.catalogue.renames"


def test_defaults_of_megatron_core_0_16_1_are_those_of_the_package() -> None:
    """Megatron-LM 0.16 makes many arguments from megatron-core's dataclasses, which PyPI has."""
    spec = importlib.util.find_spec("megatron.core")
    if spec is None or spec.origin is None:
        pytest.skip("megatron-core is not installed")
    from importlib.metadata import version

    if version("megatron-core") != "0.16.1":
        pytest.skip(f"megatron-core {version('megatron-core')} is installed, 0.16.1 is what the catalogue describes")
    from launcher.catalogue.checkout.classes import Package, Unknown, dataclass_fields

    files = ("megatron/core/transformer/transformer_config.py", "megatron/core/model_parallel_config.py")
    package = Package(root=Path(spec.origin).parents[2], folders=files)
    rows = {argument.dest: argument for argument in load("megatron_lm/0.16.1").arguments if not argument.is_flag}
    compared = 0
    for name, field in dataclass_fields(package.mro("TransformerConfig")).items():
        argument = rows.get(name)
        call = field.call()
        if call is not None and any(
            arg.arg == "metadata" and "argparse_meta" in ast.unparse(arg) for arg in call.keywords
        ):
            continue  # made by hand for the command line
        if argument is None or argument.owner not in ("TransformerConfig", "ModelParallelConfig"):
            continue
        assert argument.source == field.source
        try:
            real = field.default()
        except Unknown as error:  # an enum member, by name
            real = str(error).rpartition(".")[2]
        assert argument.default == real, name
        compared += 1
    assert compared > 50


@pytest.mark.slow
def test_megatron_swift_4_6_is_the_real_parser() -> None:
    """Every option of the real HfArgumentParser: names, twins, types, arity, choices, defaults, per command."""
    done = subprocess.run(
        [str(swift_python()), "-m", "tools.catalogue.swift_child"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = load("megatron/4.6.0")
    real = json.loads(done.stdout.splitlines()[-1])
    assert tuple(real) == loaded.commands
    wrong: list[str] = []
    for command, actions in real.items():
        seen = set()
        for action in actions:
            if action["dest"].startswith("_"):
                continue
            wrong += [f"{command} {action['dest']}: {text}" for text in differences(loaded, command, action)]
            seen.add(action["dest"])
        ours = {item.name for item in loaded.arguments if not item.commands or command in item.commands}
        wrong += [f"{command} {name}: only on one side" for name in ours ^ seen]
    assert wrong == []


def differences(loaded: Catalogue, command: str, action: dict[str, Any]) -> list[str]:
    """Return how the catalogue differs from one real argparse action."""
    argument = loaded.get(action["dest"])
    if argument is None:
        return ["missing"]
    if action["negation"]:
        twins = all(loaded.is_negation(option) for option in action["options"])
        return [] if twins and argument.default_for(command) is True else ["negation"]
    kinds = {"string_to_bool": "bool", "choice": argument.type, "str": "str", "int": "int", "float": "float"}
    # Optional[Union[dict, str]] parses as text, which swift then reads as JSON.
    kind = argument.type if argument.type != "json" else "str"
    real = {
        "nargs": action["nargs"] if action["nargs"] != "?" else None,
        "optional_value": action["nargs"] == "?",
        "choices": None if action["choices"] is None else sorted(map(str, action["choices"])),
        "required": action["required"],
    }
    ours = {
        "nargs": argument.nargs,
        "optional_value": argument.bare_in(command),
        "choices": None if argument.choices is None else sorted(map(str, argument.choices)),
        "required": argument.required,
    }
    found = [f"{key}: {ours[key]!r}, really {real[key]!r}" for key in real if ours[key] != real[key]]
    if action["choices"] is None and kinds.get(action["type"], action["type"]) != kind:
        found.append(f"type: {argument.type}, really {action['type']}")
    if argument.default_from is None and argument.default_for(command) != action["default"]:
        found.append(f"default: {argument.default_for(command)!r}, really {action['default']!r}")
    return found


CHECKOUTS = {"MEGATRON_LM_PATH": "Megatron-LM", "MINDSPEED_PATH": "MindSpeed", "MINDSPEED_LLM_PATH": "MindSpeed-LLM"}


def checkout(variable: str) -> tuple[Path, list[str]]:
    """Return the checkout that the environment names, and its revision in the ways that the catalogues write it."""
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} does not name a checkout of {CHECKOUTS[variable]}")
    command = ["git", "-C", path, "describe", "--tags", "--exact-match"]
    tag = subprocess.run(command, capture_output=True, text=True, check=False)
    head = subprocess.run(["git", "-C", path, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    revisions = [text for text in (tag.stdout.strip(), head.stdout.strip()[:8]) if text]
    if not revisions:
        pytest.skip(f"{variable}={path} is no git checkout, so that its revision is not known")
    return Path(path), revisions


def same_rows(loaded: Catalogue, rows: list[dict[str, Any]]) -> None:
    made = {"backend": loaded.backend, "version": loaded.version, "style": "argparse", "source": {}, "arguments": rows}
    real = catalogue.from_json(json.loads(json.dumps(made)))
    assert [item.name for item in loaded.arguments] == sorted(item.name for item in real.arguments)
    for argument in loaded.arguments:
        found = real.get(argument.name)
        assert found is not None
        for key in ("aliases", "dest", "type", "nargs", "default", "choices", "action", "required", "source"):
            assert getattr(argument, key) == getattr(found, key), f"{argument.name}: {key}"


@pytest.mark.slow
def test_megatron_lm_is_the_real_parser() -> None:
    path, revisions = checkout("MEGATRON_LM_PATH")
    files = [load(f"megatron_lm/{version}") for version in versions(ROOT / "backends/megatron_lm/catalogue")]
    loaded = next((item for item in files if item.source["revision"] in revisions), None)
    if loaded is None:
        pytest.skip(f"no catalogue describes Megatron-LM {revisions[0]}")
    from tools.catalogue import argparse_backends

    same_rows(loaded, argparse_backends.megatron_lm(path)[1])


@pytest.mark.slow
def test_mindspeed_llm_is_the_real_parser() -> None:
    paths = {name: checkout(variable) for variable, name in CHECKOUTS.items()}
    files = [load(f"mindspeed/{version}") for version in versions(ROOT / "backends/mindspeed/catalogue")]

    def described(text: str) -> bool:
        return all(any(revision in text for revision in revisions) for _, revisions in paths.values())

    loaded = next((item for item in files if described(item.source["revision"])), None)
    if loaded is None:
        pytest.skip(f"no catalogue describes {', '.join(f'{name} {paths[name][1][0]}' for name in paths)}")
    from tools.catalogue import argparse_backends

    roots = (paths["MindSpeed-LLM"][0], paths["MindSpeed"][0], paths["Megatron-LM"][0])
    same_rows(loaded, argparse_backends.mindspeed_llm(*roots)[1])


@pytest.mark.slow
def test_mindformers_1_6_has_these_sections_and_aliases(tmp_path: Path) -> None:
    """The imported template and alias map of an installed MindFormers 1.6.0: every key, default and spelling."""
    python = str(mindformers_1_6_python())
    done = subprocess.run(
        [python, "-m", "tools.catalogue.mindformers_child"],
        cwd=tmp_path,  # it writes log files to where it stands
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    real = json.loads(done.stdout.splitlines()[-1])
    loaded = load("mindformers/1.6.0")
    wrong = []
    for section, found in real["sections"].items():
        prefix = "" if section == "general_config" else f"{section}."
        is_open = loaded.is_open(f"{section}.unknown")
        # moe_config is read by legacy models only: the rule MF-KEY knows which of its keys they take.
        if section not in ("model", "general_config", "moe_config") and found["open"] != is_open:
            wrong.append(f"{section}: open {not found['open']}, really {found['open']}")
        for key, default in found["keys"].items():
            argument = loaded.get(prefix + key)
            if argument is None and section != "callbacks":
                wrong.append(f"{prefix}{key}: missing")
            elif argument is not None and argument.has_default and argument.default != default:
                wrong.append(f"{prefix}{key}: default {argument.default!r}, really {default!r}")
    for alias, target in real["aliases"].items():
        argument = loaded.get(f"model.model_config.{alias}")
        if argument is None or argument.dest != target:
            wrong.append(f"alias {alias}: {argument and argument.dest}, really {target}")
    assert wrong == []
    assert len(real["aliases"]) > 200

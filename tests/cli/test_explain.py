"""`launch explain` knows every name that any output can show; `launch args` lists what can be given."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.api import compose, plan
from launcher.cli.dispatch import dispatch
from launcher.cli.explain_names import explained, known_names, load_all
from launcher.job import fields
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.launchers import starters
from launcher.rules.computations import TOPICS
from launcher.rules.diagnostics import DIAGNOSTICS
from launcher.rules.registry import RULES
from tests.conftest import ROOT

_ID = re.compile(r"[A-Z][A-Z0-9]*(-[A-Z0-9]+)+")


@pytest.fixture(scope="module")
def backends() -> list[Backend]:
    found = [get_backend(name) for name in backend_names()]
    load_all(found)
    return found


def say(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = dispatch(list(args))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def tree(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any]:
    code, out, err = say(capsys, "explain", name, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_every_field_has_meaning_type_default_and_what_it_is_on_every_backend(backends: list[Backend]) -> None:
    for path in fields():
        found = next(explained(path, backends))
        assert found["field"] == path
        assert found["meaning"]
        assert {each["backend"] for each in found["backends"]} == {
            f"{backend.name} {version}" for backend in backends for version in backend.versions
        }


def test_every_rule_is_explained(backends: list[Backend]) -> None:
    for rule_id in RULES:
        found = next(explained(rule_id, backends))
        assert found["rule"] == rule_id
        assert found["meaning"], rule_id
        assert found["source"], rule_id


def ids_in_the_source() -> dict[str, str]:
    """Every text in the source that has the form of an id, with its place."""
    found: dict[str, str] = {}
    for room in ("launcher", "backends"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_rule = isinstance(node, ast.keyword) and node.arg == "rule"
                value = node.value if isinstance(node, ast.keyword) and is_rule else node
                if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                    continue
                if _ID.fullmatch(value.value) or (is_rule and value.value):
                    found[value.value] = f"{path.relative_to(ROOT)}:{value.lineno}"
    return found


# Texts that have the form of an id and are none.
_NO_IDS = frozenset({"UTF-8", "US-ASCII", "X-Y"})


@pytest.mark.slow
def test_every_id_that_a_finding_can_carry_is_explained(backends: list[Backend]) -> None:
    ids = ids_in_the_source()
    assert {"MAP-UNSUPPORTED", "ARG-REPLACED", "MODEL-LOCAL", "EST-FITS", "IMPORT", "REHEARSE-NODES"} <= set(ids)
    parts = [name for name in ids if any(name in rule_id and name != rule_id for rule_id in RULES)]
    parts += TOPICS  # a finding's id is COMPUTES- and the topic
    families = {rule_id.partition("-")[0] for rule_id in (*RULES, *DIAGNOSTICS)} | {"DEEP", "EST", "IMPORT"}
    for name, place in ids.items():
        if name not in parts and name not in _NO_IDS and name.partition("-")[0] in families:
            assert list(explained(name, backends)), f"{place}: {name} is not explained: launcher/rules/diagnostics.py"


@pytest.mark.parametrize("topic", TOPICS)
def test_what_backends_compute_differently_is_explained(backends: list[Backend], topic: str) -> None:
    (found,) = explained(f"computes-{topic}", backends)
    assert found["finding"] == f"COMPUTES-{topic}"
    assert TOPICS[topic].quantity in found["meaning"]
    rows = [row for backend in backends for row in backend.computations() if row.topic == topic]
    says = {each["says"] for each in found["backends"]}
    assert says >= {*TOPICS[topic].ways.values(), *(RULES[row.rule].doc.rstrip(".") for row in rows if row.rule)}
    assert all(each["source"] for each in found["backends"])
    assert f"COMPUTES-{topic}" in known_names(backends)


def test_reported_findings_say_what_to_do() -> None:
    for reported in DIAGNOSTICS.values():
        assert reported.doc, reported.id
        assert reported.works, reported.id


def test_every_argument_of_every_version_is_found_under_its_name_and_aliases(backends: list[Backend]) -> None:
    from launcher.cli.explain_names import matching

    for backend in backends:
        for version in (*backend.versions, *backend.other_entries):
            catalogue = backend.catalogue(version)
            for argument in catalogue.arguments:
                for name in (argument.name, *argument.aliases):
                    assert argument in matching(name, catalogue), (backend.name, version, name)


def test_every_argument_of_launchers_and_every_variable_is_explained(backends: list[Backend]) -> None:
    for starter in starters():
        for argument in starter.catalogue.arguments[::7]:
            kinds = {key for each in explained(argument.name, backends) for key in each}
            assert kinds & {"launcher argument", "environment variable"}, argument.name


@pytest.mark.parametrize("backend", backend_names())
def test_every_variable_of_a_plan_is_explained(backends: list[Backend], backend: str) -> None:
    for recipe in ("tiny_qwen3", "qwen3_moe"):
        args = [f"+recipe={recipe}", f"backend={backend}", "runtime=native", "cluster.nodes=2"]
        shown = plan(compose([*args, "kernels.deterministic=true"]))
        text = " ".join(arg for node in shown.nodes for arg in (*node.argv, *node.env.values()))
        for name in {*(name for node in shown.nodes for name in node.env), *re.findall(r"\$\{(\w+)\}", text)}:
            kinds = {key for each in explained(name, backends) for key in each}
            assert "environment variable" in kinds, name


NAMES = {
    "an old name": ("--max_epochs", "renamed", "in 4.6.0 it is num_train_epochs"),
    "a new name": ("num_train_epochs", "renamed", "it was max_epochs until 3.12.6"),
    "an inverted name": ("--no_initialization", "renamed", "perform_initialization"),
    "a finding of the engine": ("MAP-UNSUPPORTED", "works", "backend.args.NAME=VALUE"),
    "a rule of the estimate": ("EST-STAGES", "applied by", "launch estimate"),
    "a rule of one backend": ("MS-CP-ULYSSES-HEADS", "meaning", "heads"),
    "a launcher's argument": ("nproc-per-node", "found", "torchrun"),
    "msrun's argument": ("local_worker_num", "found", "msrun"),
    "a variable": ("HCCL_CONNECT_TIMEOUT", "set", "backend.env.HCCL_CONNECT_TIMEOUT"),
    "a pass-through path": ("backend.args.use_cpu_initialization", "backends", "megatron 4.6.0"),
    "a path of a variable": ("backend.env.HCCL_CONNECT_TIMEOUT", "found", "environment"),
    "a section": ("parallel", "fields", "parallel.tp"),
    "the end of a YAML key": ("model_parallel", "backends", "parallel_config.model_parallel"),
    "another entry point": ("training.num_train_epochs", "backends", "mindspeed master-fsdp2"),
    "an argument of another program": ("mask-prob", "no field", "Only BERT and T5 read it"),
    "a choice": ("recompute.granularity", "choices", "selective"),
    "lower case": ("moe-tp-sp", "rule", "MOE-TP-SP"),
}


@pytest.mark.parametrize("case", NAMES)
def test_names(capsys: pytest.CaptureFixture[str], case: str) -> None:
    name, key, text = NAMES[case]
    assert text in json.dumps(tree(capsys, name)[key], ensure_ascii=False)
    code, out, _ = say(capsys, "explain", name)
    assert code == 0
    assert text in out


def test_a_name_with_several_meanings_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    found = tree(capsys, "seed")
    assert found["field"] == "seed"
    assert found["also"][0]["argument"] == "seed"
    assert tree(capsys, "--seed")["argument"] == "seed"


def test_defaults_of_every_version_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    found = {each["backend"]: each["default"] for each in tree(capsys, "--attention_backend")["backends"]}
    assert (found["megatron 3.5.3"], found["megatron 4.6.0"]) == ("'auto'", "'flash'")


@pytest.mark.parametrize(
    ("name", "near"),
    [("paralel.tp", "parallel.tp"), ("MAP-UNSUPORTED", "MAP-UNSUPPORTED"), ("--max_epoch", "max_epochs")],
)
def test_misspelt_names(capsys: pytest.CaptureFixture[str], name: str, near: str) -> None:
    code, _, err = say(capsys, "explain", name)
    assert code == 2
    assert near in err


def test_one_backend_only(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = say(capsys, "explain", "parallel.tp", "--backend", "mindformers", "--json")
    assert code == 0
    assert {each["backend"].split()[0] for each in json.loads(out)["backends"]} == {"mindformers"}
    assert say(capsys, "explain", "parallel.tp", "--backend", "nemo")[0] == 2


# -- launch args

LISTED: dict[str, list[tuple[str, ...]]] = {
    "every version": [
        ("args", name, "--backend-version", version)
        for name in backend_names()
        for version in get_backend(name).versions
    ],
    "launchers": [("args", "torchrun"), ("args", "msrun"), ("args", "run_mindformer"), ("args", "environment")],
    "environments": [("args", name, "--environment") for name in backend_names()],
    "other entry points": [
        ("args", "mindformers", "--backend-version", "2.1.0-pynative"),
        ("args", "mindspeed", "--backend-version", "master-fsdp2"),
    ],
}


@pytest.mark.parametrize("case", LISTED)
def test_args_lists(capsys: pytest.CaptureFixture[str], case: str) -> None:
    for args in LISTED[case]:
        code, out, err = say(capsys, *args, "--json")
        assert code == 0, err
        tree = json.loads(out)
        arguments = tree["arguments"]
        assert len(arguments) > 10, args
        assert all(each["type"] and each["arity"] and each["source"] for each in arguments), args
        code, out, _ = say(capsys, *args)
        assert code == 0
        assert len(out.splitlines()) == len(arguments) + len(tree.get("set", ()))


SHAPES: dict[str, tuple[tuple[str, str], dict[str, object]]] = {
    "bare switch": (
        ("megatron_lm", "sequence-parallel"),
        {"arity": "0", "boolean_style": "--sequence-parallel alone switches on"},
    ),
    "bool with a value": (
        ("megatron", "sequence_parallel"),
        {"arity": "0 or 1", "boolean_style": "--sequence_parallel [true|false]"},
    ),
    "list": (("megatron", "target_modules"), {"arity": "1 or more", "type": "str"}),
    "choices": (
        ("megatron", "recompute_granularity"),
        {"arity": "1", "choices": ["selective", "full", "none"], "default": "selective"},
    ),
    "YAML": (("mindformers", "use_parallel"), {"boolean_style": "key: true or false"}),
    "launcher": (("torchrun", "nnodes"), {"type": "str", "default": "1:1"}),
    "msrun": (("msrun", "join"), {"type": "bool", "default": False}),
}


@pytest.mark.parametrize("case", SHAPES)
def test_args_tell_how_to_give_them(capsys: pytest.CaptureFixture[str], case: str) -> None:
    (backend, name), wanted = SHAPES[case]
    code, out, _ = say(capsys, "args", backend, name, "--json")
    assert code == 0
    found = next(each for each in json.loads(out)["arguments"] if each["name"] == name)
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("nemo",), 2, "works: megatron"),
        (("megatron", "--backend-version", "9"), 2, "versions: 4.6.0"),
        (("torchrun", "--backend-version", "1"), 2, "versions: 2."),
        (("megatron", "tensor_modle_parallel_size"), 1, "did you mean tensor_model_parallel_size"),
    ],
)
def test_args_mistakes(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, text: str) -> None:
    found, _, err = say(capsys, "args", *args)
    assert found == code
    assert text in err


def test_the_source_of_every_catalogue_is_in_the_listing(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = say(capsys, "args", "torchrun", "--json")
    assert json.loads(out)["source"][0]["revision"].startswith("PyPI torch")
    assert Path(ROOT / "backends").is_dir()

"""`launch explain --trace`: field, rows, arguments, rules and findings of a word, and where each is declared."""

import json
import re
from typing import Any

import pytest

from launcher.cli.dispatch import dispatch
from launcher.cli.explain_names import load_all
from launcher.cli.explain_trace import declared_field, declared_row, declared_rule
from launcher.job import fields
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.rows import active_rows
from launcher.rules.registry import RULES
from tests.conftest import ROOT


def lines_at(place: str, count: int = 1) -> str:
    """Return the lines at `file:line`."""
    file, _, line = place.rpartition(":")
    first = int(line) - 1
    return "\n".join((ROOT / file).read_text(encoding="utf-8").splitlines()[first : first + count])


def tree(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    code = dispatch(["explain", "--trace", *args, "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.out + captured.err
    found = json.loads(captured.out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("backend", backend_names())
def test_a_field_from_declaration_to_rules(capsys: pytest.CaptureFixture[str], backend: str) -> None:
    found = tree(capsys, "parallel.tp", "--backend", backend)
    (field,), (walk,) = found["fields"], found["backends"]
    assert (field["field"], field["type"], field["default"]) == ("parallel.tp", "int", 1)
    assert "tp: int" in lines_at(field["declared"])
    row = walk["rows"][0]
    assert row["fields"][0] == "parallel.tp"
    assert row["declared"].startswith(f"backends/{'megatron_lm' if backend == 'mindspeed' else backend}/mapping/")
    assert '"parallel.tp"' in lines_at(row["declared"])
    catalogue = get_backend(backend).catalogue(walk["version"])
    argument = next(each for each in walk["arguments"] if each["name"] == row["arguments"][0])
    assert argument["source"] == catalogue.get(argument["name"]).source  # type: ignore[union-attr]
    rules = {each["rule"]: each for each in walk["rules"]}
    assert rules["PAR-TP-HEADS"]["phase"] == "validate"
    assert "PAR-TP-HEADS" in lines_at(rules["PAR-TP-HEADS"]["declared"])


@pytest.mark.parametrize("backend", backend_names())
def test_a_native_argument_leads_to_its_field(capsys: pytest.CaptureFixture[str], backend: str) -> None:
    row = tree(capsys, "parallel.pp", "--backend", backend)["backends"][0]["rows"][0]
    found = tree(capsys, f"--{row['arguments'][0]}", "--backend", backend)
    assert found["fields"][0]["field"] == "parallel.pp"
    assert row in found["backends"][0]["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("spelled", ["--tensor-model-parallel-size", "tensor_model_parallel_size"])
def test_an_argument_in_either_spelling(capsys: pytest.CaptureFixture[str], spelled: str) -> None:
    found = tree(capsys, spelled)
    assert {"megatron", "megatron_lm", "mindspeed"} <= {walk["backend"] for walk in found["backends"]}
    assert found["fields"][0]["field"] == "parallel.tp"


@pytest.mark.parametrize("backend", backend_names())
def test_an_override_in_a_job_with_what_it_writes_and_its_findings(
    capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    found = tree(capsys, "parallel.tp=3", "+recipe=qwen3_8b", f"backend={backend}")
    assert found["backends"][0]["backend"] == backend
    assert {walk["backend"] for walk in found["backends"]} == set(backend_names())
    (written,) = [arg for arg in found["backends"][0]["written"] if arg["field"] == "parallel.tp"]
    assert (written["value"], written["origin"]) == (3, "override")
    assert not found["ok"]
    assert "PAR-TP-HEADS" in {each["rule"] for each in found["findings"]}
    assert all("written" not in walk for walk in found["backends"][1:])


def test_findings_of_other_fields_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("+recipe=qwen3_8b", "backend=megatron", "parallel.tp=3")
    assert tree(capsys, "logging.interval=5", *args)["findings"] == []
    assert not tree(capsys, "logging.interval=5", *args)["ok"]


def test_a_rule_with_what_it_reads_and_its_finding(capsys: pytest.CaptureFixture[str]) -> None:
    found = tree(capsys, "PAR-TP-HEADS", "+recipe=qwen3_8b", "backend=mindspeed", "parallel.tp=3")
    assert found["rule"]["rule"] == "PAR-TP-HEADS"
    assert {"parallel.tp", "model.num_attention_heads"} <= {each["field"] for each in found["fields"]}
    assert [each["rule"] for each in found["findings"]] == ["PAR-TP-HEADS"]


def test_a_rule_of_one_backend_names_that_backend(capsys: pytest.CaptureFixture[str]) -> None:
    rule = next(rule for rule in RULES.values() if rule.backends == ("mindformers",))
    assert [walk["backend"] for walk in tree(capsys, rule.id)["backends"]] == ["mindformers"]


def test_a_field_without_argument_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    for walk in tree(capsys, "cluster.nodes")["backends"]:
        assert walk["rows"] or walk["irrelevant"] or walk["cannot"]


@pytest.mark.parametrize(
    ("token", "near"),
    [
        ("parallel.tpp=2", "parallel.tp"),
        ("--tensor-model-paralel-size", "tensor"),
        ("PAR-TP-HEAD", "PAR-TP-HEADS"),
        ("MAP-UNSUPPORTED", "launch explain MAP-UNSUPPORTED"),
    ],
)
def test_a_misspelt_name_gets_near_names(capsys: pytest.CaptureFixture[str], token: str, near: str) -> None:
    assert dispatch(["explain", "--trace", token]) == 2
    assert near in capsys.readouterr().err


def test_the_text_names_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["explain", "--trace", "parallel.tp=3", "+recipe=qwen3_8b", "backend=megatron"]) == 0
    out = capsys.readouterr().out
    for part in (
        "launcher/job/parallel.py:",
        "backends/megatron/mapping/parallel.py:",
        "writes ",
        "error PAR-TP-HEADS",
    ):
        assert part in out


def test_a_job_needs_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["explain", "parallel.tp", "+recipe=qwen3_8b"]) == 2
    assert "--trace" in capsys.readouterr().err


@pytest.mark.slow
def test_every_field_row_and_rule_has_its_declaration() -> None:
    for path in fields():
        assert f"{path.rpartition('.')[2]}: " in lines_at(declared_field(path))
    backends = [get_backend(name) for name in backend_names()]
    load_all(backends)
    for rule in RULES.values():
        written = lines_at(declared_rule(rule))
        assert any(rule.id.startswith(text) for text in re.findall(r"\b[A-Z0-9]+-[A-Z0-9-]*", written)), rule.id
    helpers = ("factories.py", "options.py", "launcher/")
    for backend in backends:
        for row in active_rows(backend.table(backend.versions[0]), backend.versions[0]):
            place = declared_row(row, backend)
            assert place.startswith("backends/"), row.fields
            assert not row.fields or not any(name in place for name in helpers), (row.fields, place)


def test_only_the_name_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["explain", "--trace"]) == 2
    assert "required: NAME\n" in capsys.readouterr().err

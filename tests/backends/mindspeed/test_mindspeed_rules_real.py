"""Rules of context parallelism and recomputation against MindSpeed-LLM's real validators: the same verdict."""

import json
import os
from pathlib import Path

import pytest

from backends.mindspeed import BACKEND
from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.rules.registry import RULES
from tests.backends.megatron_lm import mutated as mutated_lines
from tests.backends.megatron_lm import rule_cases
from tests.backends.megatron_lm.verdicts import validator
from tests.backends.mindspeed import mutated
from tests.backends.mutated import changed
from tests.backends.users_path import UsersPath
from tests.backends.verdicts import WRONG, ask
from tests.rehearse.native.environments import mindspeed_python
from tests.sampling import fuzz_seed, trials

VERSION = "26.1.0"
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
# A second or more for every command line: sections 25 and 26 and the pipeline's shape.
KINDS = ("MS-CP-", "MS-RC-", "MS-SWAP-", "MS-VPP-", "MS-LIST-", "MS-NOOP-")


def verdict_of_rules(changes: str, *, moe: bool) -> tuple[dict[str, object], list[str]]:
    """Return the values of a case, and what refuses it here as upstream should."""
    values = rule_cases.values(BACKEND, VERSION, changes, moe=moe)
    catalogue = BACKEND.catalogue(VERSION)
    refused = [name for name, value in values.items() if catalogue.check(name, value)]
    found = rule_cases.findings(BACKEND, VERSION, values, ENVIRONMENT)
    rules = [f.rule for f in found if f.severity == "error" and not RULES[f.rule].is_stricter(VERSION)]
    return values, refused + rules


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> Path:
    unset = [tree.variable for tree in NATIVE_CPU.checkouts if not os.environ.get(tree.variable)]
    if unset:
        pytest.skip(f"{', '.join(unset)} not set: they name the checkouts of MindSpeed-LLM, MindSpeed and Megatron-LM")
    return mindspeed_python()


def test_rules_and_mindspeed_agree(python: Path) -> None:
    cases = [
        (f"{case.id} {kind}", *verdict_of_rules(changes, moe=case.base == "moe"))
        for case in rule_cases.read(Path(__file__).parent / "rule_pairs.txt")
        for kind, changes in (("broken", case.broken), ("passing", case.passing))
        if case.id.startswith(KINDS) and case.version.endswith(VERSION)
    ]
    asked = [{"argv": rule_cases.argv_of(values), "world_size": rule_cases.WORLD} for _, values, _ in cases]
    answers = ask(validator("mindspeed", python=str(python)), asked)
    differing = {
        name: (answer, refused)
        for (name, _, refused), answer in zip(cases, answers, strict=True)
        if bool(answer) != bool(refused)
    }
    print(f"{len(cases) - len(differing)} of {len(cases)} verdicts agree with MindSpeed-LLM {VERSION}")
    assert differing == {}


def test_changed_lines_of_upstream_are_judged_alike(python: Path, tmp_path: Path) -> None:
    text = Path(__file__).with_name("upstream_examples.json").read_text(encoding="utf-8")
    known = mutated.lines_of(
        [{**each, "world_size": each["nodes"] * each["devices_per_node"]} for each in json.loads(text)["examples"]],
        tmp_path,
    )
    drawn = list(changed(known, mutated.MUTATIONS, trials(60), seed=fuzz_seed()))
    found = mutated_lines.compare("mindspeed", VERSION, drawn, UsersPath(folder=tmp_path), python=str(python))
    assert [verdict for verdict in found if verdict.kind in WRONG] == []

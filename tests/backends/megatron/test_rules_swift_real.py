"""Our verdict and that of ms-swift 4.6.0's own classes, on jobs drawn at random: the same, or listed with a reason."""

import json
from pathlib import Path

import pytest

from tests.backends.megatron import mutated
from tests.backends.megatron.fuzzed import jobs
from tests.backends.megatron.jobs import NEWEST
from tests.backends.megatron.verdicts import compare, validator
from tests.backends.mutated import changed
from tests.backends.users_path import UsersPath
from tests.backends.verdicts import WRONG, Verdict
from tests.rehearse.native.environments import swift_python
from tests.sampling import fuzz_seed, trials

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    path = UsersPath(folder=tmp_path_factory.mktemp("models"))
    return compare(jobs(trials(250), seed=fuzz_seed()), path, validator(swift_python()))


def test_nothing_that_runs_is_refused(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "unexplained"] == []


def test_nothing_that_is_refused_is_missed(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "missed"] == []


def test_changed_lines_of_upstream_are_judged_alike(tmp_path_factory: pytest.TempPathFactory) -> None:
    records = json.loads(Path(__file__).with_name("upstream_commands.json").read_text(encoding="utf-8"))
    folder = tmp_path_factory.mktemp("lines")
    known = mutated.lines_of([each for each in records if each["version"] == NEWEST], folder)
    drawn = list(changed(known, mutated.MUTATIONS, trials(200), seed=fuzz_seed()))
    found = mutated.compare(drawn, swift_python(), UsersPath(folder=folder))
    assert [verdict for verdict in found if verdict.kind in WRONG] == []


def test_both_verdicts_occur_often(verdicts: list[Verdict]) -> None:
    accepted = sum(verdict.real is None for verdict in verdicts)
    assert 0.3 < accepted / len(verdicts) < 0.9

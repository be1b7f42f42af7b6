"""Our verdict and that of MindFormers 1.6.0 itself, on jobs drawn at random: the same, or listed with a reason."""

import pytest

from tests.backends.mindformers.verdicts import compare, validator
from tests.backends.users_path import UsersPath
from tests.backends.verdicts import Verdict
from tests.rehearse.native.environments import mindformers_1_6_python
from tests.sampling import fuzz_seed, trials

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    python = mindformers_1_6_python()
    folder = tmp_path_factory.mktemp("files")
    return compare(trials(250), fuzz_seed(), UsersPath(folder=folder), validator(python, folder))


def test_nothing_that_runs_is_refused(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "unexplained"] == []


def test_nothing_that_is_refused_is_missed(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "missed"] == []


def test_both_verdicts_occur_often(verdicts: list[Verdict]) -> None:
    accepted = sum(verdict.real is None for verdict in verdicts)
    assert 0.3 < accepted / len(verdicts) < 0.9

"""Our verdict and that of ms-swift 4.6.0's own classes, on jobs drawn at random: the same, or listed with a reason."""

import pytest

from tests.backends.megatron.environment import swift_python
from tests.backends.megatron.fuzzed import jobs
from tests.backends.megatron.verdicts import Verdict, compare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    return compare(jobs(250, seed=1), swift_python(), tmp_path_factory.mktemp("models"))


def test_nothing_that_runs_is_refused(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "false"] == []


def test_nothing_that_is_refused_is_missed(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "missed"] == []


def test_both_verdicts_occur_often(verdicts: list[Verdict]) -> None:
    accepted = sum(verdict.real is None for verdict in verdicts)
    assert 0.3 < accepted / len(verdicts) < 0.9

"""Our verdict and that of megatron-core's own TransformerConfig, on jobs drawn at random."""

import pytest

from tests.backends.users_path import UsersPath
from tests.backends.verdicts import Verdict
from tests.rules.core_verdicts import compare, validator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    pytest.importorskip("megatron.core")
    return compare(400, 1, UsersPath(folder=tmp_path_factory.mktemp("jobs")), validator())


def test_nothing_that_is_refused_is_missed(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "missed"] == []


def test_both_verdicts_occur(verdicts: list[Verdict]) -> None:
    assert {verdict.kind for verdict in verdicts} >= {"same"}
    assert any(verdict.real for verdict in verdicts)

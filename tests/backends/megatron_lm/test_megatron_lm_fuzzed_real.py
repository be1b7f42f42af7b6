"""Drawn command lines against Megatron-LM's real parser, validator and configuration."""

import importlib.util
from pathlib import Path

import pytest

from tests.backends.megatron_lm import mutated
from tests.backends.megatron_lm.checkout import CHECKOUT, checked_out_version
from tests.backends.megatron_lm.verdicts import compare, drawn, validator
from tests.backends.mutated import changed
from tests.backends.users_path import UsersPath
from tests.backends.verdicts import WRONG, Verdict
from tests.sampling import fuzz_seed, trials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(
        checked_out_version() is None, reason="MEGATRON_LM_PATH names no Megatron-LM of a known version"
    ),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    version = checked_out_version()
    assert version is not None
    cases = drawn("megatron_lm", version, trials(300), seed=fuzz_seed())
    path = UsersPath(folder=tmp_path_factory.mktemp("lines"))
    return compare("megatron_lm", version, cases, path, validator("megatron_lm", [CHECKOUT]))


def test_nothing_that_runs_is_refused(verdicts: list[Verdict]) -> None:
    assert [verdict for verdict in verdicts if verdict.kind == "unexplained"] == []


def test_changed_lines_of_upstream_are_judged_alike(tmp_path: Path) -> None:
    version, known = checked_out_version(), mutated.bases(Path(CHECKOUT))
    assert version is not None
    if not known:
        pytest.skip("the checkout has no functional tests")
    drawn = list(changed(known, mutated.MUTATIONS, trials(300), seed=fuzz_seed()))
    found = mutated.compare("megatron_lm", version, drawn, UsersPath(folder=tmp_path), [CHECKOUT])
    assert [verdict for verdict in found if verdict.kind in WRONG] == []


def test_hardly_anything_that_is_refused_is_missed(verdicts: list[Verdict]) -> None:
    # What is left: CUDA graphs of recomputed layers, arguments of encoder-decoder models.
    assert sum(verdict.kind == "missed" for verdict in verdicts) < len(verdicts) / 100

"""Samples of long tables of cases: which cases run by default, chosen by a seed that the commit's tree fixes.

``@pytest.mark.sample(keep=N)`` on a parametrised test keeps N of its cases (``by="name"``: N for each value of that
parameter; ``of="name"``: N of all tests with that name). ``sample(cases, N, key)`` does the same for a loop inside a
test, ``trials(N)`` for drawn cases, ``examples(N)`` for hypothesis. ``--all-cases`` runs everything, ``--seed N`` or
``--seed rotate`` chooses other cases; ``python -m tools.exhaustive`` runs the whole.
"""

import hashlib
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARE = 0.25
"""Part of a property test's examples that runs by default."""

T = TypeVar("T")


class _Choice:
    """What the command line chose, set before any test module is imported."""

    everything = False
    asked = False
    seed = 0


def tree_seed() -> int:
    """Return the seed that the commit's program gives: one commit, one sample. 0 where git does not answer.

    Tests and documents are left out: a mended test runs with the sample that it failed with.
    """
    parts = [f"HEAD:{folder}" for folder in ("launcher", "backends", "conf", "recipes")]
    asked = subprocess.run(["git", "-C", str(ROOT), "rev-parse", *parts], capture_output=True, text=True, check=False)
    return int(hashlib.sha256(asked.stdout.encode()).hexdigest()[:8], 16) if asked.returncode == 0 else 0


def configure(config: pytest.Config) -> None:
    """Take the options; the main process decides the seed and hands it to xdist's workers."""
    handed: tuple[int, bool] | None = getattr(config, "workerinput", {}).get("seed")
    given = config.getoption("seed")
    if handed is not None:
        seed, asked = handed
    elif given == "rotate":
        seed, asked = random.SystemRandom().getrandbits(32), True
    else:
        seed, asked = (tree_seed(), False) if given is None else (int(given), True)
    config.option.hypothesis_seed = str(seed)
    if config.pluginmanager.hasplugin("randomly"):
        config.option.randomly_seed = seed
    _Choice.everything = config.getoption("all_cases")
    _Choice.seed = seed
    _Choice.asked = asked
    # The seed is the commit's, so no database of earlier failures may add to the examples.
    slow_machine = [HealthCheck.too_slow]
    settings.register_profile("commit", examples(100), deadline=None, database=None, suppress_health_check=slow_machine)
    settings.load_profile("commit")


def chosen_seed() -> tuple[int, bool]:
    """Return the seed, and whether --seed asked for it."""
    return _Choice.seed, _Choice.asked


def sample(cases: Iterable[T], keep: int, key: str) -> list[T]:
    """Return `keep` of the cases in their order (all of them with --all-cases); `key` names the sweep."""
    whole = list(cases)
    if _Choice.everything or len(whole) <= keep:
        return whole
    chosen = sorted(random.Random(f"{_Choice.seed}:{key}").sample(range(len(whole)), keep))
    return [whole[place] for place in chosen]


def examples(count: int, **options: Any) -> settings:
    """Return hypothesis settings for a test that tries `count` examples in all and a part of them by default."""
    return settings(max_examples=trials(count), **options)


def trials(count: int) -> int:
    """Return how many of `count` drawn trials run by default: a part of them, all with --all-cases."""
    return count if _Choice.everything else max(5, round(count * SHARE))


def fuzz_seed() -> int:
    """Return the seed of what is compared with a real validator: 1, or what --seed says.

    Such a draw can meet a difference that nobody has seen yet; that is looked for on purpose, and is no reason for a
    commit that has nothing to do with it to fail.
    """
    return _Choice.seed if _Choice.asked else 1


def dice(key: str) -> random.Random:
    """Return the random numbers of a loop; `key` names it."""
    return random.Random(f"{_Choice.seed}:{key}")


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of marked tests that this seed does not choose."""
    if _Choice.everything:
        return
    groups: dict[tuple[str, str], list[pytest.Item]] = {}
    keeps: dict[tuple[str, str], int] = {}
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        by, whole = mark.kwargs.get("by"), mark.kwargs.get("of", item.nodeid.partition("[")[0])
        group = (whole, str(item.callspec.params[by]) if by else "")
        groups.setdefault(group, []).append(item)
        keeps[group] = mark.kwargs["keep"]
    left_out: set[pytest.Item] = set()
    for group, members in groups.items():
        members.sort(key=lambda item: item.nodeid)
        left_out |= set(members) - set(sample(members, keeps[group], "/".join(group)))
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))

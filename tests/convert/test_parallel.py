"""Tasks of a conversion on several threads: all of them run, the first error ends the rest."""

from __future__ import annotations

import time

import pytest

from launcher.convert.move import in_parallel


@pytest.mark.parametrize("workers", [1, 3, 200])
def test_every_task_runs_once(workers):
    done: list[int] = []
    in_parallel([lambda number=number: done.append(number) for number in range(100)], workers)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_error_is_raised_and_no_further_task_begins(workers):
    begun: list[int] = []

    def task(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise OSError("no disk")
        time.sleep(0.05)

    with pytest.raises(OSError, match="no disk"):
        in_parallel([lambda number=number: task(number) for number in range(100)], workers)
    assert len(begun) < 50

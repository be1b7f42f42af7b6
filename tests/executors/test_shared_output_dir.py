"""All nodes of a platform's job start at once in one folder: the first marks it for the others, not for other jobs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launcher.executors.environment.nodes import Here
from launcher.executors.environment.platforms import PLATFORMS
from launcher.executors.environment.shared_output_dir import check_ours, join
from launcher.executors.failure import CannotStart


def node(rank: int, master: str = "job-0", job: str = "") -> Here:
    return Here(platform=PLATFORMS[0], rank=rank, master=master, port="1", job=job)


def start(folder: Path, place: Here) -> bool:
    try:
        check_ours(folder, place)
        join(folder, place)
        (folder / f"written-by-{place.rank}").touch()
        check_ours(folder, place)
    except CannotStart:
        return False
    return True


def test_nodes_of_one_job_share_their_folder_whoever_is_first(tmp_path: Path):
    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda rank: start(tmp_path / f"out{number}", node(rank)), range(8)))  # noqa: B023


def test_of_two_jobs_that_start_at_once_one_has_the_folder(tmp_path: Path):
    for number in range(20):
        nodes = [node(rank, master) for master in ("a-0", "b-0") for rank in range(4)]
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda each: start(tmp_path / f"out{number}", each), nodes))  # noqa: B023
        assert sorted((done[:4], done[4:])) == [[False] * 4, [True] * 4]


FOREIGN = {
    "somebody's file": lambda folder: (folder / "thesis.tex").touch(),
    "another job": lambda folder: join(folder, node(0, "other-0")),
    "the same machine in another job": lambda folder: join(folder, node(0, job="7")),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_folder_of_somebody_else_is_refused_by_every_node(tmp_path: Path, make):
    make(tmp_path)
    for rank in range(2):
        with pytest.raises(CannotStart):
            check_ours(tmp_path, node(rank, job="8"))


def test_what_is_marked_for_nothing_is_taken_back(tmp_path: Path):
    join(tmp_path / "out", node(1)).undo()
    assert not (tmp_path / "out").exists()

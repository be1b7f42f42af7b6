"""What follows from other values is computed, and never against the user."""

from launcher.job import Origin, build, derive, output_dir, with_values
from tests.conftest import make_job


def test_data_parallel_size_follows_the_world_size():
    job = make_job({"parallel": {"tp": 2}})
    assert job.parallel.dp == 4
    assert with_values(job, {"parallel.pp": 2}).parallel.dp == 2
    assert with_values(job, {"cluster.nodes": 3}).parallel.dp == 12


def test_data_parallel_size_is_unknown_where_nothing_fits():
    assert make_job({"parallel": {"tp": 3}}).parallel.dp is None


def test_a_given_data_parallel_size_stays():
    job, _ = build(
        {"parallel": {"dp": 3}, "cluster": {"devices_per_node": 8}}, {"parallel.dp": Origin(kind="override")}
    )
    assert derive(job).parallel.dp == 3


def test_checkpoints_lie_in_the_output_folder_once_an_interval_asks_for_them():
    assert make_job().checkpoint.save is None
    job = make_job({"name": "x", "checkpoint": {"save_interval": 5}})
    assert job.checkpoint.save == "launch_output/x/checkpoints"
    assert with_values(job, {"output_dir": "elsewhere"}).checkpoint.save == "elsewhere/checkpoints"
    assert make_job({"checkpoint": {"save_interval": 5, "save": "mine"}}).checkpoint.save == "mine"


def test_output_folder_has_the_name_of_the_job():
    assert output_dir(make_job({"name": "x"})) == "launch_output/x"

"""What the planner says of a worker process that is gone."""

import multiprocessing
import os
import signal

import pytest

from launcher.ui.worker import ended_by


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed (SIGKILL), as Linux does when memory runs out"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "its process was ended by SIGTERM"),
        (lambda: os._exit(3), "its process ended with exit code 3"),
        (lambda: os._exit(0), "its process ended without an answer"),
    ],
)
def test_the_reason_is_what_ended_the_process(how, why):
    process = multiprocessing.get_context("fork").Process(target=how)
    process.start()
    process.join()
    assert why in ended_by(process.exitcode)

"""Reasons that clusters give, as users reported them, against the table of reasons."""

from pathlib import Path

import pytest

from launcher.executors.kubernetes.pods_seen import joined
from launcher.observe.reason import Kind
from launcher.observe.reasons import reason_of

ROWS = [
    line.split("|", 2)
    for line in (Path(__file__).parent / "kubernetes_events.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("reason, source, text", ROWS, ids=[f"{row[0]}-{number}" for number, row in enumerate(ROWS)])
def test_the_reason_of_a_real_text_is_found(reason: str, source: str, text: str):
    found = reason_of(text, Kind.QUEUE)
    assert found is not None, source
    assert found.name == reason, source
    assert found.fields


# What ends every failed job, or every pod that another one's failure ends, is no reason.
GENERAL = (
    "BackoffLimitExceeded: Job has reached the specified backoff limit",
    "FailedJobs: jobset failed due to one or more job failures",
    "Error",
    "",
)


@pytest.mark.parametrize("text", GENERAL)
def test_a_general_text_is_no_reason(text: str):
    assert reason_of(text, Kind.QUEUE) is None


def test_an_error_that_volcano_prints_with_its_fields_is_what_the_api_server_says():
    """Recorded of Volcano 1.15.1 with a quota."""
    quota = 'Message:"pods \\"x-worker-1\\" is forbidden: exceeded quota: gpus", Reason:"Forbidden"'
    fields = f'ErrStatus:v1.Status{{TypeMeta:v1.TypeMeta{{Kind:""}}, Status:"Failure", {quota}'
    text = f"[failed to create pod x-worker-1, err: &errors.StatusError{{{fields}}}]"
    said = '[failed to create pod x-worker-1, err: pods "x-worker-1" is forbidden: exceeded quota: gpus'
    assert joined({"reason": "FailedCreate", "message": f"Error creating pods: {text}"}) == (
        f"FailedCreate: Error creating pods: {said}"
    )
    cut = "Error creating pods: [&errors.StatusError{ErrStatus:"
    assert joined({"message": cut}) == cut

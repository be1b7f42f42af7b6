"""Settings of a tracker are judged where the backend has the tracker; elsewhere the mapping says it has none."""

import pytest

from launcher.compose import compose
from launcher.pipeline import judge

BAD = ("logging.wandb_project=team/run", "logging.wandb_name=x", "backend.env.WANDB_MODE=ofline")


@pytest.mark.parametrize(
    ("backend", "refused", "unused"),
    [("megatron", True, False), ("mindspeed", True, False), ("megatron_lm", True, False), ("mindformers", False, True)],
)
def test_a_bad_project_is_refused_where_it_is_used(backend: str, refused: bool, unused: bool) -> None:
    findings = judge(compose(["+recipe=tiny_qwen3", f"backend={backend}", *BAD]), fixes=False).findings
    assert [each.severity for each in findings if each.rule == "WORD-WANDB"] == ["error", "error"] * refused
    said = {path for each in findings if each.rule == "MAP-UNSUPPORTED" for path in each.fields}
    assert ("logging.wandb_project" in said) == unused


def test_a_run_without_a_project_is_no_advice_where_there_is_no_tracker() -> None:
    words = ["+recipe=tiny_qwen3", "backend=mindformers", "logging.wandb_name=x"]
    rules = [each.rule for each in judge(compose(words), fixes=False).findings if "logging.wandb_name" in each.fields]
    assert rules == ["MAP-UNSUPPORTED"]

"""MindFormers' own examples pass every rule; the exceptions are truly wrong."""

import pytest

from backends.mindformers import BACKEND
from launcher.importing.assemble import assemble
from launcher.importing.judge import judge_existing
from launcher.job.finding import Finding
from tests.backends.mindformers.jobs import NEWEST, examples

# Examples that are wrong upstream, and the rule that tells it.
WRONG = {"pretrain_telechat3_105b_a4b_4k": "MF-OFFSET-SUM", "finetune_qwen3": "MF-PACK-SHIFT"}


def errors(name: str) -> list[Finding]:
    imported = assemble(examples()[name], BACKEND, NEWEST)
    return [finding for finding in judge_existing(imported).findings if finding.severity == "error"]


@pytest.mark.parametrize("name", sorted(examples()))
def test_the_example_has_no_error_or_a_known_one(name: str) -> None:
    assert {finding.rule for finding in errors(name)} == ({WRONG[name]} if name in WRONG else set())


def test_45_layers_on_8_stages_with_offset_0_are_an_error() -> None:
    values = {
        "use_legacy": False,
        "parallel_config.data_parallel": 1,
        "parallel_config.pipeline_stage": 8,
        "parallel_config.micro_batch_num": 8,
        "model.model_config.num_layers": 45,
        "model.model_config.offset": 0,
    }
    found = judge_existing(assemble(values, BACKEND, NEWEST)).findings
    assert "offset adds up to 0, but 45 layers on 8 chunks leave a remainder of 5" in {
        finding.message for finding in found
    }

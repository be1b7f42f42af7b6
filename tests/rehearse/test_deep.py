"""`launch check --deep`: what arithmetic cannot see, megatron-core itself says, at the full world size."""

import pytest

from launcher.compose import compose
from launcher.pipeline import judge
from launcher.rehearse.deep import deep_findings
from tests.conftest import Launch


@pytest.mark.slow
def test_a_sound_job_of_512_devices_passes(launch: Launch):
    done = launch("check", "--deep", "+recipe=deepseek_v3", "backend=mindspeed", "--json")
    assert done.code == 0, done
    (found,) = [finding for finding in done.json["findings"] if finding["rule"].startswith("DEEP")]
    assert (found["rule"], found["severity"]) == ("DEEP-SHRUNK", "change")
    assert "model.hidden_size 7168 →" in found["message"]
    assert "num_hidden_layers" not in found["message"]
    assert "num_experts" not in found["message"]


@pytest.mark.slow
def test_what_megatron_core_refuses_is_a_finding_with_its_own_message():
    args = ("moe.load_balancing_type=sinkhorn", "moe.capacity_factor=1.0")
    outcome = judge(compose(["+recipe=tiny_qwen3_moe", "backend=megatron_lm", *args]), fixes=False)
    _, found = deep_findings(outcome)
    assert (found.rule, found.severity) == ("DEEP-REFUSED", "error")
    assert "moe_expert_capacity_factor only works with" in found.message


@pytest.mark.slow
def test_an_explicit_layout_is_played_as_it_is():
    layout = "Ettt|tttt|tttt|tttt|tttt|tttt|tttt|tL"
    args = (
        "parallel.pp=4",
        "parallel.vpp=2",
        f"parallel.layout='{layout}'",
        "model.num_hidden_layers=28",
        "cluster.devices_per_node=4",
    )
    outcome = judge(compose(["+recipe=tiny_qwen3_moe", "backend=megatron_lm", *args]), fixes=False)
    (found,) = deep_findings(outcome)
    assert found.rule == "DEEP-SHRUNK", found
    assert "layout" not in found.message

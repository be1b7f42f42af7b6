"""Reading back: jobs survive their own arguments, and upstream's commands survive the job that they are read into."""

import pytest
from hypothesis import HealthCheck, given

from backends.mindspeed import BACKEND
from launcher.job import Job, value_at
from launcher.mapping.engine import read_back, translate
from tests.backends.megatron_lm.argvs import effective, parse
from tests.backends.megatron_lm.jobs import DENSE, Tree, job_of
from tests.backends.megatron_lm.test_megatron_lm_roundtrip import PLAIN, survives, trees
from tests.backends.mindspeed.examples import JOBS, upstream
from tests.backends.mindspeed.test_mindspeed_table import CASES
from tests.sampling import examples


@pytest.mark.parametrize(("version", "name", "job"), CASES, ids=[f"{v} {n}" for v, n, _ in CASES])
def test_arguments_survive(version: str, name: str, job: Job) -> None:
    survives(job, BACKEND, version)


@pytest.mark.parametrize("version", ["26.1.0", "2.1.0"])
@given(tree=trees())
@examples(40, suppress_health_check=[HealthCheck.too_slow])
def test_jobs_survive(version: str, tree: Tree) -> None:
    job = job_of(DENSE, tree)
    back = survives(job, BACKEND, version)
    assert {path: value_at(back, path) for path in PLAIN} == {path: value_at(job, path) for path in PLAIN}


# Read and dropped because they change nothing, or said by another argument of the same meaning.
_NOTHING = {"deprecated_use_mcore_models", "use_rotary_position_embeddings"}
_SAME = {
    "first_k_dense_replace": "-1 or nothing: no dense layer",
    "moe_layer_freq": "-1 or 1: every layer",
    "n_shared_experts": "validate_args makes moe_shared_expert_intermediate_size of it",
    "moe_shared_expert_intermediate_size": "as n_shared_experts",
    "norm_topk_prob": "of no effect with this type of balancing",
}


@pytest.mark.parametrize("name", JOBS)
def test_upstream_commands_survive(name: str) -> None:
    catalogue = BACKEND.catalogue("26.1.0")
    given_values = parse(upstream()[name]["argv"], catalogue)
    back = read_back(given_values, BACKEND, "26.1.0")
    assert back.warnings == ()
    again = {arg.flag: arg.value for arg in translate(back.job, BACKEND, "26.1.0").native}
    before, after = effective(given_values, catalogue), effective(again, catalogue)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed <= _NOTHING | _SAME.keys()


def test_upstream_commands_become_canonical() -> None:
    values = parse(upstream()["deepseek3"]["argv"], BACKEND.catalogue("26.1.0"))
    back = read_back(values, BACKEND, "26.1.0")
    read = {
        "model.model_type": "deepseek_v3",
        "model.num_hidden_layers": 61,
        "parallel.noop_layers": (61, 62, 63),
        "model.kv_lora_rank": 512,
        "model.first_k_dense_replace": 3,
        "model.shared_expert_intermediate_size": 2048,
        "model.scoring_func": "sigmoid",
        "model.rope_scaling.type": "yarn",
        "model.rope_scaling.factor": 40.0,
        "moe.batch_overlap": True,
        "offload.optimizer": True,
        "model.pretrained": True,
        "model.path": "your_model_ckpt_path",
    }
    assert {path: value_at(back.job, path) for path in read} == read
    assert {arg.flag for arg in back.unmapped} == {
        "no-shared-storage",
        "use-ascend-coc",
        "coc-fused-kernel",
        "mla-fa-without-pad",
        "seq-aux",
        "mtp-mem-efficient-logits",
    }


def test_deprecated_names_are_understood() -> None:
    old = {"num-layers": 4, "num-experts": 8, "moe-intermediate-size": 32, "n-group": 4, "topk-group": 2}
    layers = ("mindspeed_llm.tasks.models.spec.deepseek_spec", "layer_spec")
    latent = {"spec": layers, "multi-head-latent-attention": True, "kv-lora-rank": 16}
    back = read_back({**old, **latent}, BACKEND, "26.1.0")
    assert back.unmapped == ()
    assert back.job.model.moe_intermediate_size == 32
    assert (back.job.model.n_group, back.job.model.topk_group) == (4, 2)
    assert back.job.model.is_mla

"""What Megatron-LM has arguments for since 0.18 and 0.19: YaRN, shared indexers, sqrtsoftplus, schedules of batches."""

from typing import Any

import pytest

from backends.megatron_lm.rules.config_19 import _stage_starts
from launcher.api import check, compose
from launcher.job import Job
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back
from launcher.pipeline import Refused
from tests.backends.small_jobs import LM_19, job_of, written

MEGATRON = get_backend("megatron_lm")
YARN = {
    "model__rope_scaling__type": "yarn",
    "model__rope_scaling__factor": 4.0,
    "model__rope_scaling__original_max_position_embeddings": 4096,
}
LM_18 = ("megatron_lm", "0.18.2")


def model_of(given: dict[str, Any], version: str = "0.19.0") -> Any:
    """Return the model that the arguments mean."""
    return read_back(given, MEGATRON, version).job.model


def test_yarn_of_ordinary_attention_comes_back() -> None:
    job = job_of(**YARN, model__rope_scaling__beta_fast=16.0, model__max_position_embeddings=16384)
    given, refused = written(job, LM_19)
    wanted = {
        "position-embedding-type": "yarn",
        "rotary-scaling-factor": 4.0,
        "yarn-original-max-position-embeddings": 4096,
        "yarn-beta-fast": 16.0,
    }
    assert {name: given.get(name) for name in wanted} == wanted
    assert not {path for path in refused if path.startswith("model.rope_scaling")}
    assert model_of(given).position_embedding == "rope"
    assert model_of(given).rope_scaling == job.model.rope_scaling


@pytest.mark.parametrize(
    ("mscale", "all_dim", "arguments"),
    [
        (0.7, 0.5, {"mscale": 0.7, "mscale-all-dim": 0.5}),
        # One alone is not read: transformers modeling_rope_utils._compute_yarn_parameters.
        (0.7, None, {}),
        (None, 0.5, {}),
    ],
)
def test_yarn_scales_attention_as_transformers_does(
    mscale: float | None, all_dim: float | None, arguments: dict[str, float]
) -> None:
    scaling = {"model__rope_scaling__mscale": mscale, "model__rope_scaling__mscale_all_dim": all_dim}
    given, _ = written(job_of(**YARN, **scaling), LM_19)
    assert {name: given[name] for name in ("mscale", "mscale-all-dim") if name in given} == arguments


def test_yarn_of_gpt_oss_is_not_rounded() -> None:
    job = compose(["model=gpt_oss_120b", "model.pretrained=false", "backend=megatron_lm", "batch.seq_length=4096"])
    given, refused = written(job, LM_19)
    assert given["no-yarn-correction-range-round-to-int"] is True
    assert "model.model_type" not in refused


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.rope_scaling.type=yarn", "model.rope_scaling.factor=4.0", "model.max_position_embeddings=4096"],
        ["model=qwen3_30b_a3b", "model.pretrained=false", "model.scoring_func=sqrtsoftplus"],
    ],
    ids=["yarn", "sqrtsoftplus"],
)
def test_an_older_version_names_the_one_that_has_it(overrides: list[str]) -> None:
    """What keeps the training stands before what changes it, and was tried."""
    job = compose(["backend=megatron_lm", *overrides], recipe="tiny_qwen3")
    error = next(finding for finding in check(job) if finding.severity == "error")
    assert error.fixes[0].overrides == ("backend.version=0.19.0",)
    newest = compose(["backend=megatron_lm", "backend.version=0.19.0", *overrides], recipe="tiny_qwen3")
    assert [finding.message for finding in check(newest) if finding.severity == "error"] == []


def test_sqrtsoftplus_comes_back() -> None:
    experts = {"model__num_experts": 8, "model__moe_intermediate_size": 16, "model__num_experts_per_tok": 2}
    job = job_of(**experts, model__scoring_func="sqrtsoftplus", model__router_expert_bias=True)
    given, refused = written(job, LM_18)
    assert (given["moe-router-score-function"], given["moe-router-enable-expert-bias"]) == ("sqrtsoftplus", True)
    assert "model.scoring_func" not in refused
    back = model_of(given, LM_18[1])
    assert (back.scoring_func, back.norm_topk_prob, back.router_expert_bias) == ("sqrtsoftplus", True, True)


@pytest.mark.parametrize(("offset", "argument"), [(None, 2), (3, 3), (1, None)])
def test_indexers_are_shared_from_the_same_layer_on(offset: int | None, argument: int | None) -> None:
    """Without an offset config.json means the second layer, Megatron-core the first."""
    given, _ = written(job_of(model__index_topk_freq=4, model__index_skip_topk_offset=offset), LM_19)
    assert given.get("dsa-indexer-skip-topk-offset") == argument
    assert model_of(given).index_skip_topk_offset == (offset or 2)


def growing(**values: Any) -> Job:
    """Return a job whose batch grows from 8 to 32 by 8."""
    fields = {"batch__rampup_batch_size": (8, 8, 300), "batch__global_batch_size": 32, "batch__seq_length": 128}
    samples = {"schedule__train_iters": None, "schedule__train_samples": 6400}
    return job_of(**{**fields, **samples, **values})


def test_a_growing_batch_is_a_schedule_since_0_18() -> None:
    given, refused = written(growing(), LM_18)
    assert given["step-batch-size-schedule"] == "0:8 12800:16 25600:24 38400:32"
    # The schedule gives the batch size of training, and evaluation keeps the last one.
    assert "global-batch-size" not in given
    assert given["eval-global-batch-size"] == 32
    assert "batch.rampup_batch_size" not in refused
    batch = read_back(given, MEGATRON, LM_18[1]).job.batch
    assert (batch.rampup_batch_size, batch.global_batch_size) == ((8, 8, 300), 32)


@pytest.mark.parametrize(
    "values",
    [
        {"schedule__train_samples": None, "schedule__train_iters": 100},
        {"batch__rampup_batch_size": (8, 7, 300)},
        {"batch__rampup_batch_size": (8, 8, 2)},
        {"batch__rampup_batch_size": (8, 8)},
    ],
    ids=["iterations", "uneven", "too soon", "two numbers"],
)
def test_what_does_not_grow_evenly_is_refused(values: dict[str, Any]) -> None:
    _, refused = written(growing(**values), LM_18)
    assert refused["batch.rampup_batch_size"] == "error"


def test_another_schedule_is_passed_through() -> None:
    given = {"step-batch-size-schedule": "0:8 1M:32 2M:40", "seq-length": 128, "eval-global-batch-size": 40}
    back = read_back(given, MEGATRON, LM_18[1])
    assert back.job.batch.rampup_batch_size == ()
    assert "step-batch-size-schedule" in {arg.flag for arg in back.unmapped}


@pytest.mark.parametrize(
    ("version", "overrides", "offered"),
    [("0.15.9", (), "0.15.3"), ("0.20", (), "0.19.0"), ("0.12.9", ("model.qk_l2_norm=true",), "0.13.1")],
)
def test_of_an_unknown_version_the_nearest_that_works_is_offered(
    version: str, overrides: tuple[str, ...], offered: str
) -> None:
    job = compose(["backend=megatron_lm", f"backend.version={version}", *overrides], recipe="tiny_qwen3")
    with pytest.raises(Refused) as refused:
        check(job)
    finding = refused.value.finding
    assert [fix.overrides for fix in finding.fixes] == [(f"backend.version={offered}",)]
    assert "newest: 0.19.0" in finding.message


def test_of_a_misspelt_branch_the_branch_is_offered() -> None:
    job = compose(["backend=mindspeed", "backend.version=mastr", "data.paths=[x]"], recipe="tiny_qwen3")
    with pytest.raises(Refused) as refused:
        check(job)
    assert [fix.overrides for fix in refused.value.finding.fixes] == [("backend.version=master",)]


# arguments, layers (from 1) with which a chunk begins
STARTS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "even": ({"num-layers": 8, "stages": 4}, [3, 5, 7]),
    "virtual": ({"num-layers": 8, "stages": 2, "num-virtual-stages-per-pipeline-rank": 2}, [3, 5, 7]),
    "virtual by layers": (
        {"num-layers": 8, "stages": 2, "num-layers-per-virtual-pipeline-stage": 1},
        [2, 3, 4, 5, 6, 7, 8],
    ),
    "uneven": ({"num-layers": 7, "stages": 3, "decoder-first-pipeline-num-layers": 1}, [2, 5]),
    "both ends": (
        {"num-layers": 7, "stages": 2, "decoder-first-pipeline-num-layers": 3, "decoder-last-pipeline-num-layers": 4},
        [4],
    ),
    "uneven and virtual": (
        {
            "num-layers": 10,
            "stages": 3,
            "decoder-first-pipeline-num-layers": 2,
            "num-virtual-stages-per-pipeline-rank": 2,
        },
        [2, 4, 6, 7, 9],
    ),
    "with the embedding": (
        {"num-layers": 15, "stages": 4, "account-for-embedding-in-pipeline-split": True},
        [4, 8, 12],
    ),
    "no such split": ({"num-layers": 7, "stages": 2}, []),
}


@pytest.mark.parametrize("name", STARTS)
def test_layers_with_which_stages_begin(name: str) -> None:
    given, starts = STARTS[name]
    assert _stage_starts(Given({**given, "pipeline-model-parallel-size": given["stages"]})) == starts  # type: ignore[arg-type]


class Given(dict[str, Any]):
    """Arguments as a rule reads them."""

    flag = dict.get

    def number(self, name: str, default: int = 0) -> int:
        return int(self.get(name, default))


def test_a_schedule_for_sequences_of_no_length_is_passed_through() -> None:
    given = {"step-batch-size-schedule": "0:8 100:16", "seq-length": 0, "eval-global-batch-size": 16}
    back = read_back(given, MEGATRON, "0.19.0")
    assert "step-batch-size-schedule" in {arg.flag for arg in back.unmapped}

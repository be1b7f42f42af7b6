"""Reading back: a job survives its own arguments, and arguments survive the job that they were read into."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backends.megatron_lm import BACKEND
from launcher.job import Job, value_at
from launcher.mapping.backend import Backend
from launcher.mapping.engine import read_back, translate
from tests.backends.megatron_lm.argvs import parse
from tests.backends.megatron_lm.jobs import DENSE, JOBS, NEWER, Tree, job_of
from tests.sampling import examples

CASES = [(version, name, job) for version in BACKEND.versions for name, job in JOBS.items()]
CASES += [("0.16.1", name, job) for name, job in NEWER.items()]


def survives(job: Job, backend: Backend, version: str) -> Job:
    """Return the job read from the words of its own command line, after checking that it says the same again."""
    translation = translate(job, backend, version)
    assert not translation.findings, [finding.message for finding in translation.findings]
    args = backend.argv(translation.native)
    back = read_back(parse(args, backend.catalogue(version)), backend, version)
    assert back.unmapped == ()
    assert back.warnings == ()
    assert backend.argv(translate(back.job, backend, version).native) == args
    return back.job


@pytest.mark.parametrize(("version", "name", "job"), CASES, ids=[f"{v} {n}" for v, n, _ in CASES])
def test_arguments_survive(version: str, name: str, job: Job) -> None:
    survives(job, BACKEND, version)


# Fields that cross without loss whatever else is chosen.
PLAIN = (
    "seed",
    "model.num_hidden_layers",
    "model.hidden_size",
    "model.num_attention_heads",
    "model.num_key_value_heads",
    "model.head_dim",
    "model.vocab_size",
    "model.rope_theta",
    "model.rms_norm_eps",
    "model.tie_word_embeddings",
    "model.attention_bias",
    "model.qk_layernorm",
    "model.hidden_dropout",
    "model.num_experts",
    "model.num_experts_per_tok",
    "model.norm_topk_prob",
    "model.first_k_dense_replace",
    "model.moe_layer_freq",
    "moe.token_dispatcher_type",
    "moe.load_balancing_type",
    "moe.aux_loss_coeff",
    "moe.router_dtype",
    "parallel.tp",
    "parallel.pp",
    "parallel.vpp",
    "parallel.cp",
    "parallel.cp_algorithm",
    "parallel.ep",
    "parallel.sequence_parallel",
    "parallel.distributed_optimizer",
    "batch.micro_batch_size",
    "batch.global_batch_size",
    "batch.seq_length",
    "schedule.train_iters",
    "schedule.lr_decay_style",
    "schedule.lr_warmup_iters",
    "optimizer.lr",
    "optimizer.weight_decay",
    "optimizer.adam_beta2",
    "optimizer.clip_grad",
    "precision.dtype",
    "precision.attention_softmax_in_fp32",
    "recompute.granularity",
    "recompute.method",
    "recompute.num_layers",
)


@st.composite
def trees(draw: Any) -> Tree:
    """Draw the parts of a job that differ from the dense one."""
    heads = draw(st.sampled_from([4, 8]))
    experts = draw(st.sampled_from([None, 4, 8]))
    pp = draw(st.sampled_from([1, 2]))
    model: dict[str, Any] = {
        "num_hidden_layers": draw(st.sampled_from([8, 16])),
        "hidden_size": draw(st.sampled_from([64, 128])),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([2, 4, heads])),
        "head_dim": draw(st.sampled_from([16, 32])),
        "vocab_size": draw(st.sampled_from([512, 1000])),
        "rope_theta": float(draw(st.integers(1, 10**7))),
        "rms_norm_eps": draw(st.sampled_from([1e-6, 1e-5])),
        "tie_word_embeddings": draw(st.booleans()),
        "attention_bias": draw(st.booleans()),
        "qk_layernorm": draw(st.booleans()),
        "hidden_dropout": draw(st.sampled_from([0.0, 0.1])),
    }
    moe: dict[str, Any] = {}
    if experts is not None:
        model["model_type"] = "qwen3_moe"
        model |= {"num_experts": experts, "moe_intermediate_size": 32, "num_experts_per_tok": draw(st.integers(2, 4))}
        model["norm_topk_prob"] = draw(st.booleans())
        model["first_k_dense_replace"] = draw(st.integers(0, 3))
        moe = {
            "token_dispatcher_type": draw(st.sampled_from(["alltoall", "allgather"])),
            "load_balancing_type": draw(st.sampled_from(["aux_loss", "seq_aux_loss", "none"])),
            "aux_loss_coeff": draw(st.sampled_from([0.0, 1e-3])),
            "router_dtype": draw(st.sampled_from(["fp32", "model"])),
        }
    granularity = draw(st.sampled_from([None, "full"]))
    return {
        "seed": draw(st.integers(0, 2**31)),
        "model": model,
        "moe": moe,
        "parallel": {
            "tp": draw(st.sampled_from([1, 2])),
            "pp": pp,
            "vpp": draw(st.sampled_from([None, 2])) if pp > 1 else None,
            "cp": 2,
            "cp_algorithm": draw(st.sampled_from([None, "megatron", "ulysses"])),
            "ep": draw(st.sampled_from([1, 2])) if experts else 1,
            "sequence_parallel": draw(st.sampled_from([None, True])),
            "distributed_optimizer": draw(st.sampled_from([None, True])),
        },
        "batch": {"micro_batch_size": draw(st.integers(1, 4)), "global_batch_size": 16, "seq_length": 128},
        "schedule": {
            "train_iters": draw(st.integers(1, 10**6)),
            "lr_decay_style": draw(st.sampled_from(["constant", "linear", "cosine"])),
            "lr_warmup_iters": draw(st.sampled_from([None, 10])),
        },
        "optimizer": {
            "lr": draw(st.floats(1e-7, 1e-1)),
            "weight_decay": draw(st.floats(0, 1)),
            "adam_beta2": draw(st.floats(0.5, 1)),
            "clip_grad": draw(st.floats(0, 10)),
        },
        "precision": {
            "dtype": draw(st.sampled_from(["bf16", "fp16", "fp32"])),
            "attention_softmax_in_fp32": draw(st.booleans()),
        },
        "recompute": {"granularity": granularity, "method": "block", "num_layers": 1} if granularity else {},
    }


@pytest.mark.parametrize("version", BACKEND.versions)
@given(tree=trees())
@examples(40, suppress_health_check=[HealthCheck.too_slow])
def test_jobs_survive(version: str, tree: Tree) -> None:
    job = job_of(DENSE, tree)
    back = survives(job, BACKEND, version)
    assert {path: value_at(back, path) for path in PLAIN} == {path: value_at(job, path) for path in PLAIN}


def test_arguments_left_out_are_read_as_megatrons_defaults() -> None:
    back = read_back({"num-layers": 4, "hidden-size": 64, "num-attention-heads": 4}, BACKEND, "0.16.1").job
    read = {
        "seed": 1234,
        "model.normalization": "LayerNorm",
        "model.hidden_act": "gelu",
        "model.linear_bias": True,
        "model.tie_word_embeddings": True,
        "model.hidden_dropout": 0.1,
        "optimizer.weight_decay": 0.01,
        "schedule.lr_decay_style": "linear",
        "precision.dtype": "fp32",
    }
    assert {path: value_at(back, path) for path in read} == read


def test_what_no_field_says_is_kept() -> None:
    reported = {"openai-gelu": True, "fp8-interval": 2, "tokenizer-type": "BertWordPieceCase"}
    assert read_back({"num-layers": 4, **reported}, BACKEND, "0.16.1").job.backend.args == reported


def test_without_a_tokenizer_the_entry_points_own_is_meant() -> None:
    """pretrain_gpt.py has a default of its own, where a job without tokenizer trains on bare token numbers."""
    back = read_back({"num-layers": 4}, BACKEND, "0.16.1")
    assert back.job.backend.args == {"tokenizer-type": "GPT2BPETokenizer"}
    again = {arg.flag: arg.value for arg in translate(back.job, BACKEND, "0.16.1").native}
    assert again["tokenizer-type"] == "GPT2BPETokenizer"

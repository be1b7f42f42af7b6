"""The mapping table of MindSpeed-LLM: complete, valid for each version's parser, and its traps."""

import json
from pathlib import Path

import pytest

from backends.mindspeed import BACKEND
from launcher import api
from launcher.job import Job, field_paths, with_values
from launcher.mapping.engine import translate
from launcher.mapping.native import NativeArgs
from launcher.mapping.rows import active_rows, unmapped_fields
from tests.backends.megatron_lm.jobs import DENSE, EXPERTS, JOBS, LATENT, NEWER, Tree, job_of, merged

# Down projections of multi-head latent attention, which are one layer in MindSpeed-LLM.
_DOWN = ("linear_q_down_proj", "linear_kv_down_proj")
_OTHERS = ("linear_q_up_proj", "linear_proj")
_LOW_RANK_QUERY: Tree = {"model": {"q_lora_rank": 24}}
NEWEST = "26.1.0"
OLD = "2.1.0"
# Jobs that no version, or not each of them, can express; the tests of refusals name the fields.
_NOWHERE = {
    "precision-aware optimizer on the host",
    "global balance",
    "sft",
    "captured kernels",
    "checkpoints between checkpoints",
}
_NOT_OLD = {
    "embedding and loss count",
    "cp allgather",
    "moe tp sp ep etp",
    "deepseek v3 tp sp pp ep",
    "recompute selective",
    "bf16 gradients",
    "checkpoints, logs, evaluation",
    "pipeline layout",
    "muon",
    "weights sharded by Megatron",
    "weights sharded by torch",
    "communication in detail",
}
_LATER = {"pipeline layout", "muon"}
_LACKING = {OLD: _NOT_OLD, **{key: {*_LATER, "cp allgather"} for key in ("2.2.0", "2.3.0")}, "26.0.0": _LATER}
CASES = [
    (version, name, job)
    for version in BACKEND.versions
    for name, job in {**JOBS, **NEWER}.items()
    if name not in _NOWHERE | _LACKING.get(version, set())
]


def native(job: Job, version: str = NEWEST) -> NativeArgs:
    """Return the arguments of a job that must be expressible."""
    translation = translate(job, BACKEND, version)
    assert not translation.findings, [finding.message for finding in translation.findings]
    return translation.native


@pytest.mark.parametrize("version", BACKEND.versions)
def test_every_field_is_mapped_or_explained(version: str) -> None:
    table = BACKEND.table(version)
    assert unmapped_fields(table, version) == []
    assert {*table.unsupported, *table.irrelevant} <= set(field_paths())
    written = {path for row in active_rows(table, version) for path in row.fields[:1]}
    assert written & (set(table.unsupported) | set(table.irrelevant)) == set()


@pytest.mark.parametrize("version", BACKEND.versions)
def test_rows_name_only_arguments_of_the_version(version: str) -> None:
    catalogue = BACKEND.catalogue(version)
    flags = {flag for row in active_rows(BACKEND.table(version), version) for flag in row.flags}
    assert [flag for flag in sorted(flags) if flag not in catalogue] == []


@pytest.mark.parametrize(("version", "name", "job"), CASES, ids=[f"{v} {n}" for v, n, _ in CASES])
def test_arguments_are_valid(version: str, name: str, job: Job) -> None:
    catalogue = BACKEND.catalogue(version)
    args = native(job, version)
    assert [found for arg in args if (found := catalogue.check(arg.flag, arg.value))] == []
    assert len({arg.flag for arg in args}) == len(args.args), "an argument is written twice"


_HF: Tree = {"model": {"path": "hf"}}
WRITTEN: list[tuple[str, str, Tree, Tree]] = [
    (
        NEWEST,
        "q/k norms exist through the specification only",
        {},
        {"spec": ("mindspeed_llm.tasks.models.spec.qwen3_spec", "layer_spec")},
    ),
    (NEWEST, "no specification for Llama", {"model": {"model_type": "llama", "qk_layernorm": False}}, {"spec": None}),
    (NEWEST, "layer library is always said", {"kernels": {"transformer_impl": None}}, {"transformer-impl": "local"}),
    (NEWEST, "flash attention unless told otherwise", {}, {"use-flash-attn": True}),
    (NEWEST, "no flash attention", {"kernels": {"attention_backend": "unfused"}}, {"use-flash-attn": None}),
    (NEWEST, "no CUDA softmax", {}, {"no-masked-softmax-fusion": True}),
    (
        NEWEST,
        "weights are converted at start",
        _HF,
        {
            "enable-hf2mg-convert": True,
            "model-type-hf": "qwen3",
            "load": "hf",
            "ckpt-format": "torch",
            "finetune": True,
            "no-load-optim": True,
            "no-load-rng": True,
            "tokenizer-type": "HuggingFaceTokenizer",
            "tokenizer-model": "hf",
        },
    ),
    (
        NEWEST,
        "own checkpoints are loaded whole",
        merged(_HF, {"checkpoint": {"load": "ckpt"}}),
        {"load": "ckpt", "finetune": None},
    ),
    (
        NEWEST,
        "empty layers count",
        {"parallel": {"pp": 2, "noop_layers": [4, 5]}},
        {"num-layers": 6, "noop-layers": "4,5"},
    ),
    (NEWEST, "chunks in layers", {"parallel": {"pp": 2, "vpp": 2}}, {"num-layers-per-virtual-pipeline-stage": 1}),
    (
        NEWEST,
        "stages of unequal length",
        {"model": {"num_hidden_layers": 7}, "parallel": {"pp": 3, "first_stage_layers": 2, "last_stage_layers": 2}},
        {"num-layer-list": "2,3,2"},
    ),
    (
        NEWEST,
        "hybrid context parallelism",
        {"parallel": {"cp": 4, "cp_algorithm": "hybrid", "ulysses_degree": 2, "cp_window": 2}},
        {"context-parallel-algo": "hybrid_cp_algo", "ulysses-degree-in-cp": 2, "cp-window-size": 2},
    ),
    (
        OLD,
        "adaptive context parallelism",
        {"parallel": {"cp": 2, "cp_algorithm": "adaptive", "cp_mask_type": "general"}},
        {"context-parallel-algo": "adaptive_cp_algo", "cp-attention-mask-type": "general"},
    ),
    (
        NEWEST,
        "recomputation and swapping",
        {
            "recompute": {"activation": True, "activation_num_layers": 2, "norm": True, "per_pp_rank": True},
            "offload": {"attention": True, "modules": ["self_attention"]},
        },
        {
            "recompute-activation-function": True,
            "recompute-activation-function-num-layers": 2,
            "recompute-norm": True,
            "enable-recompute-layers-per-pp-rank": True,
            "swap-attention": True,
            "swap-modules": "self_attention",
        },
    ),
    (
        NEWEST,
        "fused weight gradients of experts",
        merged(EXPERTS, {"kernels": {"gradient_accumulation_fusion": True}}),
        {"gemm-gradient-accumulation-fusion": True, "no-gradient-accumulation-fusion": None},
    ),
    (
        NEWEST,
        "Llama 3.1 with all four numbers",
        {"model": {"rope_scaling": {"type": "llama3", "factor": 8.0, "original_max_position_embeddings": 4096}}},
        {"rope-scaling-type": "llama3", "original-max-position-embeddings": 4096.0, "low-freq-factor": 1.0},
    ),
    (
        NEWEST,
        "a scaling factor keeps its effect",
        merged(EXPERTS, {"model": {"routed_scaling_factor": 2.5}}),
        {"moe-router-topk-scaling-factor": 2.5, "norm-topk-prob": None},
    ),
    (
        OLD,
        "DeepSeek-V3 of 2.1.0",
        merged(
            EXPERTS,
            LATENT,
            {
                "model": {"scoring_func": "sigmoid", "router_expert_bias": True, "n_group": 4, "topk_group": 2},
                "moe": {"load_balancing_type": "seq_aux_loss"},
            },
        ),
        {
            "multi-head-latent-attention": True,
            "qk-rope-head-dim": 8,
            "qk-nope-head-dim": 16,
            "moe-intermediate-size": 32,
            "n-group": 4,
            "moe-router-load-balancing-type": "noaux_tc",
            "seq-aux": True,
            "router-gating-in-fp32": True,
            "use-mcore-models": True,
        },
    ),
    (
        NEWEST,
        "LoRA",
        {"lora": {"rank": 8, "alpha": 16}},
        {
            "lora-r": 8,
            "lora-alpha": 16,
            "lora-target-modules": ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"),
        },
    ),
    (
        NEWEST,
        "LoRA of every layer of MLA",
        merged(LATENT, _LOW_RANK_QUERY, {"lora": {"rank": 8}}),
        {
            "lora-target-modules": (
                *("linear_qkv", "linear_q_up_proj", "linear_kv_up_proj"),
                *("linear_proj", "linear_fc1", "linear_fc2"),
            )
        },
    ),
    (
        OLD,
        "LoRA of MLA's projections",
        merged(
            LATENT,
            _LOW_RANK_QUERY,
            {"lora": {"rank": 8, "target_modules": [*_DOWN, "linear_q_up_proj", "linear_proj"]}},
        ),
        {"lora-target-modules": ("linear_qkv", "linear_qb", "linear_proj")},
    ),
    (
        NEWEST,
        "DPO",
        {"task": {"type": "dpo", "beta": 0.2, "loss_type": "hinge", "rpo_alpha": 0.5, "reference_model": "ref"}},
        {
            "stage": "dpo",
            "is-pairwise-dataset": True,
            "dpo-beta": 0.2,
            "dpo-loss-type": "hinge",
            "pref-ftx": 0.5,
            "ref-model": "ref",
        },
    ),
    (
        NEWEST,
        "DPO in a pipeline",
        {"task": {"type": "dpo"}, "parallel": {"pp": 2}, "cluster": {"devices_per_node": 2}},
        {"no-pad-to-seq-lengths": True},
    ),
    (
        OLD,
        "SimPO",
        {"task": {"type": "simpo", "beta": 2.0, "simpo_gamma": 1.0}},
        {"stage": "simpo", "simpo-beta": 2.0, "gamma-beta-ratio": 0.5},
    ),
    (
        NEWEST,
        "chats, packed",
        {"task": {"type": "sft"}, "data": {"format": "messages"}, "batch": {"packing": True}},
        {
            "handler-name": "OpenAIInstructionHandler",
            "prompt-type": "qwen3",
            "pack": True,
            "neat-pack": True,
            "reset-attention-mask": True,
        },
    ),
    *(
        (
            version,
            "chats of Qwen2.5",
            {"task": {"type": "sft"}, "model": {"model_type": "qwen2"}, "data": {"format": form, "template": name}},
            {"prompt-type": written},
        )
        for version, form, name, written in (
            (NEWEST, "messages", None, "qwen_lf"),
            (NEWEST, "messages", "qwen", "qwen"),
            (OLD, "megatron", "qwen", "qwen"),
        )
    ),
]


@pytest.mark.parametrize(
    ("version", "name", "tree", "expected"), WRITTEN, ids=[f"{version} {name}" for version, name, _, _ in WRITTEN]
)
def test_written_arguments(version: str, name: str, tree: Tree, expected: Tree) -> None:
    args = native(job_of(DENSE, tree), version)
    assert {flag: args.get(flag) for flag in expected} == expected


REFUSED: list[tuple[str, str, Tree, str]] = [
    (NEWEST, "weights of a hub", {"model": {"hub_id": "Qwen/Qwen3-8B", "pretrained": True}}, "model.pretrained"),
    (NEWEST, "unknown template", {"task": {"type": "sft"}, "data": {"template": "qwen33"}}, "data.template"),
    (
        NEWEST,
        "unpadded pre-training",
        {"batch": {"variable_seq_lengths": True}},
        "batch.variable_seq_lengths",
    ),
    (NEWEST, "KTO", {"task": {"type": "kto"}}, "task.type"),
    (NEWEST, "SimPO", {"task": {"type": "simpo"}}, "task.type"),
    (NEWEST, "dropout of adapters", {"lora": {"rank": 8, "dropout": 0.1}}, "lora.dropout"),
    (
        NEWEST,
        "one of two fused projections",
        merged(LATENT, _LOW_RANK_QUERY, {"lora": {"rank": 8, "target_modules": [_DOWN[0]]}}),
        "lora.target_modules",
    ),
    (NEWEST, "half an alpha", {"lora": {"rank": 8, "alpha": 0.5}}, "lora.alpha"),
    (
        NEWEST,
        "adaptive context parallelism",
        {"parallel": {"cp": 2, "cp_algorithm": "adaptive"}},
        "parallel.cp_algorithm",
    ),
    (NEWEST, "chunks that do not divide", {"parallel": {"pp": 2, "vpp": 3}}, "parallel.vpp"),
    (
        NEWEST,
        "converted weights in torch_dist",
        merged(_HF, {"checkpoint": {"format": "torch_dist"}}),
        "checkpoint.format",
    ),
    (
        NEWEST,
        "YaRN with a factor that would be replaced",
        {"model": {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}}},
        "model.rope_scaling.factor",
    ),
    (
        NEWEST,
        "global balance",
        merged(EXPERTS, {"moe": {"load_balancing_type": "global_aux_loss"}}),
        "moe.load_balancing_type",
    ),
    (OLD, "weights", _HF, "model.pretrained"),
    (OLD, "raw chats", {"task": {"type": "sft"}, "data": {"format": "messages"}}, "data.format"),
    (OLD, "expert tensor parallelism", merged(EXPERTS, {"parallel": {"etp": 1}}), "parallel.etp"),
    (OLD, "sigmoid with aux_loss", merged(EXPERTS, {"model": {"scoring_func": "sigmoid"}}), "moe.load_balancing_type"),
    (
        OLD,
        "half a shared expert",
        merged(EXPERTS, {"model": {"shared_expert_intermediate_size": 48}}),
        "model.shared_expert_intermediate_size",
    ),
    (OLD, "bf16 gradients", {"precision": {"grad_reduce_in_fp32": False}}, "precision.grad_reduce_in_fp32"),
]


@pytest.mark.parametrize(("version", "name", "tree", "field"), REFUSED, ids=[f"{v} {n}" for v, n, _, _ in REFUSED])
def test_what_cannot_be_expressed_is_an_error(version: str, name: str, tree: Tree, field: str) -> None:
    found = translate(job_of(DENSE, tree), BACKEND, version).findings
    assert [(finding.severity, finding.fields) for finding in found if finding.severity == "error"] == [
        ("error", (field,))
    ]


@pytest.mark.parametrize("version", [NEWEST, OLD])
@pytest.mark.parametrize("low_rank_query", [True, False])
def test_adapters_of_latent_attention_keep_their_layers(version: str, low_rank_query: bool) -> None:
    query = _LOW_RANK_QUERY if low_rank_query else {}
    down = (_DOWN[0] if low_rank_query else "linear_q_proj", _DOWN[1])
    targets = (*down, "linear_kv_up_proj", "linear_fc2")
    job = job_of(DENSE, merged(LATENT, query, {"lora": {"rank": 8, "target_modules": targets}}))
    found = translate(job, BACKEND, version)
    assert next(arg.value for arg in found.native if arg.flag == "lora-target-modules")[0] == "linear_qkv"
    again = api.import_argv(BACKEND.argv(found.native), backend="mindspeed", version=version)
    assert again.job.lora.target_modules == targets


def test_aliases_of_versions() -> None:
    assert [BACKEND.version(name) for name in (None, "26.1", "2.1", "master")] == [
        "26.1.0",
        "26.1.0",
        "2.1.0",
        "master",
    ]


def test_the_family_of_converted_weights_is_shown_with_the_file_that_names_it(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 99, "max_position_embeddings": 64}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e6}
    config = {"model_type": "qwen3", **sizes, **layers}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    job = api.compose(["backend=mindspeed", f"model.path={tmp_path}", "model.pretrained=true"])
    (arg,) = [arg for arg in translate(job, BACKEND, NEWEST).native if arg.flag == "model-type-hf"]
    assert (arg.value, arg.field, arg.where) == ("qwen3", "model.model_type", str(tmp_path / "config.json"))


def test_a_pipeline_without_chunks_is_refused() -> None:
    """The search for fixes tries such values."""
    job = with_values(api.compose(["+recipe=qwen3_8b", "backend=mindspeed"]), {"parallel.vpp": 0})
    findings = translate(job, BACKEND, NEWEST).findings
    assert "parallel.vpp" in {path for finding in findings for path in finding.fields}

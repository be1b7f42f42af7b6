"""The mapping table of plain Megatron-LM: complete, valid for each version's parser, explicit where defaults differ."""

import pytest

from backends.megatron_lm import BACKEND
from launcher.compose import compose
from launcher.job import Job, field_paths
from launcher.mapping.engine import read_back, translate
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.mapping.rows import active_rows, unmapped_fields
from launcher.rules.native import effective_of
from tests.backends.megatron_lm.jobs import DENSE, EXPERTS, JOBS, LATENT, NEWER, Tree, job_of, merged

NEWEST = "0.16.1"
CASES = [(version, name, job) for version in BACKEND.versions for name, job in JOBS.items()]
CASES += [(NEWEST, name, job) for name, job in NEWER.items()]


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


@pytest.mark.parametrize("version", BACKEND.versions)
def test_latent_attention_whose_heads_do_not_divide_the_width(version: str) -> None:
    """GLM-4.7-Flash: 20 heads and a width of 2048, which the parser refuses without kv-channels."""
    random = ["model.pretrained=false", "model.num_nextn_predict_layers=0"]
    job = compose(["model=glm4_7_flash", *random])
    words = native(job, version)
    assert words.get("kv-channels") == job.model.v_head_dim == 256
    assert not read_back({arg.flag: arg.value for arg in words}, BACKEND, version).unmapped
    assert not native(compose(["model=deepseek_v2", *random]), version).has("kv-channels")


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
    assert all(arg.value is not False for arg in args), "a bare flag has no false"


# What Megatron would do otherwise stands behind each line.
EXPLICIT = [
    ("seed", 42),  # 1234
    ("weight-decay", 0.1),  # 0.01
    ("adam-beta2", 0.95),  # 0.999
    ("hidden-dropout", 0.0),  # 0.1
    ("attention-dropout", 0.0),  # 0.1
    ("position-embedding-type", "rope"),  # learned_absolute
    ("normalization", "RMSNorm"),  # LayerNorm
    ("norm-epsilon", 1e-6),  # 1e-5
    ("swiglu", True),  # gelu
    ("disable-bias-linear", True),  # biases
    ("untie-embeddings-and-output-weights", True),  # tied
    ("lr-decay-style", "cosine"),  # linear
    ("attention-softmax-in-fp32", True),  # model's precision
    ("moe-token-dispatcher-type", "alltoall"),  # allgather
    ("moe-router-dtype", "fp32"),  # model's precision
    ("rotary-base", 1000000),
    ("init-method-std", 0.02),
    ("clip-grad", 1.0),
]


@pytest.mark.parametrize("version", BACKEND.versions)
@pytest.mark.parametrize(("flag", "value"), EXPLICIT)
def test_what_changes_training_is_written_out(version: str, flag: str, value: object) -> None:
    assert native(job_of(DENSE, EXPERTS), version).get(flag) == value


def test_dense_jobs_say_nothing_of_experts() -> None:
    assert [arg.flag for arg in native(JOBS["dense"]) if "moe" in arg.flag or "expert" in arg.flag] == []


ROUTERS = [
    ("Qwen3-MoE, Mixtral: normalised", {"norm_topk_prob": True}, {}),
    ("Qwen1.5-MoE: not normalised", {"norm_topk_prob": False}, {"moe-router-pre-softmax": True}),
    (
        "DeepSeek-V3",
        {"scoring_func": "sigmoid", "router_expert_bias": True, "n_group": 4, "topk_group": 2},
        {
            "moe-router-score-function": "sigmoid",
            "moe-router-enable-expert-bias": True,
            "moe-router-num-groups": 4,
            "moe-router-group-topk": 2,
        },
    ),
    ("one group is no group", {"n_group": 1, "topk_group": 1}, {}),
    (
        "one expert, its own score",
        {"num_experts_per_tok": 1, "norm_topk_prob": False},
        {"moe-router-pre-softmax": True},
    ),
]


@pytest.mark.parametrize("version", BACKEND.versions)
@pytest.mark.parametrize(("name", "model", "expected"), ROUTERS, ids=[name for name, _, _ in ROUTERS])
def test_routers(version: str, name: str, model: Tree, expected: Tree) -> None:
    about = (
        "moe-router-pre-softmax",
        "moe-router-score-function",
        "moe-router-enable-expert-bias",
        "moe-router-num-groups",
        "moe-router-group-topk",
    )
    args = native(job_of(DENSE, EXPERTS, {"model": model}), version)
    assert {arg.flag: arg.value for arg in args if arg.flag in about} == expected


WRITTEN: list[tuple[str, Tree, Tree]] = [
    (
        "61 layers, 3 of them dense",
        merged(EXPERTS, {"model": {"num_hidden_layers": 61, "first_k_dense_replace": 3}}),
        {"moe-layer-freq": "([0]*3+[1]*58)"},
    ),
    (
        "dense, then every second",
        merged(EXPERTS, {"model": {"num_hidden_layers": 6, "first_k_dense_replace": 2, "moe_layer_freq": 2}}),
        {"moe-layer-freq": "[0,0,1,0,1,0]"},
    ),
    (
        "attention and another module, both offloaded",
        merged(EXPERTS, {"offload": {"attention": True, "modules": ["moe_act", "core_attn"]}}),
        {"offload-modules": ("qkv_linear", "core_attn", "attn_proj", "moe_act")},
    ),
    (
        "DeepEP of the flex dispatcher",
        merged(EXPERTS, {"moe": {"token_dispatcher_type": "flex", "deepep": True}}),
        {"moe-token-dispatcher-type": "flex", "moe-flex-dispatcher-backend": "deepep"},
    ),
    ("attention window of 64 tokens", {"model": {"sliding_window": 64}}, {"window-size": "(63,0)"}),
    (
        "vocabulary padded for tp only",
        {"model": {"vocab_size": 1001}, "parallel": {"tp": 4}, "tokenizer": {"path": "hf"}},
        {"vocab-size": 1001, "padded-vocab-size": 1004},
    ),
    (
        "no tokenizer: one more token for the end of a document",
        {},
        {"tokenizer-type": "NullTokenizer", "vocab-size": 511},
    ),
    (
        "MLA without scaling is plain RoPE, unfused",
        merged(LATENT, {"model": {"rope_scaling": {"type": None}}}),
        {"rope-type": "rope", "no-rope-fusion": True},
    ),
    (
        "a schedule counted in samples",
        {"schedule": {"train_iters": None, "train_samples": 800, "lr_warmup_iters": 5}},
        {"train-samples": 800, "lr-warmup-samples": 40},
    ),
    (
        "a save needs an interval",
        {"checkpoint": {"save": "out"}},
        {"save": "out", "save-interval": 20},
    ),
    ("nobody asked for evaluation", {}, {"eval-iters": 0, "split": "100,0,0"}),
    ("a share for evaluation", {"data": {"validation_ratio": 0.02}}, {"split": "0.98,0.02,0"}),
    ("bf16 gradients", {"precision": {"grad_reduce_in_fp32": False}}, {"grad-reduce-in-bf16": True}),
    (
        "hybrid context parallelism",
        {"parallel": {"cp": 4, "cp_algorithm": "hybrid", "ulysses_degree": 2}},
        {"cp-comm-type": "a2a+p2p", "hierarchical-context-parallel-sizes": (2, 2)},
    ),
    (
        "asynchronous saving",
        {"checkpoint": {"async_save": True}},
        {"async-save": True, "use-persistent-ckpt-worker": True},
    ),
]


@pytest.mark.parametrize(("name", "tree", "expected"), WRITTEN, ids=[name for name, _, _ in WRITTEN])
def test_written_arguments(name: str, tree: Tree, expected: Tree) -> None:
    args = native(job_of(DENSE, tree))
    assert {flag: args.get(flag) for flag in expected} == expected


def test_padded_vocabulary_before_it_had_an_argument() -> None:
    job = job_of(DENSE, {"model": {"vocab_size": 151936}, "tokenizer": {"path": "hf"}, "parallel": {"tp": 2}})
    assert native(job, "0.12.1").get("make-vocab-size-divisible-by") == 151936 // 2


REFUSED: list[tuple[str, str, Tree, str]] = [
    (NEWEST, "task", {"task": {"type": "dpo"}}, "task.type"),
    (NEWEST, "DeepEP of another dispatcher", merged(EXPERTS, {"moe": {"deepep": True}}), "moe.deepep"),
    (NEWEST, "LoRA", {"lora": {"rank": 8}}, "lora.rank"),
    (NEWEST, "Hugging Face weights", {"model": {"path": "hf", "pretrained": True}}, "model.pretrained"),
    (NEWEST, "weights of a path", {"model": {"hub_id": "Qwen/Qwen3-8B"}}, "model.pretrained"),
    (NEWEST, "too long a sequence", {"batch": {"seq_length": 8192}}, "model.max_position_embeddings"),
    (NEWEST, "fraction of theta", {"model": {"rope_theta": 10000.5}}, "model.rope_theta"),
    (
        NEWEST,
        "YaRN on ordinary attention",
        {"model": {"rope_scaling": {"type": "yarn", "factor": 4.0}}},
        "model.rope_scaling.type",
    ),
    (
        NEWEST,
        "Llama 3 scaling with another length",
        {"model": {"rope_scaling": {"type": "llama3", "original_max_position_embeddings": 4096}}},
        "model.rope_scaling.original_max_position_embeddings",
    ),
    (
        NEWEST,
        "adaptive context parallelism",
        {"parallel": {"cp": 2, "cp_algorithm": "adaptive"}},
        "parallel.cp_algorithm",
    ),
    (NEWEST, "epochs", {"schedule": {"epochs": 1.0}}, "schedule.epochs"),
    (NEWEST, "empty layers", {"parallel": {"noop_layers": [3]}}, "parallel.noop_layers"),
    (NEWEST, "chats for pre-training", {"data": {"format": "messages"}}, "data.format"),
    (NEWEST, "ReLU", {"model": {"hidden_act": "relu"}}, "model.hidden_act"),
    (
        NEWEST,
        "torch's FSDP with whole weights",
        {"parallel": {"zero_stage": 2, "fsdp": {"implementation": "torch"}}},
        "parallel.zero_stage",
    ),
    (
        NEWEST,
        "sigmoid without sum",
        merged(EXPERTS, {"model": {"scoring_func": "sigmoid", "norm_topk_prob": False}}),
        "model.norm_topk_prob",
    ),
    (NEWEST, "bias with softmax", merged(EXPERTS, {"model": {"router_expert_bias": True}}), "model.router_expert_bias"),
    (
        NEWEST,
        "sequential dispatcher",
        merged(EXPERTS, {"moe": {"token_dispatcher_type": "alltoall_seq"}}),
        "moe.token_dispatcher_type",
    ),
    ("0.12.1", "layout before 0.13", {"parallel": {"pp": 2, "layout": "Et|tttL"}}, "parallel.layout"),
    ("0.12.1", "attention window", {"model": {"sliding_window": 64}}, "model.sliding_window"),
    ("0.12.1", "gate", merged(EXPERTS, {"model": {"shared_expert_gate": True}}), "model.shared_expert_gate"),
    ("0.12.1", "SFT", {"task": {"type": "sft"}, "data": {"format": None}}, "task.type"),
]


@pytest.mark.parametrize(("version", "name", "tree", "field"), REFUSED, ids=[f"{v} {n}" for v, n, _, _ in REFUSED])
def test_what_cannot_be_expressed_is_an_error(version: str, name: str, tree: Tree, field: str) -> None:
    found = translate(job_of(DENSE, tree), BACKEND, version).findings
    assert [(finding.severity, finding.fields) for finding in found] == [("error", (field,))]


def test_speed_and_memory_only_is_a_warning() -> None:
    found = translate(job_of(DENSE, {"recompute": {"norm": True}}), BACKEND, NEWEST).findings
    assert [(finding.severity, finding.fields) for finding in found] == [("warning", ("recompute.norm",))]


def test_refused_values_leave_the_other_arguments() -> None:
    job = job_of(DENSE, {"model": {"hub_id": "Qwen/Qwen3-8B", "pretrained": True}})
    without = job_of(DENSE, {"model": {"hub_id": "Qwen/Qwen3-8B", "pretrained": False}})
    assert translate(job, BACKEND, NEWEST).native == native(without)


UNREAD: list[tuple[str, Tree, bool]] = [
    ("use-flash-attn", {}, True),
    ("use-flash-attn", {"use-legacy-models": True}, False),
    ("no-position-embedding", {"position-embedding-type": "rope"}, True),
    ("no-position-embedding", {"use-rotary-position-embeddings": True}, True),
    ("no-position-embedding", {}, False),
    ("no-position-embedding", {"position-embedding-type": "none"}, False),
]


@pytest.mark.parametrize(("flag", "others", "is_unread"), UNREAD)
def test_what_nothing_reads_is_left_out(flag: str, others: Tree, is_unread: bool) -> None:
    given = {**others, flag: True}
    kept = [arg.flag for arg in read_back(given, BACKEND, "0.16.1").unmapped]
    assert (flag not in kept) == is_unread
    args = tuple(NativeArg(flag=name, value=value) for name, value in given.items())
    written = NativeArgs(backend="megatron_lm", version="0.16.1", args=args)
    effective = effective_of(job_of(DENSE), BACKEND, "0.16.1", written, as_written=True)
    assert (flag in effective.unread()) == is_unread

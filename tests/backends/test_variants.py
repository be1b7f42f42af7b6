"""Qwen3-Next, DeepSeek-V3.2, DeepSeek-V4, GPT-OSS, Llama 4 and Mamba: one field each, every backend's own words."""

from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.families.config_json import config_from_model
from launcher.families.source import ModelConfigError
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences
from launcher.job import value_at
from launcher.job.build import build
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back, translate
from launcher.plan.plan import LaunchPlan
from tests.backends.small_jobs import LM, LM_12, LM_19, MF, MF_OLD, MODEL, MS, MS_OLD, SWIFT, SWIFT_3, job_of, written

LATENT = {**MODEL, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
KEYS = "megatron_extra_kwargs"
M = "model.model_config."

# Field, value, what is said beside it, and on which backend it is which argument (a key of ModelConfig: name, value).
SAME: list[tuple[str, Any, dict[str, Any], dict[tuple[str, str], tuple[str, Any]]]] = [
    (
        "model.full_attention_interval",
        4,
        {},
        {LM: ("linear-attention-freq", "4"), MS: ("full-attention-interval", 4)},
    ),
    (
        "model.linear_num_key_heads",
        8,
        {"full_attention_interval": 4},
        {LM: ("linear-num-key-heads", 8), MS: ("linear-num-key-heads", 8), SWIFT_3: ("linear_num_key_heads", 8)},
    ),
    (
        "model.linear_conv_kernel_dim",
        3,
        {"full_attention_interval": 4},
        {LM: ("linear-conv-kernel-dim", 3), MS: ("mamba-d-conv", 3), SWIFT_3: ("linear_conv_kernel_dim", 3)},
    ),
    (
        "model.experimental_attention_variant",
        "dsa",
        LATENT,
        {
            LM: ("experimental-attention-variant", "dsa"),
            MS: ("enable-dsa-indexer", True),
            MF: (f"{M}experimental_attention_variant", "dsa"),
        },
    ),
    (
        "model.index_topk",
        1024,
        {**LATENT, "experimental_attention_variant": "dsa"},
        {LM: ("dsa-indexer-topk", 1024), MS: ("index-topk", 1024), MF: (f"{M}dsa_indexer_topk", 1024)},
    ),
    (
        "model.dsa_indexer_loss_coeff",
        0.5,
        {**LATENT, "experimental_attention_variant": "dsa"},
        {
            LM: ("dsa-indexer-loss-coeff", 0.5),
            MS: ("indexer-loss-coeff", 0.5),
            MF: (f"{M}dsa_indexer_loss_coeff", 0.5),
            SWIFT: ("dsa_indexer_loss_coeff", 0.5),
        },
    ),
    ("model.index_topk_freq", 4, {}, {MS: ("index-topk-freq", 4), LM_19: ("dsa-indexer-topk-freq", 4)}),
    # MindFormers counts layers from 0.
    (
        "model.index_skip_topk_offset",
        3,
        {},
        {
            MS: ("index-skip-topk-offset", 3),
            MF: (f"{M}dsa_index_skip_topk_offset", 2),
            LM_19: ("dsa-indexer-skip-topk-offset", 3),
        },
    ),
    (
        "model.indexer_types",
        ("full", "shared"),
        {},
        {MS: ("index-topk-pattern", "FS")},
    ),
    (
        "model.softmax_type",
        "learnable",
        {},
        {LM: ("softmax-type", "learnable"), SWIFT_3: ("softmax_type", "learnable")},
    ),
    (
        "model.swiglu_limit",
        7.0,
        {},
        {
            LM: ("activation-func-clamp-value", 7.0),
            MS: ("swiglu-limit", 7.0),
            SWIFT_3: ("activation_func_clamp_value", 7.0),
        },
    ),
    ("model.glu_linear_offset", 1.0, {}, {LM: ("glu-linear-offset", 1.0), SWIFT_3: ("glu_linear_offset", 1.0)}),
    ("model.hidden_act", "quick_geglu", {}, {LM: ("quick-geglu", True), SWIFT_3: ("quick_geglu", True)}),
    (
        "model.window_attn_skip_freq",
        2,
        {},
        {
            LM: ("window-attn-skip-freq", "2"),
            SWIFT_3: ("window_attn_skip_freq", "2"),
            MF: (f"{M}window_attn_skip_freq", 2),
        },
    ),
    (
        "model.no_rope_freq",
        4,
        {},
        {LM: ("no-rope-freq", "4"), SWIFT_3: ("no_rope_freq", 4), MF: (f"{M}nope_layer_interval", 4)},
    ),
    ("model.qk_l2_norm", True, {}, {LM: ("qk-l2-norm", True), SWIFT_3: ("qk_l2_norm", True)}),
    (
        "model.mrope_section",
        (16, 24, 24),
        {},
        {
            LM_12: ("mrope-section", (16, 24, 24)),
            MS: ("mrope-section", (16, 24, 24)),
            SWIFT_3: ("mrope_section", (16, 24, 24)),
        },
    ),
    ("model.compress_ratios", (0, 4, 128), {}, {MS: ("compress-ratios", (0, 4, 128))}),
    ("model.hc_mult", 4, {}, {MS: ("hc-mult", 4)}),
    ("model.norm_zero_centered", True, {}, {LM: ("apply-layernorm-1p", True), MS: ("add-rmsnorm-offset", True)}),
    (
        "model.mamba_num_groups",
        4,
        {"mamba": True},
        {LM_12: ("mamba-num-groups", 4), MS: ("mamba-num-groups", 4), MS_OLD: ("mamba-ngroups", 4)},
    ),
    (
        "model.hybrid_override_pattern",
        "M-M*",
        {"mamba": True},
        {LM: ("hybrid-override-pattern", "M-M*"), MS_OLD: ("hybrid-override-pattern", "M-M*")},
    ),
    (
        "model.perform_initialization",
        False,
        {},
        {
            LM: ("no-initialization", True),
            MS_OLD: ("no-initialization", True),
            SWIFT: ("perform_initialization", False),
            SWIFT_3: ("no_initialization", True),
        },
    ),
    ("model.use_legacy_models", True, {}, {LM: ("use-legacy-models", True), MS: ("use-legacy-models", True)}),
    ("model.init_method_xavier_uniform", True, {}, {MS_OLD: ("init-method-xavier-uniform", True)}),
    ("moe.use_upcycling", True, {}, {LM: ("moe-use-upcycling", True), MS: ("moe-use-upcycling", True)}),
    ("precision.fp4_format", "e2m1", {}, {LM: ("fp4-format", "e2m1"), SWIFT: ("fp4_format", "e2m1")}),
    ("kernels.use_fused_mhc", True, {}, {MS: ("use-fused-mhc", True), SWIFT: ("use_fused_mhc", True)}),
    (
        "optimizer.muon_scalar_optimizer",
        "lion",
        {},
        {MS: ("muon-scalar-optimizer", "lion"), SWIFT: ("muon_scalar_optimizer", "lion")},
    ),
]
CASES = [(path, value, beside, where, wanted) for path, value, beside, all_ in SAME for where, wanted in all_.items()]


@pytest.mark.parametrize(
    ("path", "value", "beside", "where", "wanted"), CASES, ids=[f"{case[0]}-{'-'.join(case[3])}" for case in CASES]
)
def test_a_field_is_the_same_setting_everywhere(
    path: str, value: Any, beside: dict[str, Any], where: tuple[str, str], wanted: tuple[str, Any]
) -> None:
    job = job_of(model=beside, **{path.replace(".", "__"): value})
    given, refused = written(job, where)
    assert given[wanted[0]] == wanted[1]
    assert path not in refused
    assert value_at(read_back(given, get_backend(where[0]), where[1]).job, path) == value


KEYED = [
    (
        "full_attention_interval",
        4,
        {
            "linear_attention_freq": "4",
            "experimental_attention_variant": "gated_delta_net",
            "attention_output_gate": True,
        },
    ),
    ("index_topk", 512, {"dsa_indexer_topk": 512}),
    ("index_skip_topk_offset", 3, {"dsa_indexer_skip_topk_offset": 3}),
    ("hc_mult", 4, {"num_residual_streams": 4}),
    ("compress_ratios", (0, 4), {"csa_compress_ratios": [0, 4]}),
    ("hidden_act", "quick_geglu", {"swiglu": False, "quick_geglu": True}),
    ("norm_zero_centered", True, {"layernorm_zero_centered_gamma": True}),
]


@pytest.mark.parametrize(("name", "value", "wanted"), KEYED, ids=[name for name, _, _ in KEYED])
def test_megatron_swift_takes_it_as_a_key_of_the_model_s_configuration(
    name: str, value: Any, wanted: dict[str, Any]
) -> None:
    job, problems = build({"model": {"hub_id": "Qwen/Qwen3-8B", name: value}, "optimizer": {"lr": 1e-4}})
    assert not problems
    given, refused = written(job, SWIFT)
    assert given[KEYS] == wanted
    assert f"model.{name}" not in refused
    assert value_at(read_back(given, get_backend("megatron"), SWIFT[1]).job, f"model.{name}") == value


def test_megatron_swift_takes_weights_on_inputs_as_a_key_too() -> None:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    given, refused = written(job_of(model={**experts, "apply_probs_on_input": True}), SWIFT)
    assert given[KEYS]["moe_apply_probs_on_input"] is True
    assert "model.apply_probs_on_input" not in refused
    assert read_back(given, get_backend("megatron"), SWIFT[1]).job.model.apply_probs_on_input is True


def test_mindformers_gets_no_argument_for_a_model_that_has_no_hyper_connections() -> None:
    given, refused = written(job_of(model__enable_hyper_connections=False), MF)
    assert f"{M}enable_hyper_connections" not in given
    assert "model.enable_hyper_connections" not in refused


REFUSED = [
    ("model.index_topk_freq", 4, {LM: "error", MF: "error", MF_OLD: "error", MS_OLD: "error"}),
    (
        "model.indexer_types",
        ("full", "shared"),
        {LM: "error", LM_19: "error", MF: "error", SWIFT: "error", MS_OLD: "error"},
    ),
    ("model.full_attention_interval", 4, {LM_12: "error", MS_OLD: "error", MF: "error"}),
    ("model.compress_ratios", (0, 4), {LM: "error", MS_OLD: "error", MF: "error", SWIFT_3: "error"}),
    ("model.softmax_type", "learnable", {LM_12: "error", MS: "error", MF: "error"}),
    ("model.attention_output_gate", True, {LM_12: "error", MS: "error", MF: "error", SWIFT_3: "error"}),
    ("model.mamba", True, {SWIFT: "error", SWIFT_3: "error", MF: "error", MF_OLD: "error"}),
    ("model.hidden_act", "quick_geglu", {LM_12: "error", MS: "error", MF: "error"}),
    ("model.apply_probs_on_input", True, {LM_12: "error", MS: "error", MF: "error"}),
    ("precision.fp4_format", "e2m1", {LM_12: "error", MS: "error", MF: "error", SWIFT_3: "error"}),
    ("optimizer.muon_scalar_optimizer", "sgd", {MS: "error"}),
    ("kernels.use_fused_mhc", True, {LM: "warning", MF: "warning", SWIFT_3: "warning"}),
    ("model.perform_initialization", False, {MF: "warning"}),
]


@pytest.mark.parametrize(("path", "value", "verdicts"), REFUSED, ids=[path for path, _, _ in REFUSED])
def test_what_a_backend_cannot_express_is_reported(path: str, value: Any, verdicts: dict[tuple[str, str], str]) -> None:
    for where, severity in verdicts.items():
        _, refused = written(job_of(**{path.replace(".", "__"): value}), where)
        assert refused.get(path) == severity, where


SIZES: dict[str, tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]] = {
    # What is written with an attention that a job names and leaves open otherwise: backends' own are 0, none or these.
    "linear": (
        {"full_attention_interval": 4},
        {
            LM: {"linear-num-value-heads": 32, "linear-key-head-dim": 128, "attention-output-gate": True},
            MS: {"linear-num-value-heads": 32, "mamba-d-conv": 4},
        },
    ),
    "sparse": (
        {**LATENT, "experimental_attention_variant": "dsa"},
        {
            LM: {"dsa-indexer-n-heads": 64, "dsa-indexer-loss-coeff": 1.0, "dsa-indexer-use-sparse-loss": True},
            SWIFT: {"dsa_indexer_loss_coeff": 1.0, "dsa_indexer_use_sparse_loss": True},
            MS: {"index-n-heads": 64, "indexer-loss-coeff": 1.0},
            MF: {f"{M}dsa_indexer_n_heads": 64, f"{M}dsa_indexer_use_sparse_loss": True},
        },
    ),
    "mamba": (
        {"mamba": True},
        {
            LM: {"mamba-state-dim": 128, "mamba-head-dim": 64},
            MS: {"mamba-head-dim": 64, "mamba-expand": 2},
            MS_OLD: {"mamba-headdim": 64, "mamba-ngroups": 8},
        },
    ),
}


@pytest.mark.parametrize("kind", SIZES)
def test_open_sizes_are_the_same_everywhere(kind: str) -> None:
    model, everywhere = SIZES[kind]
    for where, wanted in everywhere.items():
        given, _ = written(job_of(model=model), where)
        assert wanted.items() <= given.items(), where
        plain, _ = written(job_of(), where)
        assert not set(wanted) & set(plain), where


MAMBA_SCRIPTS = [
    (LM, "megatron.core.models.mamba.mamba_layer_specs"),
    (MS, "mindspeed_llm.tasks.models.spec.mamba_spec"),
]


@pytest.mark.parametrize(("where", "module"), MAMBA_SCRIPTS, ids=["-".join(where) for where, _ in MAMBA_SCRIPTS])
def test_mamba_starts_the_program_that_trains_it(where: tuple[str, str], module: str) -> None:
    backend = get_backend(where[0])
    for mamba, script in ((True, "pretrain_mamba.py"), (None, "pretrain_gpt.py")):
        job = job_of(model={"mamba": mamba}, backend={"name": where[0], "version": where[1]})
        native = translate(job, backend, where[1]).native
        plan: LaunchPlan = backend.launch(job, native)
        assert any(arg.endswith(script) for arg in plan.nodes[0].argv)
        assert native.has("spec") is bool(mamba)
        assert not mamba or native.get("spec")[0] == module


def test_mindspeed_builds_qwen3_next_and_deepseek_v4_from_their_own_layers() -> None:
    given, _ = written(job_of(model={"full_attention_interval": 4, "qk_layernorm": True}), MS)
    assert given["spec"][0].endswith("qwen3_next_spec")
    four = {**LATENT, "experimental_attention_variant": "dsv4_hybrid", "num_nextn_predict_layers": 1}
    given, _ = written(job_of(model=four), MS)
    assert given["spec"][0].endswith("deepseek4_spec")
    assert given["mtp-spec"][1] == "mtp_spec"
    assert (given["kv-compress"], given["position-embedding-type"]) == (True, "deepseek4")
    back = read_back(given, get_backend("mindspeed"), MS[1]).job.model
    assert (back.experimental_attention_variant, back.position_embedding) == ("dsv4_hybrid", "rope")


def test_mindspeed_takes_deepseek_v4_as_it_is_published() -> None:
    """Its layers read the whole head (deepseek4/csa.py:103) and scaling arguments of their own."""
    job = compose(["model=deepseek_v4_flash", "model.pretrained=false", "backend=mindspeed", "batch.seq_length=8192"])
    given, refused = written(job, MS)
    assert "error" not in {severity for path, severity in refused.items() if path.startswith("model.")}
    wanted = {
        "qk-head-dim": 512,
        "qk-pos-emb-head-dim": 64,
        "original-seq-len": 65536,
        "rope-factor": 16.0,
        "rope-scaling-original-max-position-embeddings": 8192,
        "moe-router-score-function": "sqrtsoftplus",
        "moe-router-enable-expert-bias": True,
        "compress-rope-theta": 160000.0,
    }
    assert {flag: given.get(flag) for flag in wanted} == wanted
    assert not {"rope-scaling-type", "rope-type"} & set(given)
    back = read_back(given, get_backend("mindspeed"), MS[1]).job.model
    for name in ("qk_nope_head_dim", "rope_scaling", "scoring_func", "router_expert_bias", "norm_topk_prob"):
        assert getattr(back, name) == getattr(job.model, name), name
    _, older = written(job, MS_OLD)
    assert older["model.scoring_func"] == "error"


def test_what_mindspeed_implies_is_written_on_other_backends() -> None:
    """Its Qwen3-Next gates attention and its indexer learns from the chosen keys, without arguments."""
    backend = get_backend("mindspeed")
    linear = read_back({"full-attention-interval": 4, "mamba-d-conv": 4, "mamba-expand": 1}, backend, MS[1])
    assert linear.job.model.attention_output_gate is True
    assert linear.job.model.mamba_d_conv is None
    assert {left.flag: left.value for left in linear.unmapped} == {"spec": None}
    sparse = read_back({"enable-dsa-indexer": True}, backend, MS[1]).job
    assert sparse.model.dsa_indexer_use_sparse_loss is True
    assert written(sparse, LM)[0]["dsa-indexer-use-sparse-loss"] is True


OLD_SPELLINGS = [(LM, "moe-layer-recompute"), (MS, "moe-layer-recompute"), (SWIFT, "moe_layer_recompute")]


@pytest.mark.parametrize(("where", "flag"), OLD_SPELLINGS, ids=["-".join(where) for where, _ in OLD_SPELLINGS])
def test_recomputed_experts_are_a_module(where: tuple[str, str], flag: str) -> None:
    found = read_back({flag: True}, get_backend(where[0]), where[1])
    assert (found.job.recompute.granularity, found.job.recompute.modules) == ("selective", ("core_attn", "moe"))
    assert flag not in {left.flag for left in found.unmapped}


def test_the_first_mindspeed_recomputes_experts_by_name() -> None:
    given, refused = written(job_of(recompute__modules=("moe",)), MS_OLD)
    assert given["moe-layer-recompute"] is True
    assert not any(path.startswith("recompute") for path in refused)


@pytest.mark.parametrize("pattern", ["([1]*3+[0])*2", "[1,0]"])
def test_a_list_of_layers_stays_as_it_was_typed(pattern: str) -> None:
    flags = {
        "experimental-attention-variant": "gated_delta_net",
        "linear-attention-freq": pattern,
        "no-rope-freq": pattern,
    }
    found = read_back(flags, get_backend("megatron_lm"), LM[1])
    assert flags.items() <= {left.flag: left.value for left in found.unmapped}.items()
    assert found.job.model.full_attention_interval is None


def test_a_config_json_of_a_family_without_it_is_not_written() -> None:
    job = job_of(model={**MODEL, "model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16, "index_topk": 8})
    with pytest.raises(ModelConfigError, match="index_topk"):
        config_from_model(job.model)


def test_a_script_of_mamba_is_read_and_ported(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    args = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --hybrid-attention-ratio 0.25 --mamba-num-groups 4"
    spec = "--spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec"
    more = "--seq-length 64 --position-embedding-type none --normalization RMSNorm --swiglu --disable-bias-linear"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_mamba.py {args} {spec} {more}\n", encoding="utf-8")
    found = read_file(script, ImportOptions(backend="megatron_lm"))[0]
    assert found.job.model.mamba is True
    assert not differences(found)
    given, refused = written(found.job, MS)
    assert given["spec"] == ("mindspeed_llm.tasks.models.spec.mamba_spec", "layer_spec")
    assert (given["mamba-num-groups"], given["mamba-expand"], given["hybrid-attention-ratio"]) == (4, 2, 0.25)
    assert "error" not in refused.values()

"""Ports: every argument of the source is accounted for; what is left out says what it did, why, and what instead."""

import json
import random
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from launcher.cli.dispatch import dispatch
from launcher.cli.import_ import main
from launcher.importing.accounts import DROPPED, PASSED_THROUGH, TRANSLATED
from launcher.importing.port import Ported, ported
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import Job, value_at
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.native_only import EFFECTS, MEMORY, MODEL, NOTHING, OUTPUT, SPEED, START, TRAINING
from launcher.port.dropped import DroppedArg
from launcher.port.port import PortResult, port_job
from tests.importing.sources import DATA, LM, MOE, NPU, SWIFT, TP, sample


def port(source: tuple[str, str], more: str, target: str, **options: Any) -> Ported:
    backend, command = source
    return ported(read_argv([*command.split(), *more.split()], backend=backend), target, **options)


def left_out(found: Ported, flag: str) -> DroppedArg:
    """Return the account of an argument."""
    account = next(each for each in found.accounts if each.flag == flag)
    assert account.status == DROPPED, account
    assert account.missing is not None
    return account.missing


# Source, arguments, target: effect, what is said of the reason, and the substitute that is named ("": none).
ASCEND: Mapping[str, tuple[tuple[str, str], str, str, str, str, str, str]] = {
    "weights and optimizer in one": (NPU, "--reuse-fp32-param", "reuse-fp32-param", "megatron", MEMORY, "MindSpeed",
                                     "optimizer.precision_aware=true"),
    "mc2": (NPU, f"--use-ascend-mc2 {TP}", "use-ascend-mc2", "megatron_lm", SPEED, "CANN", "overlap.tp_comm=true"),
    "mc2 by its old name": (NPU, f"--use-mc2 {TP}", "use-mc2", "megatron_lm", SPEED, "CANN", "overlap.tp_comm=true"),
    "coc": (NPU, f"--use-ascend-coc {TP}", "use-ascend-coc", "megatron_lm", SPEED, "CANN", "overlap.tp_comm=true"),
    "ring update": (NPU, "--use-fused-ring-attention-update", "use-fused-ring-attention-update", "megatron_lm", SPEED,
                    "CANN", ""),
    "order of axes": (NPU, "--shape-order BNSD", "shape-order", "megatron", SPEED, "CANN", ""),
    "window of a kernel": (NPU, "--pre-tockens 4096", "pre-tockens", "megatron_lm", MODEL, "CANN",
                           "model.sliding_window=4096"),
    "hccl": (NPU, "--hccl-group-buffer dp:200", "hccl-group-buffer", "megatron", SPEED, "CANN", ""),
    "bf16 states": (NPU, "--o2-optimizer", "o2-optimizer", "megatron_lm", TRAINING, "MindSpeed",
                    "optimizer.precision_aware=true optimizer.exp_avg_dtype=bf16"),
    "high availability": (NPU, "--enable-high-availability", "enable-high-availability", "megatron_lm", START, "MindIO",
                          "fault_tolerance.max_restarts=3"),
    "profiler": (NPU, "--profile-with-cpu", "profile-with-cpu", "megatron_lm", OUTPUT, "CANN", "profiler.enabled=true"),
    "overlapped dispatch": (NPU, MOE + " --moe-token-dispatcher-type alltoall --moe-allgather-overlap-comm",
                            "moe-allgather-overlap-comm", "megatron_lm", SPEED, "CANN", "moe.permute_fusion=true"),
    "spec": (NPU, "--spec mindspeed_llm.tasks.models.spec.gemma2_spec layer_spec", "spec", "megatron", MODEL, "source",
             "model.path=DIR"),
    "spec on plain Megatron": (NPU, "--spec mindspeed_llm.tasks.models.spec.gemma2_spec layer_spec", "spec",
                               "megatron_lm", MODEL, "source", ""),
    "softcapping": (NPU, "--attn-logit-softcapping 30", "attn-logit-softcapping", "megatron_lm", MODEL, "family",
                    ""),
    "CUDA graphs": (LM, "--cuda-graph-impl local", "cuda-graph-impl", "mindspeed", SPEED, "NVIDIA", ""),
    "NCCL": (LM, "--use-nccl-ub", "use-nccl-ub", "mindspeed", SPEED, "NVIDIA", ""),
    "SHARP": (LM, "--use-sharp", "use-sharp", "mindspeed", SPEED, "NVIDIA", ""),
    "FSDP": (LM, "--fsdp-double-buffer", "fsdp-double-buffer", "mindspeed", MEMORY, "data parallelism",
             "parallel.zero_stage=3"),
    "TE activation": (LM, "--use-te-activation-func", "use-te-activation-func", "mindspeed", MODEL,
                      "megatron-core", ""),
    "kitchen": (LM, "--use-kitchen-attention", "use-kitchen-attention", "mindspeed", SPEED, "Transformer Engine", ""),
    "weights of parts of the loss": (SWIFT, "--loss_scale ignore_empty_think", "loss_scale", "mindspeed", MODEL,
                                     "chat templates", ""),
    "cached data": (SWIFT, "--load_from_cache_file true", "load_from_cache_file", "mindspeed", SPEED, "data sets", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ASCEND.values(), ids=ASCEND.keys())
def test_what_one_kind_of_device_has_is_named_with_reason_and_substitute(case: tuple[Any, ...]) -> None:
    source, more, flag, target, effect, why, instead = case
    reported = left_out(port(source, more, target), flag)
    assert reported.effect == effect
    assert why in reported.why
    assert reported.works[:1] == ((instead,) if instead else ())
    assert reported.instead.startswith(instead or "none")
    assert reported.does


# What a canonical field says: the mapping itself names reason and substitute, or writes the target's own form.
FIELDS: Mapping[str, tuple[tuple[str, str], str, str, str, tuple[str, ...]]] = {
    "accumulation in the product": (NPU, "--no-gradient-accumulation-fusion", "no-gradient-accumulation-fusion",
                                    "megatron_lm", ("no-gradient-accumulation-fusion",)),
    "fused norm": (NPU, "--use-fused-rmsnorm --normalization RMSNorm", "use-fused-rmsnorm", "megatron_lm", ()),
    "fused SwiGLU": (NPU, "--use-fused-swiglu --swiglu", "use-fused-swiglu", "megatron_lm", ()),
    "fused rotation": (NPU, "--use-fused-rotary-pos-emb --position-embedding-type rope", "use-fused-rotary-pos-emb",
                       "megatron_lm", ()),
    "flash attention to Ascend": (LM, "--attention-backend flash", "attention-backend", "mindspeed",
                                  ("use-flash-attn",)),
    "flash attention from Ascend": (NPU, "--use-flash-attn", "use-flash-attn", "megatron_lm", ("attention-backend",)),
    "swapped attention": (NPU, "--swap-attention", "swap-attention", "megatron_lm",
                          ("fine-grained-activation-offloading",)),
    "dispatcher": (LM, MOE + " --moe-token-dispatcher-type alltoall", "moe-token-dispatcher-type", "mindspeed",
                   ("moe-token-dispatcher-type",)),
}  # fmt: skip


@pytest.mark.parametrize("case", FIELDS.values(), ids=FIELDS.keys())
def test_what_a_field_says_is_translated(case: tuple[Any, ...]) -> None:
    source, more, flag, target, target_flags = case
    account = next(each for each in port(source, more, target).accounts if each.flag == flag)
    assert account.status == TRANSLATED
    assert set(target_flags) <= set(account.target_flags)


REFUSED: Mapping[str, tuple[tuple[str, str], str, str, str]] = {
    "DeepEP on Ascend": (LM, MOE + " --moe-token-dispatcher-type flex --moe-enable-deepep", "moe-enable-deepep",
                         "mindspeed"),
    "swapped attention on GPUs before 0.16": (NPU, "--swap-attention", "swap-attention", "megatron_lm@0.12.1"),
    "accumulation in the product on MindSpore": (SWIFT, "--gradient_accumulation_fusion true",
                                                 "gradient_accumulation_fusion", "mindformers"),
    "Transformer Engine's layers on MindSpore": (LM, "--transformer-impl transformer_engine", "transformer-impl",
                                                 "mindformers"),
    "fused attention of cuDNN": (LM, "--attention-backend fused", "attention-backend", "mindspeed"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_the_mapping_refuses_is_reported_once_with_reason_and_substitute(case: tuple[Any, ...]) -> None:
    source, more, flag, target = case
    found = port(source, more, target.partition("@")[0], version=target.partition("@")[2] or None)
    reported = left_out(found, flag)
    assert reported.reported
    assert reported not in found.missing
    assert reported.why
    assert reported.works or reported.instead.startswith("none: ")
    rules = ("MAP-UNSUPPORTED", "PORT-SUBSTITUTE")
    assert [each for each in found.findings if each.rule in rules and set(each.fields) & set(reported.fields)]


@pytest.mark.parametrize("argument", ["HIGH", "*x", "2001-99-99", "'"])
def test_a_users_override_is_no_substitute_where_it_does_not_fit(argument: str) -> None:
    """One in capitals is no placeholder, and one that is not YAML is no mistake of the program."""
    found = ported(read_argv([*NPU[1].split(), "--enable-thinking", argument], backend="mindspeed"), "megatron")
    reported = left_out(found, "enable-thinking")
    assert reported.works == ()
    assert reported.instead.startswith("none: ")


def test_sequence_wise_balancing_is_expressed_by_the_field() -> None:
    more = MOE + " --moe-router-load-balancing-type none --seq-aux"
    for target in ("megatron", "megatron_lm", "mindformers"):
        found = port(NPU, more, target)
        assert found.job.moe.load_balancing_type == "seq_aux_loss", target
        account = next(each for each in found.accounts if each.flag == "seq-aux")
        assert account.status == TRANSLATED
        assert account.fields == ("moe.load_balancing_type",)
        messages = next(each for each in found.findings if each.rule == "PORT-NEAREST")
        assert messages.severity == "warning"  # MindSpeed-LLM weighs it otherwise
    assert "moe-router-load-balancing-type" in {
        arg for each in port(NPU, more, "megatron_lm").accounts if each.flag == "seq-aux" for arg in each.target_flags
    }


def test_routing_by_softmax_without_a_loss_has_a_field() -> None:
    for target in ("megatron_lm", "megatron"):
        found = port(NPU, MOE + " --moe-router-load-balancing-type softmax_topk", target)
        assert found.job.moe.load_balancing_type == "none", target
        assert [each.severity for each in found.findings if each.rule == "PORT-NEAREST"] == ["change"], target


@pytest.mark.parametrize("name", ["group_limited_greedy", "pai_megatron_aux_loss", "sparsemixer_topk"])
def test_routing_of_its_own_is_left_out_with_the_nearest(name: str) -> None:
    """Megatron-SWIFT's parser would take the word, and megatron-core refuse it."""
    reported = left_out(
        port(NPU, MOE + f" --moe-router-load-balancing-type {name}", "megatron"), "moe-router-load-balancing-type"
    )
    assert reported.effect == MODEL
    assert (reported.works or reported.has)[0].startswith("moe.load_balancing_type=")


def test_it_stays_as_it_is_on_its_own_backend() -> None:
    found = port(NPU, MOE + " --moe-router-load-balancing-type none --seq-aux", "mindspeed", version="2.1.0")
    assert found.job.backend.args["seq-aux"] is True
    assert found.job.moe.load_balancing_type == "none"


def test_backends_of_one_argument_history_keep_their_arguments() -> None:
    """Megatron-LM's arguments exist in MindSpeed-LLM, too, and the other way round."""
    found = port(LM, "--no-scatter-gather-tensors-in-pipeline --retro-num-neighbors 3", "mindspeed")
    carried = {each.flag for each in found.accounts if each.status == PASSED_THROUGH}
    assert carried >= {"no-scatter-gather-tensors-in-pipeline", "retro-num-neighbors"}
    assert found.job.backend.args["no-scatter-gather-tensors-in-pipeline"] is True
    assert found.job.backend.args["retro-num-neighbors"] == 3


FALSE_FRIENDS = {
    "weights of the loss, or fp16's scale": (SWIFT, "--loss_scale last_round", "loss_scale", "megatron_lm"),
    "length of answers, or of samples": (NPU, "--max-length 512", "max-length", "megatron"),
    "a module of another stack": (NPU, "--spec mindspeed_llm.x layer_spec", "spec", "megatron_lm"),
    "a directory of Hugging Face weights, or of a checkpoint": (
        NPU,
        "--enable-hf2mg-convert --model-type-hf qwen3-next --load /models/hf",
        "load",
        "megatron_lm",
    ),
}


@pytest.mark.parametrize("case", FALSE_FRIENDS.values(), ids=FALSE_FRIENDS.keys())
def test_the_same_name_with_another_meaning_is_not_carried_over(case: tuple[Any, ...]) -> None:
    source, more, flag, target = case
    found = port(source, more, target)
    assert left_out(found, flag)
    assert flag.replace("-", "_") not in {name.replace("-", "_") for name in found.job.backend.args}


HARMLESS = {
    "its own default": (NPU, "--cuda-graph-warmup-steps 3", "cuda-graph-warmup-steps", "megatron"),
    "off": (SWIFT, "--dynamic_sample false", "dynamic_sample", "mindspeed"),
    "no weights of the loss": (SWIFT, "--loss_scale default", "loss_scale", "mindspeed"),
    "what others do anyway": (NPU, "--num-zero-experts 0", "num-zero-experts", "megatron"),
    "of rollouts, in fine-tuning": (SWIFT, "--epsilon 0.3", "epsilon", "mindspeed"),
    "of images, in a language model": (SWIFT, "--freeze_vit false", "freeze_vit", "mindspeed"),
    "of fp8, in bf16": (LM, "--bf16 --fp8-interval 2", "fp8-interval", "megatron"),
    "for another program": (LM, "--img-h 32", "img-h", "megatron"),
    "the device does it anyway": (LM, "--disable-bf16-reduced-precision-matmul",
                                  "disable-bf16-reduced-precision-matmul", "mindformers"),
}  # fmt: skip


@pytest.mark.parametrize("case", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_value_that_changes_nothing_is_reported_without_a_warning(case: tuple[Any, ...]) -> None:
    source, more, flag, target = case
    found = port(source, more, target)
    reported = left_out(found, flag)
    assert reported.effect == NOTHING
    assert reported.why
    assert not [each for each in found.findings if flag in each.flags and each.rule.startswith("PORT-")]


def test_another_model_without_a_substitute_is_an_error_until_it_is_accepted() -> None:
    def severities(**options: Any) -> list[str]:
        found = port(NPU, "--attn-logit-softcapping 30 --scale-depth 1.4", "megatron_lm", **options)
        return [each.severity for each in found.findings if each.rule == "PORT-LEFT-OUT"]

    assert severities() == ["error", "error"]
    assert severities(accepted=["attn-logit-softcapping"]) == ["error", "warning"]
    assert severities(accepted=["all"]) == ["warning", "warning"]


def test_arguments_of_one_kind_are_reported_together() -> None:
    found = port(NPU, "--enable-mla-scale-q-lora --enable-mla-scale-kv-lora", "megatron_lm")
    messages = [each for each in found.findings if each.rule == "PORT-LEFT-OUT"]
    assert [each.flags for each in messages] == [("enable-mla-scale-q-lora", "enable-mla-scale-kv-lora")]


def test_the_shape_of_a_model_is_read_from_its_files_or_must_be_named() -> None:
    named = left_out(port(NPU, "", "megatron"), "hidden-size")
    assert (named.effect, named.works[0]) == (MODEL, "model.path=DIR")
    script = read_file(DATA / "mindspeed_qwen3.sh", ImportOptions())[0]
    assert "hidden-size" in {each.flag for each in ported(script, "megatron").accounts}


UNKNOWN = {
    "a known model": ("", {"works": ["model.vocab_size=151936"], "asks": []}),
    "another model": ("--num-layers 27", {"works": [], "asks": ["model.vocab_size=N"]}),
}


@pytest.mark.parametrize(("more", "offered"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_script_without_its_vocabulary_is_offered_that_of_a_known_model(
    tmp_path: Path, more: str, offered: Mapping[str, Any]
) -> None:
    script = tmp_path / "train.sh"
    text = (DATA / "mindspeed_qwen3.sh").read_text(encoding="utf-8")
    script.write_text(text.replace("--padded-vocab-size 151936 ", f"{more} "), encoding="utf-8")
    found = ported(read_file(str(script), ImportOptions(partial=True))[0], "megatron")
    (error,) = [each for each in found.findings if each.severity == "error"]
    assert error.fields == ("model.vocab_size",)
    assert {"works": [str(fix) for fix in error.fixes], "asks": list(error.asks)} == offered


def test_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "x.sh"
    script.write_text(f"{NPU[1]} --reuse-fp32-param --attn-logit-softcapping 30 --use-flash-attn\n")
    assert main([str(script), "--backend", "mindspeed", "--to", "megatron_lm", "--json"]) == 1
    tree = json.loads(capsys.readouterr().out)
    args = {each["flag"]: each for each in tree["args"]}
    assert args["reuse-fp32-param"]["works"] == ["optimizer.precision_aware=true"]
    assert args["reuse-fp32-param"]["changes_training"] is False
    assert args["attn-logit-softcapping"]["changes_training"] is True
    assert args["attn-logit-softcapping"]["instead"].startswith("none: ")
    assert args["use-flash-attn"]["fate"] == TRANSLATED
    assert {each["fate"] for each in tree["args"]} <= {TRANSLATED, PASSED_THROUGH, DROPPED}
    assert tree["counts"][DROPPED] == sum(each["fate"] == DROPPED for each in tree["args"])
    assert tree["counts"]["training"] == sum(each.get("changes_training", False) for each in tree["args"])


def test_the_text_reports_everything_and_accepting_lets_it_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "x.sh"
    script.write_text(
        f"{LM[1]} --bf16 --data-path d --tokenizer-type NullTokenizer --vocab-size 128 --use-te-activation-func\n"
    )
    argv = [str(script), "--backend", "megatron_lm", "--to", "mindspeed"]
    main(argv)
    text = capsys.readouterr().out
    assert "error PORT-LEFT-OUT" in text
    assert "use-te-activation-func: changes the activation function" in text
    assert "1 dropped (1 of them changes training)" in text
    main([*argv, "--accept", "use-te-activation-func"])
    assert "error PORT-LEFT-OUT" not in capsys.readouterr().out


def test_accepting_needs_a_port_and_an_argument_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "x.sh"
    script.write_text(f"{LM[1]} --use-te-activation-func\n")
    assert dispatch(["import", str(script), "--accept", "all"]) == 2
    argv = [
        "import",
        str(script),
        "--backend",
        "megatron_lm",
        "--to",
        "mindspeed",
        "--accept",
        "use-te-activation-fun",
    ]
    assert dispatch(argv) == 2
    assert "use-te-activation-fun" in capsys.readouterr().err
    main([str(script), "--backend", "megatron_lm", "--to", "mindspeed", "--accept=--use_te_activation_func"])
    assert "(accepted)" in capsys.readouterr().out


# -- every argument of every catalogue


@pytest.mark.slow
@pytest.mark.sample(keep=3)
@pytest.mark.parametrize(("source", "target"), list(permutations(backend_names(), 2)))
def test_every_argument_is_accounted_for_exactly_once(source: str, target: str) -> None:
    """A hundred arguments at a time, until every one of the newest catalogue has gone."""
    from launcher.importing.assemble import assemble

    backend, chance = get_backend(source), random.Random(7)
    version = backend.default_version
    arguments = [each for each in backend.catalogue(version).arguments if each.action not in ("help", "version")]
    chance.shuffle(arguments)
    for start in range(0, len(arguments), 100):
        values = {each.name: sample(each, chance) for each in arguments[start : start + 100]}
        values = {
            name: value for name, value in values.items() if backend.catalogue(version).check(name, value) is None
        }
        imported = assemble(values, backend, version)
        found = ported(imported, target, fixes=False)
        assert [each.flag for each in found.accounts] == [each.flag for each in imported.mapped_args]
        assert_complete(found)


def assert_complete(found: Ported) -> None:
    there = set(get_backend(found.job.backend.name or "").catalogue(found.job.backend.version or "").names())
    left = [each for each in found.findings if each.rule == "PORT-LEFT-OUT"]
    messages = {flag for each in left for flag in each.flags}
    offered = {flag: [" ".join(fix.overrides) for fix in each.fixes] for each in left for flag in each.flags}
    named = {path for each in found.findings for path in each.fields}
    for account in found.accounts:
        if account.status == DROPPED:
            reported = account.missing
            assert reported is not None
            assert reported.effect in EFFECTS
            assert reported.does, account
            assert reported.why, account
            assert reported.works or reported.without, account
            is_told = reported.reported or account.flag in messages or named & {*account.fields, *reported.fields}
            assert is_told or not reported.changes_training or reported.flag in messages, account
            assert {*reported.works} <= {*offered.get(reported.flag, reported.works)}, account
        elif account.status == PASSED_THROUGH:
            assert account.target_flags[0] in there, account
            assert account.target_flags[0] in found.job.backend.args, account
        else:
            assert account.fields, account
            assert all(value_at(found.job, path) is not Ellipsis for path in account.fields)


@pytest.mark.sample(keep=10)
@pytest.mark.parametrize("target", backend_names())
@pytest.mark.parametrize("file", sorted(each.name for each in DATA.iterdir() if each.suffix in (".sh", ".yaml")))
def test_files_are_accounted_for(file: str, target: str) -> None:
    imported = read_file(DATA / file, ImportOptions(partial=True))[0]
    found = ported(imported, target)
    assert [each.flag for each in found.accounts] == [each.flag for each in imported.mapped_args]
    if imported.backend != target:
        assert_complete(found)


SPECIAL = "model.model_config.use_pad_tokens"


def test_the_report_and_the_findings_offer_the_same(tmp_path: Path) -> None:
    """MindFormers' defaults (packed samples, weights from nowhere) decide what can replace its arguments."""
    file = tmp_path / "run.yaml"
    text = (DATA / "mindformers_qwen3.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("  model_config:\n", "  model_config:\n    use_pad_tokens: False\n"), encoding="utf-8")
    found = ported(read_file(file, ImportOptions(partial=True))[0], "megatron")
    (finding,) = (each for each in found.findings if SPECIAL in each.flags)
    assert [" ".join(fix.overrides) for fix in finding.fixes] == [*left_out(found, SPECIAL).works]
    assert "tokenizer.path=DIR" in left_out(found, SPECIAL).works


def test_a_port_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(job: Job, *args: Any) -> PortResult:
        calls.append(job.backend.name)
        return port_job(job, *args)

    imported = read_argv([*NPU[1].split(), "--use-ascend-mc2", "--reuse-fp32-param"], backend=NPU[0])
    monkeypatch.setattr("launcher.port.port.port_job", counted)
    assert not ported(imported, "megatron").ok
    # Others are tried, to offer those that train the family.
    assert calls.count("megatron") == 1


# Megatron-SWIFT's version, model: the weight of the balancing loss that a script without one trains with.
CONFIG_LOSSES = {
    "up to 3.7 config.json says it": ("3.6.4", "Qwen/Qwen3-30B-A3B", 0.001),
    "by a folder's name": ("3.5.3", "/data/Qwen3-235B-A22B-Instruct-2507/", 0.001),
    "Qwen2": ("3.5.3", "Qwen/Qwen2-57B-A14B", 0.001),
    "later it is 0": ("3.12.6", "Qwen/Qwen3-30B-A3B", 0.0),
    "dense": ("3.6.4", "Qwen/Qwen3-8B", 0.0),
    "its config.json has none": ("3.6.4", "deepseek-ai/DeepSeek-V3", 0.0),
    "its config.json says 0": ("3.6.4", "Qwen/Qwen3-Coder-30B-A3B-Instruct", 0.0),
}


@pytest.mark.parametrize("case", CONFIG_LOSSES.values(), ids=CONFIG_LOSSES.keys())
def test_the_balancing_loss_of_config_json_is_carried_over(case: tuple[str, str, float]) -> None:
    version, model, wanted = case
    argv = ["megatron", "sft", "--model", model, "--dataset", "d.jsonl", "--lr", "1e-5"]
    imported = read_argv(argv, backend="megatron", version=version)
    assert ported(imported, "mindspeed", fixes=False).job.moe.aux_loss_coeff == wanted
    reported = read_argv([*argv, "--moe_aux_loss_coeff", "0.02"], backend="megatron", version=version)
    assert ported(reported, "mindspeed", fixes=False).job.moe.aux_loss_coeff == 0.02


def test_an_argument_that_nobody_knows_is_dropped_only_if_accepted(tmp_path: Path) -> None:
    path = tmp_path / "x.sh"
    path.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --use-z-loss\n")
    (imported,) = read_file(path, ImportOptions(partial=True))
    for accept, severity in (((), "error"), (("use-z-loss",), "warning")):
        found = ported(imported, "mindspeed", accepted=accept).findings
        dropped = [each for each in found if "use-z-loss" in each.message]
        assert [(each.rule, each.severity) for each in dropped] == [("PORT-LEFT-OUT", severity)]
        assert "may change the model or its loss" in dropped[0].message


# --num-query-groups is read beside --group-query-attention only (Megatron-LM core_v0.16.1 arguments.py:1348).
@pytest.mark.parametrize("target", ["megatron", "mindformers"])
def test_an_argument_that_the_source_does_not_read_is_no_decision(target: str) -> None:
    script = "pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-query-groups 4"
    found = ported(read_argv(script.split(), backend="megatron_lm"), target).findings
    assert [each.message for each in found if "num-query-groups" in each.message] == []

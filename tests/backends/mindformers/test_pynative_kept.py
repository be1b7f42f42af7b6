"""LoRA and recomputation of a pynative `TrainConfig` are kept; what the job or the static graph lacks is named."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.mindformers.yaml_file import flatten
from launcher.api import check
from launcher.catalogue.catalogue import load
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences
from launcher.job import Value, fields, value_at

FILE = Path(__file__).parent / "pynative.yaml"
CATALOGUES = Path("backends/mindformers/catalogue")
VERSIONS = ("1.9.0", "2.0.0", "2.1.0")
SECTIONS = ("recompute", "recompute_comm", "lora_config")
DENSE: Mapping[str, Any] = {
    "model_type": "qwen3",
    "architectures": "Qwen3ForCausalLM",
    "vocab_size": 151936,
    "seq_length": 4096,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "compute_dtype": "bfloat16",
}
LATENT = ("linear_q_down_proj", "linear_kv_down_proj", "linear_proj", "linear_q_up_proj", "linear_kv_up_proj")
PET, SELECT = "model.model_config.pet_config", "recompute_config.select_recompute"


def tree(changes: Mapping[str, Any], *, dense: bool = False, version: str = "2.1.0") -> dict[str, Any]:
    """Return the example file with other keys; null removes a section."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    del found["recompute"]
    if version == "1.9.0":
        later = ("data_parallel_shard", "data_parallel_shard_strategy", "expert_parallel", "enable_mc2")
        for name in (*later, "pipeline_parallel_layers_per_stage"):
            del found["parallelism"][name]
    if dense:
        found["model"] = dict(DENSE)
        found["parallelism"].pop("expert_parallel", None)
    for section, keys in changes.items():
        found[section] = {**found.get(section, {}), **keys}
    return found


def imported(folder: Path, content: Mapping[str, Any], version: str = "2.1.0") -> Imported:
    """Return the job of a file."""
    file = folder / "pynative.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    (found,) = read_file(file, ImportOptions(version=version))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Sections of a file, and what becomes of them.

    Attributes:
        job: every field of lora and recompute that is set.
        args: native arguments without a field.
        notes: beginnings of what is said.
    """

    job: Mapping[str, Value]
    args: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dense: bool = False
    version: str = "2.1.0"
    sections: Mapping[str, Mapping[str, Any]]


def full(**counts: Value) -> dict[str, Value]:
    """Return the fields of full recomputation: every layer, or counts."""
    method = {"method": "block"} if counts else {"method": "uniform", "num_layers": 1}
    return {f"recompute.{name}": value for name, value in {"granularity": "full", **method, **counts}.items()}


def lora(*targets: str, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0) -> dict[str, Value]:
    """Return the fields of LoRA."""
    return {"lora.rank": rank, "lora.alpha": alpha, "lora.dropout": dropout, "lora.target_modules": targets}


def recompute(mode: str, **keys: Any) -> dict[str, dict[str, Any]]:
    """Return the section."""
    return {"recompute": {"mode": mode, **keys}}


ALL = ["0-15"]
ADAPTS = "lora_config.target_modules adapts"
CASES: dict[str, Case] = {
    "no recomputation": Case(sections=recompute("None", full_recompute_layer=ALL), job={}),
    "every layer": Case(sections=recompute("full", full_recompute_layer=ALL), job=full()),
    "every layer, one by one": Case(sections=recompute("full", full_recompute_layer=list(range(16))), job=full()),
    "every layer, and MTP's": Case(sections=recompute("full", full_recompute_layer=["0-16"]), job=full()),
    "the first layers of each chunk": Case(
        sections=recompute("full", full_recompute_layer=["0-1", "4", "8-9", "12"]),
        job=full(num_layers=2, layers_per_chunk=(2, 1, 2, 1)),
    ),
    "as many of each chunk": Case(
        sections=recompute("full", full_recompute_layer=["0-1", "4-5", "8-9", "12-13"]), job=full(num_layers=2)
    ),
    "other layers than the first": Case(
        sections=recompute("full", full_recompute_layer=["2-4"]),
        job=full(num_layers=2, layers_per_chunk=(2, 1, 0, 0)),
        notes=(
            "recompute.full_recompute_layer names layers 2-4; the static graph counts from the first layer of each",
        ),
    ),
    "chunks of different sizes": Case(
        sections={
            **recompute("full", full_recompute_layer=["0-2", "11"]),
            "parallelism": {"pipeline_parallel_layers_per_stage": ["0-2,8-10", "3-7,11-15"]},
        },
        job=full(num_layers=3, layers_per_chunk=(3, 0, 0, 1)),
    ),
    "one stage": Case(
        sections={
            **recompute("full", full_recompute_layer=["0-5"]),
            "parallelism": {
                "pipeline_parallel": 1,
                "pipeline_parallel_interleave_num": 1,
                "pipeline_parallel_schedule": "1f1b",
                "data_parallel_shard": 4,
            },
        },
        job=full(num_layers=6),
    ),
    "attention": Case(
        sections=recompute("select", select_module={"self_attention.core_attention": ALL}),
        job={"recompute.granularity": "selective", "recompute.modules": ("core_attn",)},
    ),
    "an expression for both norms": Case(
        sections=recompute("select", select_module={".*_layernorm": ALL, "self_attention.q_layernorm": ["0"]}),
        job={},
        args={
            SELECT: [
                r"self_attention\.q_layernorm",
                r"self_attention\.k_layernorm",
                "input_layernorm",
                "pre_mlp_layernorm",
            ]
        },
    ),
    "both norms": Case(
        sections=recompute("select", select_module={"(input|pre_mlp)_layernorm": ALL}),
        job={"recompute.granularity": "selective", "recompute.modules": ("layernorm",)},
    ),
    "norms of some layers": Case(
        sections=recompute("select", select_module={"(input|pre_mlp)_layernorm": ["0", "4", "8", "12"]}),
        job={
            "recompute.granularity": "selective",
            "recompute.modules": ("layernorm",),
            "recompute.selective_layers_per_chunk": (1, 1, 1, 1),
        },
    ),
    "full for some, modules for others": Case(
        sections=recompute(
            "select", full_recompute_layer=["0", "4"], select_module={"self_attention.core_attention": ["1", "5"]}
        ),
        job={
            **full(num_layers=1, layers_per_chunk=(1, 1, 0, 0)),
            "recompute.modules": ("core_attn",),
            "recompute.selective_layers_per_chunk": (1, 1, 0, 0),
        },
    ),
    "up-projections of latent attention": Case(
        sections=recompute("select", select_module={"self_attention.linear_(qb|kvb)": ALL}),
        job={"recompute.granularity": "selective", "recompute.modules": ("mla_up_proj",)},
    ),
    "a whole feed-forward": Case(
        sections=recompute("select", select_module={"mlp.*": ALL}),
        job={"recompute.granularity": "selective", "recompute.modules": ("mlp",)},
        dense=True,
    ),
    "the activation function": Case(
        sections=recompute("select", select_module={r"mlp\.(mul|activation_func)": ALL}),
        job={"recompute.activation": True},
        dense=True,
    ),
    "feed-forward of dense and expert layers": Case(
        sections=recompute("select", select_module={"mlp": ALL}), job={}, args={SELECT: ["mlp"]}
    ),
    "a module that the static graph lacks": Case(
        sections=recompute("select", select_module={"self_attention.apply_rotary_emb": ALL}),
        job={},
        notes=("recompute.select_module has self_attention.apply_rotary_emb, which matches no part of its",),
    ),
    "modules that are not recomputed": Case(
        sections=recompute(
            "full", full_recompute_layer=ALL, exclude_op={"mlp.mul": ALL, "self_attention.core_attention": ALL}
        ),
        job=full(),
        args={"recompute_config.select_recompute_exclude": [r"mlp\.mul"]},
        notes=("recompute.exclude_op has self_attention.core_attention, which matches no operation that the static",),
    ),
    "operators that are not recomputed": Case(
        sections=recompute("full", full_recompute_layer=ALL, exclude_op=["matmul"]),
        job=full(),
        notes=("recompute.exclude_op names operators of any module, which the static graph cannot exclude",),
        version="2.0.0",
    ),
    "communication": Case(
        sections={"recompute_comm": {"enable": True, "select_module": {"mlp.linear_fc1.input.allgather": ALL}}},
        job={},
        notes=("recompute_comm.select_module repeats the communication of single modules; the static graph has one",),
    ),
    "no communication": Case(sections={"recompute_comm": {"enable": False, "select_module": None}}, job={}),
    "1.9's switch": Case(
        sections={"recompute": {"full_recompute": True}},
        job=full(),
        notes=("recompute.full_recompute is read by nothing in the pynative trainer of 1.9",),
        version="1.9.0",
    ),
    "1.9's other switch": Case(
        sections={"recompute": {"select_recompute": True}},
        job={"recompute.activation": True},
        notes=("recompute.select_recompute is read by nothing in the pynative trainer of 1.9",),
        version="1.9.0",
    ),
    "LoRA with its defaults": Case(
        sections={"lora_config": {"target_modules": "linear_qkv"}}, job=lora("linear_qkv"), dense=True
    ),
    "LoRA with numbers": Case(
        sections={
            "lora_config": {"target_modules": "linear_fc", "lora_rank": 4, "lora_alpha": 64, "lora_dropout": 0.1}
        },
        job=lora("linear_fc1", "linear_fc2", rank=4, alpha=64.0, dropout=0.1),
        dense=True,
    ),
    "LoRA of 2.0": Case(
        sections={"lora_config": {"target_modules": r"decoder.*linear_(qkv|proj)$"}},
        job=lora("linear_qkv", "linear_proj"),
        dense=True,
        version="2.0.0",
    ),
    "LoRA without some modules": Case(
        sections={"lora_config": {"target_modules": "decoder", "exclude_layers": r"mlp$|linear_proj"}},
        job=lora("linear_qkv"),
        dense=True,
    ),
    "LoRA in some layers": Case(
        sections={"lora_config": {"target_modules": r"layers\.[0-3]\..*linear_qkv"}},
        job=lora("linear_qkv"),
        notes=(f"{ADAPTS} 4 of 16 layers linear_qkv; the static graph finds layers by name alone: all are adapted",),
        dense=True,
    ),
    "LoRA of everything": Case(
        sections={"lora_config": {"target_modules": ".*"}},
        job=lora("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"),
        notes=(f"{ADAPTS} output_layer, which is outside of the layers",),
        dense=True,
    ),
    "LoRA of latent attention": Case(sections={"lora_config": {"target_modules": "self_attention"}}, job=lora(*LATENT)),
    "LoRA of everything with experts": Case(
        sections={"lora_config": {"target_modules": ".*"}},
        job=lora(*LATENT),
        notes=(
            f"{ADAPTS} linear_fc1 outside of the routed experts; lora.target_modules=linear_fc1 means these, too",
            f"{ADAPTS} linear_fc2 outside of the routed experts",
            f"{ADAPTS} the routed experts, one grouped matrix",
            f"{ADAPTS} eh_proj of MTP",
            f"{ADAPTS} output_layer",
        ),
    ),
    "LoRA of what the job has no word for": Case(
        sections={"lora_config": {"target_modules": "shared_experts"}},
        job={},
        args={
            PET: {
                "pet_type": "lora",
                "lora_rank": 8,
                "lora_alpha": 16,
                "lora_dropout": 0.0,
                "lora_a_init": "normal",
                "lora_b_init": "zeros",
                "target_modules": ".*linear_fc1|.*linear_fc2",
                "freeze_include": ["*"],
                "freeze_exclude": ["*lora*"],
            }
        },
        notes=(f"{ADAPTS} 16 of 17 layers linear_fc1", f"{ADAPTS} 16 of 17 layers linear_fc2"),
    ),
    "LoRA with other initial values": Case(
        sections={"lora_config": {"target_modules": "linear_qkv", "lora_a_std": 0.02, "lora_b_std": 0.001}},
        job=lora("linear_qkv"),
        notes=(
            "lora_config.lora_a_std 0.02 has no counterpart: adapters of the static graph start with a deviation of 0",
            "lora_config.lora_b_std 0.001 has no counterpart",
        ),
        dense=True,
    ),
    "LoRA that matches nothing": Case(
        sections={"lora_config": {"target_modules": "q_proj"}},
        job={},
        notes=("lora_config.target_modules matches no linear layer, which MindFormers refuses",),
        dense=True,
    ),
}
OURS = tuple(path for path in fields() if path.startswith(("lora.", "recompute.")))


def plain(value: Any) -> Any:
    """Return a value with lists for tuples."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("name", CASES)
def test_it_is_kept_or_said(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = imported(tmp_path, tree(case.sections, dense=case.dense, version=case.version), case.version)
    assert {path: value for path in OURS if (value := value_at(found.job, path)) not in (None, ())} == case.job
    assert {flag: plain(value) for flag, value in found.job.backend.args.items() if flag.startswith(_KEPT)} == case.args
    said = [note.message for note in found.warnings if note.message.startswith(SECTIONS)]
    assert len(said) == len(case.notes)
    assert all(any(each.startswith(start) for each in said) for start in case.notes)
    assert differences(found) == []
    assert [finding.message for finding in check(found.job) if finding.severity == "error"] == []


_KEPT = (PET, "recompute_config.")


def test_every_key_of_the_sections_has_a_case() -> None:
    written = {
        (case.version, f"{section}.{key}")
        for case in CASES.values()
        for section, keys in case.sections.items()
        for key in keys
    }
    known = {
        each.name
        for version in VERSIONS
        for each in load(CATALOGUES / f"{version}-pynative.json").arguments
        if each.name.startswith(tuple(f"{section}." for section in SECTIONS))
    }
    assert known == {key for _, key in written if key.startswith(SECTIONS)}


REFUSED: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "no layers": (recompute("full"), "recompute.mode full needs full_recompute_layer, and MindFormers refuses it"),
    "no modules": (recompute("select"), "recompute.mode select needs select_module"),
    "a layer that is none": (
        recompute("full", full_recompute_layer=["0-17"]),
        "recompute.full_recompute_layer has '0-17', and the model has layers 0 to 16",
    ),
    "a range backwards": (
        recompute("full", full_recompute_layer=["5-2"]),
        "recompute.full_recompute_layer has '5-2': a",
    ),
    "a range that overlaps": (
        recompute("full", full_recompute_layer=["0-3", "3-4"]),
        "recompute.full_recompute_layer has '3-4' after 3: layers must be in ascending order",
    ),
    "a list of modules": (
        recompute("select", select_module=["mlp"]),
        "recompute.select_module must be a mapping of modules to lists of layers",
    ),
    "layers of a module": (
        recompute("select", select_module={"mlp": ["a"]}),
        "recompute.select_module has 'a': a layer or a range of layers like '0-3' is needed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mindformers_refuses_when_it_builds_the_model_is_refused(name: str, tmp_path: Path) -> None:
    sections, message = REFUSED[name]
    with pytest.raises(ImportRefused) as refused:
        imported(tmp_path, tree(sections))
    (note,) = refused.value.notes
    assert note.message.startswith(message)


# name: (the section checkpoint, arguments of the static graph, what is said)
LOADED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "base weights": (
        {"base_load_path": "/base", "save_trainable_only": True},
        {
            "load_checkpoint": "/base",
            "resume_training": False,
            "callbacks.CheckpointMonitor.save_trainable_params": True,
        },
        "",
    ),
    "base weights and adapters": (
        {"base_load_path": "/base", "load_path": "/adapters"},
        {"load_checkpoint": "/adapters", "resume_training": True},
        "checkpoint.base_load_path is loaded before adapters, and the static graph loads one checkpoint",
    ),
}


@pytest.mark.parametrize("name", LOADED)
def test_the_base_of_adapters_is_loaded(name: str, tmp_path: Path) -> None:
    keys, arguments, message = LOADED[name]
    content = tree({"checkpoint": keys, "lora_config": {"target_modules": "linear_qkv"}}, dense=True)
    static = flatten(content)
    assert {flag: static[flag] for flag in arguments} == arguments
    said = [note.message for note in imported(tmp_path, content).warnings if "base_load_path" in note.message]
    assert [each.startswith(message) for each in said] == ([True] if message else [])

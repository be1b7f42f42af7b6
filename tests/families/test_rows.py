"""Every family is one file, and every backend says what it calls it and since when it trains it."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from launcher.catalogue.versions import in_range
from launcher.compose import compose
from launcher.families.config_json import classes
from launcher.families.record import Family
from launcher.families.registry import FAMILIES, weights
from launcher.job.model_types import MODEL_TYPES
from launcher.job.shipped import shipped
from launcher.mapping.backend import BUILT_IN, get_backend
from launcher.pipeline import judge
from tests.conftest import Launch
from tests.convert.zoo import MODELS, family_of

ROOT = Path(__file__).resolve().parents[2]


def _names(path: Path, family: str) -> bool:
    return f"model_type: {family}\n" in path.read_text(encoding="utf-8")


PRESETS = {
    family: next(
        (path.stem for path in sorted(shipped("conf").joinpath("model").glob("*.yaml")) if _names(path, family)), None
    )
    for family in FAMILIES
}


@pytest.mark.parametrize("names", [classes, lambda family: {family.model_type, *family.aliases}], ids=["class", "type"])
def test_no_two_families_have_a_name_in_common(names: Callable[[Family], Iterable[str]]) -> None:
    """A config.json is read with the family that it names, without a look at the others."""
    found = [name for family in FAMILIES.values() for name in set(names(family))]
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("backend", BUILT_IN)
def test_every_backend_has_a_row_of_every_family(backend: str) -> None:
    rows = get_backend(backend).families()
    missing, unknown = set(FAMILIES) - set(rows), set(rows) - set(FAMILIES)
    assert not missing, f"backends/{backend}/families.py has no row of {', '.join(sorted(missing))}"
    assert not unknown, f"backends/{backend}/families.py: no file launcher/families/architectures/{unknown}.py"


@pytest.mark.parametrize("backend", BUILT_IN)
def test_a_family_that_a_version_does_not_train_has_a_reason(backend: str) -> None:
    for row in get_backend(backend).families().values():
        everywhere = all(row.name(version) is not None for version in get_backend(backend).versions)
        assert row.source
        assert everywhere or row.cannot, f"{backend}: {row.model_type}"


def test_every_family_has_a_preset() -> None:
    missing = [family for family, preset in PRESETS.items() if preset is None]
    assert not missing, f"conf/model has no preset of {', '.join(missing)}"


# What the row does not say: a version trains the family, and the preset needs one more override.
NEEDS = {
    ("mindspeed", "qwen2_moe"): ["kernels.gradient_accumulation_fusion=false"],
    ("megatron_lm", "deepseek_v32"): ["kernels.rope_fusion=false", "model.num_nextn_predict_layers=0"],
    ("megatron_lm", "glm_moe_dsa"): ["model.num_nextn_predict_layers=0"],
    ("megatron_lm", "llama4_text"): ["kernels.rope_fusion=false"],
    **{(name, "ernie4_5"): ["kernels.rope_fusion=false"] for name in ("megatron_lm", "mindspeed")},
    ("megatron_lm", "glm4_moe_lite"): ["+backend.args.kv-channels=256"],
    ("mindspeed", "glm4_moe_lite"): ["+backend.args.kv-channels=256"],
    ("mindformers", "deepseek_v3"): ["model.n_group=null", "model.topk_group=null"],
    ("mindspeed", "gemma2"): ["model.attn_logit_softcapping=null", "parallel.cp_mask_type=general"],
    ("megatron", "internlm3"): ["model.pretrained=true"],
    **{("megatron", name): ["model.pretrained=true"] for name, each in FAMILIES.items() if each.outer is not None},
    ("megatron", "deepseek_v3"): ["model.num_nextn_predict_layers=0"],
}
# A version builds the family, but not as published: its config.json has values that the version cannot express.
# MindSpeed-LLM 26.0 has sparse attention with YaRN only, which its own example of GLM-5 sets.
NOT_AS_PUBLISHED = {
    ("megatron", "gpt_oss"): ("3.12", "4.2.99"),
    ("mindspeed", "glm_moe_dsa"): ("26.0", "26.0.99"),
}


@pytest.mark.sample(keep=35)
@pytest.mark.parametrize("family", MODEL_TYPES)
@pytest.mark.parametrize("backend", BUILT_IN)
def test_a_row_says_what_check_says(backend: str, family: str) -> None:
    """A version with a name for the family takes its preset; one without refuses it, for the model."""
    row, args = get_backend(backend).families().get(family), NEEDS.get((backend, family), [])
    assert row is not None, f"backends/{backend}/families.py has no row of {family}"
    assert PRESETS[family] is not None, f"conf/model has no preset of {family}"
    for version in get_backend(backend).versions:
        if (backend, family) in NOT_AS_PUBLISHED and in_range(version, *NOT_AS_PUBLISHED[backend, family]):
            continue
        choice = [f"backend={backend}", f"backend.version='{version}'", f"model={PRESETS[family]}"]
        job = compose([*choice, "model.pretrained=false", "data.paths=[x]", "data.format=megatron", *args])
        errors = [each for each in judge(job, fixes=False).findings if each.severity == "error"]
        of_model = [each.message for each in errors if any(field.startswith("model.") for field in each.fields)]
        assert (row.name(version) is None) == bool(of_model), (version, of_model)


def test_every_family_that_converts_is_converted_by_the_tests() -> None:
    of_zoo = set(map(family_of, MODELS))
    missing, unknown = sorted(set(weights()) - of_zoo), sorted(of_zoo - set(weights()))
    assert not missing, f"tests/convert/zoo.py needs a tiny model of {', '.join(missing)}, whose family has weights"
    assert not unknown, f"tests/convert/zoo.py has models of families without weights: {', '.join(unknown)}"


# Names of families that stand outside of their own files, with the reason.
ELSEWHERE = {
    "launcher/compose/variants.py": "names of presets",
    "launcher/parity/conversations.py": "names of chat templates",
    "launcher/convert/fp8.py": "a file format that one family is published in",
    "launcher/rehearse/random_weights.py": "a family that is published otherwise than transformers stores it",
    "backends/megatron/rules/changes/config.py": "families whose experts mcore-bridge balances in a way of their own",
    "backends/megatron/rules/changes/seen.py": "rules about one family",
    "backends/megatron/mapping/model.py": "names of chat templates of another stack",
    "backends/mindformers/checkpoint/older.py": "layouts of one family's legacy class",
    "backends/megatron/rules/known_names.py": "agent templates, some of which are named as families",
    "backends/mindformers/class_defaults.py": "defaults of classes, by the backend's own names",
    "backends/mindformers/mapping/attention_variants.py": "what one class does with keys",
    "backends/mindformers/mapping/latent.py": "what one class does with keys",
    "backends/mindformers/mapping/legacy.py": "the family that a legacy class was written for",
    "backends/mindformers/mapping/model.py": "what one class does with keys",
    "backends/mindformers/mapping/moe.py": "what one class does with keys",
    "backends/mindformers/mapping/support.py": "what one class does with keys",
    "backends/mindformers/rules/keys.py": "which keys its converters of models take, by the backend's own names",
    "backends/mindspeed/mapping/data.py": "Llama's two templates; names of templates",
    "backends/mindspeed/mapping/model.py": "the family of a layer specification",
}


def test_no_other_file_lists_families() -> None:
    listing = set()
    for path in [*(ROOT / "launcher").rglob("*.py"), *(ROOT / "backends").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        own = name.startswith("launcher/families/architectures/") or name.endswith("/families.py")
        args = set(re.findall(r"\"(\w+)\"", path.read_text(encoding="utf-8")))
        if not own and args & set(MODEL_TYPES):
            listing.add(name)
    assert listing <= set(ELSEWHERE), (
        f"a family's facts belong into its file or a backend's row: {listing - set(ELSEWHERE)}"
    )
    assert set(ELSEWHERE) <= listing, f"no family is named there any more: {set(ELSEWHERE) - listing}"


@pytest.mark.parametrize("backend", ["megatron_lm", "mindspeed"])
@pytest.mark.parametrize(("length", "accepted"), [(32768, True), (32769, False)])
def test_dynamic_scaling_is_refused_beyond_the_models_own_length(backend: str, length: int, accepted: bool) -> None:
    choice = [f"backend={backend}", "model=internlm3_8b", "model.pretrained=false", f"batch.seq_length={length}"]
    findings = judge(compose([*choice, "data.paths=[x]"]), fixes=False).findings
    of_scaling = [each for each in findings if each.severity == "error" and "model.rope_scaling.type" in each.fields]
    assert bool(of_scaling) != accepted


@pytest.mark.parametrize("backend", BUILT_IN)
def test_a_family_that_is_not_trained_is_refused_in_one_paragraph(backend: str, launch: Launch) -> None:
    args = ["model=gemma_3_1b", f"backend={backend}", "model.pretrained=false", "schedule.train_iters=9"]
    result = launch("check", *args)
    paragraphs = [line for line in result.out.splitlines() if line.startswith("error MAP-UNSUPPORTED")]
    assert result.code == 1
    assert [line.split()[2] for line in paragraphs] == ["model.model_type=gemma3_text"]
    found = json.loads(launch("check", *args, "--json").out)["findings"]
    names = {field for each in found if each["rule"] == "MAP-UNSUPPORTED" for field in each["fields"]}
    assert len(names) > 2
    assert all(name in result.out for name in names)


def test_what_the_user_writes_is_refused_in_its_own_paragraph(launch: Launch) -> None:
    out = launch(
        "check", "model=gemma_3_1b", "backend=mindformers", "model.scale_embeddings=false", "model.num_hash_layers=3"
    ).out
    assert "error MAP-UNSUPPORTED  model.num_hash_layers=3 (command line)" in out

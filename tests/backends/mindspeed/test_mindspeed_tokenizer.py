"""The end of a document is not masked as padding: the class of tokenizers, what is refused, what a script is told."""

import json
from pathlib import Path

import pytest

from launcher import api
from tests.importing.test_corpus import MINDSPEED
from tools.bench.pad_tokens import figures

TOKENIZERS = {
    "no padding": {"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"},
    "padding is the end": {"eos_token": {"content": "</s>"}, "pad_token": "</s>"},
    "its own padding": {"eos_token": "</s>", "pad_token": "<pad>"},
    "code": {"eos_token": "</s>", "pad_token": "</s>", "auto_map": {"AutoTokenizer": ["x.X", None]}},
}
MEGATRON, OWN = "HuggingFaceTokenizer", "PretrainedFromHF"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, config in TOKENIZERS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def job_with(*overrides: str, version: str = "26.1.0") -> api.Job:
    """Return a job that pre-trains on token files."""
    backend = ("backend=mindspeed", f"backend.version={version}")
    return api.compose([*backend, *overrides], recipe="qwen3_8b")


def tokenizer_of(job: api.Job) -> dict[str, object]:
    """Return the arguments that name the tokenizer."""
    return {arg.flag: arg.value for arg in api.translate(job) if "tokenizer" in arg.flag}


def found(job: api.Job) -> list[tuple[str, str]]:
    """Return the rules about padding that a job breaks, with their severity."""
    return [(each.rule, each.severity) for each in api.check(job) if "MS-PAD-EOS" in each.rule]


@pytest.mark.parametrize("name", ["no padding", "padding is the end", "its own padding"])
def test_no_end_of_a_document_is_masked(folder: Path, name: str) -> None:
    job = job_with(f"tokenizer.path={folder / name}")
    assert tokenizer_of(job) == {"tokenizer-type": MEGATRON, "tokenizer-model": str(folder / name)}
    assert not found(job)


@pytest.mark.parametrize("kind", [MEGATRON, OWN])
@pytest.mark.parametrize("version", ["26.1.0", "master"])
def test_the_class_is_the_one_that_the_job_names(kind: str, version: str) -> None:
    job = job_with(f"tokenizer.type={kind}", "tokenizer.path=/t", version=version)
    argument = "tokenizer-model" if kind == MEGATRON else "tokenizer-name-or-path"
    assert tokenizer_of(job) == {"tokenizer-type": kind, argument: "/t"}


@pytest.mark.parametrize(
    "needs",
    ["tokenizer.trust_remote_code=true", "tokenizer.has_code=true", "tokenizer.extra_ids=4", "data.format=text"],
)
def test_what_megatron_lm_does_not_do_needs_mindspeeds_class(needs: str) -> None:
    assert tokenizer_of(job_with(needs))["tokenizer-type"] == OWN


def test_fine_tuning_on_chats_keeps_mindspeeds_class() -> None:
    job = api.compose(["backend=mindspeed"], recipe="qwen2_5_7b_sft")
    assert tokenizer_of(job)["tokenizer-type"] == OWN
    assert not found(job)


@pytest.mark.parametrize("name", ["no padding", "padding is the end"])
def test_a_job_that_loses_its_mask_is_refused_with_a_class_that_keeps_it(folder: Path, name: str) -> None:
    job = job_with(f"tokenizer.path={folder / name}", f"tokenizer.type={OWN}")
    (finding,) = [each for each in api.check(job) if each.severity == "error"]
    assert (finding.rule, finding.fixes[0].overrides) == ("MS-PAD-EOS", (f"tokenizer.type={MEGATRON}",))
    assert not found(job_with(f"tokenizer.path={folder / name}", *finding.fixes[0].overrides))


def test_a_tokenizer_of_code_keeps_its_mask_only_without_a_loss_at_the_ends(folder: Path) -> None:
    path = f"tokenizer.path={folder / 'code'}"
    (finding,) = [each for each in api.check(job_with(path)) if each.severity == "error"]
    assert (finding.rule, finding.fixes[0].overrides) == ("MS-PAD-EOS", ("data.eod_mask_loss=true",))
    assert found(job_with(path, "data.eod_mask_loss=true")) == [("MS-PAD-EOS-MASKED", "warning")]


def test_an_older_version_has_no_class_that_keeps_it(folder: Path) -> None:
    job = job_with(f"tokenizer.path={folder / 'no padding'}", version="2.1.0")
    assert tokenizer_of(job)["tokenizer-type"] == OWN
    assert found(job) == [("MS-PAD-EOS", "error")]


SCRIPTS = {
    "no padding": ([], [("MS-PAD-EOS", "warning")]),
    "padding is the end": (["--reset-position-ids"], [("MS-PAD-EOS-MASKED", "warning")]),
    "its own padding": ([], []),
    "elsewhere": ([], [("MS-PAD-EOS-MASKED", "warning")]),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_told(folder: Path, name: str) -> None:
    more, wanted = SCRIPTS[name]
    argv = ["--tokenizer-type", OWN, "--tokenizer-name-or-path", str(folder / name), "--num-layers", "2", *more]
    imported = api.import_argv(argv, backend="mindspeed", version="26.1.0")
    assert imported.job.tokenizer.type == OWN
    rules = [(each.rule, each.severity) for each in api.check(imported) if "MS-PAD-EOS" in each.rule]
    assert rules == wanted


def test_raw_files_without_ends_of_documents_have_none_to_mask() -> None:
    argv = ["--tokenizer-type", OWN, "--tokenizer-name-or-path", "x", "--handler-name", "GeneralPretrainHandler"]
    argv += ["--data-path", "texts.jsonl"]

    def rules(*more: str) -> bool:
        imported = api.import_argv([*argv, *more], backend="mindspeed", version="26.1.0")
        return any("MS-PAD-EOS" in each.rule for each in api.check(imported))

    assert (rules(), rules("--append-eod"), rules("--data-path", "tokens")) == (False, True, True)


@pytest.mark.parametrize("backend", ["megatron_lm", "mindspeed", "megatron", "mindformers"])
def test_a_job_of_mindspeeds_class_is_understood_everywhere(backend: str) -> None:
    overrides = [
        f"backend={backend}",
        f"tokenizer.type={OWN}",
        "tokenizer.path=/t",
        "data.format=null",
        "data.paths=[]",
    ]
    job = api.compose(overrides, recipe="qwen3_8b")
    assert not [each for each in api.check(job) if "tokenizer.type" in each.fields and each.rule.startswith("MAP")]


def test_the_corpus_is_counted(tmp_path: Path) -> None:
    exposed = {
        **MINDSPEED[0],
        "argv": [*MINDSPEED[0]["argv"], "--tokenizer-type", OWN, "--tokenizer-name-or-path", "x"],
    }
    text = "\n".join(map(json.dumps, (MINDSPEED[0], exposed)))
    (tmp_path / "corpus_mindspeed.jsonl").write_text(text)
    assert figures(tmp_path) == {"scripts": 2, "exposed": 1, "lost": 1}

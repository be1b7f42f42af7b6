"""One mistake is one mistake: the same exit code and the same JSON, whatever verb it is made with."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main, refusal
from launcher.cli.dispatch import VERBS
from tests.conftest import Launch

KEYS = {"rule", "severity", "message", "fields", "flags", "fix", "affects_training", "ask", "source"}
JOB = ("+recipe=qwen3_8b", "backend=megatron")
# How each verb that composes a job is called with it.
OF_JOBS = {
    "run": (),
    "dry-run": (),
    "check": (),
    "doctor": ("--no-hosts",),
    "estimate": (),
    "search": (),
    "balance": (),
    "diff": ("--backends", "megatron,mindspeed"),
    "convert hf-to-mcore": ("--model", "M", "--out", "x"),
    "report": ("-o", "x.html"),
    "tokenize": ("-o", "x.jsonl"),
}
# name: words instead of, or besides, the job; what is said.
WRONG_WORDS = {
    "no such hardware": (("hardware=nosuch",), "no hardware named 'nosuch'"),
    "no such backend": (("backend=nosuch",), "no backend named 'nosuch'"),
    "no such recipe": (("+recipe=nosuch",), "no recipe named 'nosuch'"),
    "no such field": (("paralel.tp=2",), "parallel.tp"),
    "no such choice": (("precision.dtype=fp7",), "is not one of bf16"),
    "no such file": (("+strategy=nosuch.yaml",), "nosuch.yaml does not exist"),
    "no nodes": (("cluster.nodes=0",), "cluster.nodes 0 is below 1"),
    "a negative length": (("batch.seq_length=-1",), "batch.seq_length -1 is below 1"),
    "no number": (("parallel.tp=two",), "needs a whole number"),
    "no version": (("backend.version=0.0",), "versions: 4.6.0"),
    "no word of a job": (("nonsense",), "nonsense"),
    "no such option": (("--nonsense",), "unrecognized arguments: --nonsense"),
}
# Sizes and hardware are what an estimate judges: there, impossible ones are a refused job.
JUDGED = {("estimate", "no such hardware"), ("estimate", "no nodes"), ("estimate", "a negative length")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    return tmp_path


def outcome(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(args))
    out, err = capsys.readouterr()
    return code, out, err


def document(out: str) -> dict[str, Any]:
    """Return the only document on standard output; every refusal has the same shape."""
    tree: dict[str, Any] = json.loads(out)
    assert tree["ok"] is False
    assert tree["findings"]
    for finding in tree["findings"]:
        assert set(finding) == KEYS
        assert finding["rule"]
        assert finding["message"]
    assert any(finding["severity"] == "error" for finding in tree["findings"])
    return tree


def job_words(wrong: tuple[str, ...]) -> tuple[str, ...]:
    keys = {arg.partition("=")[0].lstrip("+") for arg in wrong}
    return tuple(arg for arg in JOB if arg.partition("=")[0].lstrip("+") not in keys)


@pytest.mark.sample(keep=40)
@pytest.mark.parametrize("verb", OF_JOBS)
@pytest.mark.parametrize("mistake", WRONG_WORDS)
def test_a_wrong_argument_is_refused_alike_by_every_verb(
    files: Path, capsys: pytest.CaptureFixture[str], verb: str, mistake: str
) -> None:
    wrong, text = WRONG_WORDS[mistake]
    args = (*verb.split(), *job_words(wrong), *OF_JOBS[verb], *wrong)
    expected = 1 if (verb, mistake) in JUDGED else 2
    code, out, err = outcome(capsys, *args)
    assert (code, out) == (expected, ""), err
    assert text in err
    code, out, err = outcome(capsys, *args, "--json")
    assert (code, err) == (expected, "")
    assert any(text in finding["message"] + " ".join(finding["fix"]) for finding in document(out)["findings"])


# name: words of a whole command, exit code, what is said. 2: the words are wrong; 1: what they ask for is refused.
ALONE = {
    "no verb": (("chek", "+recipe=a b"), 2, "launch check '+recipe=a b'"),
    "a misspelt option": (("check", *JOB, "--jsn"), 2, "--json"),
    "a group as an option": (("check", "--backend", "megatron"), 2, "backend=megatron"),
    "a field as an option": (("check", *JOB, "--tp=4"), 2, "parallel.tp=4"),
    "a file as an option": (("check", "--recipe", "qwen3_8b"), 2, "+recipe=qwen3_8b"),
    "run not known": (("status", "nosuch"), 1, "there is no run 'nosuch'"),
    "run not known to logs": (("logs", "nosuch"), 1, "there is no run 'nosuch'"),
    "run not known to resume": (("resume", "nosuch"), 1, "there is no run 'nosuch'"),
    "run not known to stop": (("stop", "nosuch"), 1, "there is no run 'nosuch'"),
    "run not known to clean": (("clean", "nosuch"), 1, "there is no run 'nosuch'"),
    "no id": (("status",), 2, "required: ID"),
    "no regular expression": (("logs", "x", "--grep", "("), 2, "is not a valid regular expression"),
    "nothing is called so": (("explain", "nosuchthing"), 2, "or rule is called 'nosuchthing'"),
    "no backend to explain for": (("explain", "parallel.tp", "--backend", "nosuch"), 2, "no backend 'nosuch'"),
    "no checkout": (("catalogue", "add", "nosuch", "--name", "ours"), 1, "there is no such folder"),
    "no verb of catalogues": (("catalogue", "ad"), 2, "'ad' is not one of add, list, remove"),
    "no catalogue": (("args", "nosuch"), 2, "no backend or launcher 'nosuch'"),
    "no name of a catalogue": (("args",), 2, "the name of a backend or launcher is missing"),
    "no version of a catalogue": (("args", "megatron", "--backend-version", "9"), 2, "versions: 4.6.0"),
    "no argument of a catalogue": (("args", "megatron", "nosuchargument"), 1, "contains nosuchargument"),
    "no file to compare": (("diff", "a.sh", "b.sh"), 2, "a.sh does not exist"),
    "nothing to compare": (("diff", "+recipe=qwen3_8b"), 2, "two files or jobs, or two backends, are needed"),
    "no backend to compare": (("diff", "+recipe=qwen3_8b", "--backends", "megatron,nosuch"), 2, "'nosuch'"),
    "unreadable to compare": (("diff", "bad.sh", "good.sh"), 2, "learning_rat"),
    "no candidates": (("search", *JOB, "--top", "0"), 2, "--top 0: at least 1"),
    "no backend to search for": (("search", *JOB, "hardware=h100_80g", "--backends", "nosuch"), 2, "nosuch"),
    "no share": (("balance", *JOB, "--gap", "3"), 2, "--gap 3"),
    "no backend to go to": (("import", "good.sh", "--to", "nosuch"), 2, "no backend 'nosuch'"),
    "no file to import": (("import", "nosuch.sh"), 2, "there is no file nosuch.sh"),
    "no file to check": (("check", "nosuch.sh"), 2, "there is no file nosuch.sh"),
    "nothing to import": (("import",), 2, "name one FILE"),
    "unreadable to import": (("import", "bad.sh"), 1, "learning_rat"),
    "unreadable to check": (("check", "bad.sh"), 1, "learning_rat"),
    "no picture": (("estimate", *JOB, "--plot", "x.gif"), 2, "must end in .html"),
    "fixes without --fix": (("check", *JOB, "-o", "x.yaml"), 2, "--fix -o fixes.yaml"),
    "no conversion": (("convert", "nosuch"), 2, "hf-to-mcore"),
    "no kind of conversion": (("convert", "--nonsense"), 2, "hf-to-mcore"),
    "nothing to convert": (("convert", "hf-to-mcore"), 2, "required: --model, --out"),
    "no folder to convert": (("convert", "hf-to-mcore", "--model", "/none", "--out", "x"), 2, "/none: no such folder"),
    "no folder to verify": (("convert", "verify", "/none", "/none2"), 2, "/none: no such folder"),
    "no backend to convert for": (("convert", "hf-to-mcore", "--model", ".", "--out", "x", "--backend", "nosuch"), 2, "nosuch"),  # noqa: E501
    "no format": (("convert", "hf-to-mcore", "--model", ".", "--out", "x", "--format", "nosuch"), 2, "torch_dist"),
    "no number format": (("convert", "hf-to-mcore", "--model", "M", "--out", "x", "--dtype", "int4"), 2, "bf16"),
    "no threads": (("convert", "verify", ".", ".", "--workers", "0"), 2, "--workers 0"),
    "a job that its rules refuse": (("run", *JOB, "parallel.tp=3"), 1, "PAR-TP-HEADS"),
    "a job that cannot be estimated": (("estimate", *JOB, "parallel.pp=7"), 1, "PAR-"),
    "a job that cannot be searched": (("search", *JOB), 1, "hardware.memory_gib"),
    "a job that cannot be balanced": (("balance", *JOB), 1, "hardware"),
    "no place to render": (("dry-run", *JOB, "--render", "full"), 1, "not empty"),
}  # fmt: skip
# Verbs that write a file, and with which option.
WRITERS = {
    "check": (("check", *JOB, "--fix"), "-o", "x.yaml"),
    "import": (("import", "good.sh"), "-o", "x.yaml"),
    "search": (("search", *JOB), "-o", "x.yaml"),
    "search --csv": (("search", *JOB), "--csv", "x.csv"),
    "balance": (("balance", *JOB), "-o", "x.yaml"),
    "balance --mps": (("balance", *JOB), "--mps", "x.mps"),
    "estimate": (("estimate", *JOB), "--plot", "x.svg"),
    "estimate --trace": (("estimate", *JOB), "--trace", "x.json"),
    "report": (("report", *JOB), "-o", "x.html"),
    "tokenize": (("tokenize", *JOB), "-o", "x.jsonl"),
}
GOOD = (
    "NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen3-8B --dataset a --tensor_model_parallel_size 2 --train_iters 10\n"
)


@pytest.fixture
def files(here: Path) -> Path:
    (here / "good.sh").write_text(GOOD)
    (here / "bad.sh").write_text(GOOD.replace("--train_iters 10", "--learning_rat 1"))
    (here / "full").mkdir()
    (here / "full/x").write_text("x")
    (here / "M").mkdir()
    (here / "M/config.json").write_text("{}")
    (here / "M/model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    return here


@pytest.mark.parametrize("case", ALONE)
def test_a_refusal_is_a_screen_or_one_document(files: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    args, wanted, text = ALONE[case]
    code, out, err = outcome(capsys, *args)
    assert code == wanted, out + err
    assert text in out + err
    assert "Traceback" not in err
    assert len(err.splitlines()) < 40
    code, out, err = outcome(capsys, *args, "--json")
    assert code == wanted
    assert text in json.dumps(document(out), ensure_ascii=False)


@pytest.mark.parametrize("verb", WRITERS)
def test_a_file_that_cannot_be_written_is_reported_before_anything_is_done(
    files: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    args, option, name = WRITERS[verb]
    (files / f"folder-{name}").mkdir()
    for wrong, text in (
        (f"/nosuch/folder/{name}", "there is no folder /nosuch/folder"),
        (f"folder-{name}", "is a folder"),
    ):
        code, out, err = outcome(capsys, *args, option, wrong)
        assert (code, out) == (2, ""), err
        assert f"{option} {wrong}: {text}" in err
        assert document(outcome(capsys, *args, option, wrong, "--json")[1])["findings"][0]["rule"] == "CMD-USAGE"


def test_every_verb_is_in_a_table() -> None:
    reported = {args[0] for args, _, _ in ALONE.values()} | {verb.split()[0] for verb in OF_JOBS}
    # ps takes nothing that could be wrong but options; the others' refusals are in their own tests.
    assert set(VERBS) - reported == {"ps", "parity", "calibrate", "ui", "list", "schema", "completion"}


def test_a_sweep_s_refusal_is_a_list(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("run", "check", "dry-run", "estimate"):
        code, out, _ = outcome(capsys, verb, "-m", *JOB, "paralel.tp=1,2", "--json")
        assert code == 2
        (tree,) = json.loads(out)
        assert tree["findings"][0]["rule"] == "JOB-FIELD"


def test_a_job_of_a_sweep_is_refused_as_it_is_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, expected in (("estimate", 1), ("check", 2)):
        assert outcome(capsys, verb, *JOB, "batch.micro_batch_size=0")[0] == expected
        assert outcome(capsys, verb, "-m", *JOB, "hardware=h100_80g", "batch.micro_batch_size=0,1")[0] == expected


def test_the_fix_of_a_wrong_argument_is_the_argument_to_type(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, right in (
        ("paralel.tp=2", "parallel.tp=2"),
        ("hardware=h100_80gb", "hardware=h100_80g"),
        ("+recipe=qwen3_mo", "+recipe=qwen3_moe"),
        ("cluster.nodes=0", "cluster.nodes=1"),
        ("cluster.master_port=1.5", "cluster.master_port=1024"),
    ):
        out = outcome(capsys, "check", *job_words((wrong,)), wrong, "--json")[1]
        assert right in document(out)["findings"][0]["fix"]


def test_an_unknown_version_names_where_it_was_set(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = outcome(capsys, "check", *JOB, "backend.version=4.7")
    assert code == 2
    assert "backend.version=4.7 (command line)" in err


def test_every_name_is_offered_or_their_number(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    err = outcome(capsys, "check", "+recipe=tiny_qwen3_moe", "hardware=zzz")[2]
    assert [name for name in ("h100_80g", "mi355x", "ascend_910c", "a100_80g_pcie") if name not in err] == []
    assert "…" not in err
    err = outcome(capsys, "check", "+recipe=zzz")[2]
    assert " more" in err
    err = outcome(capsys, "check", "backend=deepspeed")[2]
    assert [name for name in ("megatron", "megatron_lm", "mindspeed", "mindformers") if name not in err] == []
    assert "works: mindspeed" in err, "the nearest first"


SECRET = "hf_hush9f3b71"
MISTYPED = (
    "--backend.env.HF_TOKEN={}",
    "~backend.env.HF_TOKEN={}",
    "bakend.env.HF_TOKEN={}",
    "backend.envs.WANDB_API_KEY={}",
    "HF TOKEN={}",
)


@pytest.mark.parametrize("arg", MISTYPED)
def test_a_mistyped_argument_does_not_show_its_secret(here: Path, capsys: pytest.CaptureFixture[str], arg: str) -> None:
    for verb in ("check", "dry-run", "estimate"):
        for more in ((), ("--json",), ("-m",), ("-m", "--json")):
            code, out, err = outcome(capsys, verb, arg.format(SECRET), *more)
            assert code == 2
            assert SECRET not in out + err


def test_what_is_named_exists() -> None:
    for place in refusal._KINDS:
        module, _, name = place.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), name), Exception), place


def test_a_fault_of_an_argument_passed_through_is_reported_there(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = outcome(capsys, "check", *JOB, "backend.args.tensor_model_parallel_size=3")
    assert code == 1
    assert "error PAR-TP-HEADS  backend.args.tensor_model_parallel_size=3 (command line)" in out
    assert "parallel.tp=" not in out


def test_one_script_gets_one_verdict(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys, "check", "good.sh")[0] == 0
    assert outcome(capsys, "import", "good.sh", "-o", "job.yaml")[0] == 0
    code, out, err = outcome(capsys, "check", "+job=job.yaml")
    assert code == 0, out + err
    code, out, _ = outcome(capsys, "check", "+job=job.yaml", "backend=mindspeed")
    assert code == 1, "hub data are not read there"
    assert "batch.seq_length=40960" in out, "the script's own default: the model's length"


def test_jobs_of_a_sweep_have_names_of_their_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ("dry-run", "-m", *JOB, "optimizer.lr=1e-5,2e-5", "--format", "submit")
    assert named(outcome(capsys, *sweep, "cluster=slurm")[1], "#SBATCH --job-name=") == ["qwen3_8b-1", "qwen3_8b-2"]
    kubernetes = outcome(capsys, *sweep, "cluster=kubernetes", "cluster.container=a:b")[1]
    assert len(set(named(kubernetes, "  name: "))) == 2


def named(text: str, start: str) -> list[str]:
    def found() -> Iterator[str]:
        yield from (line.removeprefix(start) for line in text.splitlines() if line.startswith(start))

    return list(found())


@pytest.mark.parametrize("prompt", ["Put your answer within \\boxed{}.", "Write it in <answer></answer>, as you like."])
def test_a_prompt_is_no_blank(files: Path, capsys: pytest.CaptureFixture[str], prompt: str) -> None:
    (files / "prompt.sh").write_text(f"{GOOD.strip()} --system '{prompt}'\n")
    code, _, err = outcome(capsys, "import", "prompt.sh")
    assert code == 0
    assert "is a placeholder" not in err


def test_no_help_text_names_a_backend_that_is_not_there(launch: Launch) -> None:
    for verb in ("check", "diff", "search", "convert"):
        done = launch(verb, "--help")
        assert done.code == 0
        assert "{" not in done.out.partition("example:")[2]
        assert "mindspeed" in done.out


def test_no_control_character_of_a_file_or_word_reaches_the_terminal(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((Path(__file__).parents[1] / "families/published/qwen3_8b.json").read_text())
    (here / "model").mkdir()
    kinds = ["full_attention\x9b31m"] * config["num_hidden_layers"]
    (here / "model/config.json").write_text(json.dumps({**config, "layer_types": kinds}), encoding="utf-8")
    for words in (["model.path=model"], ['model.path="no\x1b[2Jsuch"'], ["no\x1b[2Jfield=1"], ["backend=no\x1b[2J"]):
        code, _, err = outcome(capsys, "check", "backend=megatron", *words)
        assert code == 2
        assert "\\x" in err
        assert not {"\x1b", "\x9b"} & set(err)

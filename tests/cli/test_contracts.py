"""The contracts that other programs rely on: verbs, JSON, exit codes, and nothing heavy imported."""

import subprocess
import sys

import pytest

from tests.conftest import Launch

TINY = ("+recipe=tiny_qwen3_moe", "backend=megatron_lm")


def test_help_is_help_everywhere(launch: Launch):
    assert launch("--help").code == 0
    for verb in ("run", "dry-run", "check", "explain", "args"):
        done = launch(verb, "--help")
        assert done.code == 0
        assert "example:" in done.out
        assert "--json" in done.out


def test_dry_run_json_is_complete(launch: Launch):
    layout = ("parallel.tp=2", "parallel.sequence_parallel=true", "cluster.devices_per_node=2")
    done = launch("dry-run", *TINY, *layout, "--json")
    assert done.code == 0, done
    tree = done.json
    assert tree["backend"] == {"name": "megatron_lm", "version": "0.16.1"}
    assert tree["job"]["parallel"]["tp"] == 2
    arg = next(arg for arg in tree["args"] if arg["field"] == "parallel.tp")
    assert (arg["flag"], arg["value"], arg["origin"]) == ("tensor-model-parallel-size", 2, "override")
    (node,) = tree["plan"]["nodes"]
    assert {"rank", "env", "argv", "workdir"} <= set(node)
    assert all({"path", "content", "mode"} <= set(file) for file in tree["plan"]["files"])


def test_check_json_is_complete(launch: Launch):
    done = launch("check", *TINY, "parallel.tp=2", "cluster.devices_per_node=2", "--json")
    assert done.code == 1
    assert done.json["ok"] is False
    finding = next(finding for finding in done.json["findings"] if finding["rule"] == "MOE-TP-SP")
    assert set(finding) == {
        "rule",
        "severity",
        "message",
        "fields",
        "flags",
        "fix",
        "affects_training",
        "ask",
        "source",
    }
    assert "parallel.sequence_parallel=true" in finding["fix"]


def test_shell_format_is_a_script_that_bash_accepts(launch: Launch):
    done = launch("dry-run", *TINY, "--format", "shell")
    assert done.code == 0
    assert subprocess.run(["bash", "-n"], input=done.out, text=True, check=False).returncode == 0
    assert "torchrun" in done.out


def test_yaml_format_composes_to_the_same_job(launch: Launch, tmp_path):
    first = launch("dry-run", *TINY, "--format", "yaml")
    (tmp_path / "job.yaml").write_text(first.out)
    again = launch("dry-run", "+job=job.yaml", "--format", "yaml")
    assert again.out == first.out


def test_a_job_in_yaml_is_the_same_command(launch: Launch, tmp_path):
    """It stated `checkpoint.save: null` for a folder that follows from the job's name, and never saved."""
    job = ("+recipe=qwen3_8b", "backend=megatron_lm", "model.pretrained=false", "runtime=native")
    (tmp_path / "job.yaml").write_text(launch("dry-run", *job, "--format", "yaml").out)
    first = launch("dry-run", *job, "--format", "argv").out
    assert "--save launch_output/qwen3_8b/checkpoints" in first
    assert launch("dry-run", "+job=job.yaml", "--format", "argv").out == first
    moved = launch("dry-run", "+job=job.yaml", "output_dir=out", "--format", "argv").out
    assert "--save out/checkpoints" in moved


def test_refused_job_still_shows_what_would_run(launch: Launch):
    done = launch("dry-run", *TINY, "parallel.tp=2", "cluster.devices_per_node=2")
    assert done.code == 1
    assert "tensor-model-parallel-size" in done.out
    assert "MOE-TP-SP" in done.err


BAD = {
    "unknown recipe": (("check", "+recipe=qwen3_mo", "backend=megatron_lm"), 2, "qwen3_moe"),
    "unknown backend": (("check", "+recipe=tiny_qwen3", "backend=megatronn"), 2, "megatron"),
    "unknown version": (("check", *TINY, "backend.version=0.1"), 2, "0.16.1"),
    "unknown field": (("check", *TINY, "paralel.tp=2"), 2, "parallel.tp"),
    "unknown native argument": (("check", *TINY, "backend.args.num-layrs=2"), 1, "num-layers"),
    "wrong type": (("check", *TINY, "parallel.tp=two"), 2, "whole number"),
    "negative size": (("check", *TINY, "batch.seq_length=-1"), 2, "below 1"),
    "missing model path": (("check", *TINY, "model.path=/none"), 2, "/none/config.json"),
    "contradiction": (
        ("check", *TINY, "parallel.tp=1", "backend.args.tensor-model-parallel-size=2"),
        1,
        "set only one of them",
    ),
    "world size that does not fit": (("check", *TINY, "parallel.pp=2", "cluster.devices_per_node=3"), 1, "PAR-WORLD"),
    "misspelt verb": (("chek", "x"), 2, "check"),
    "unknown option": (("check", "--jsn"), 2, "--help"),
    "no backend": (("check", "+recipe=tiny_qwen3"), 2, "backend="),
    "bare word": (("check", "tiny_qwen3"), 2, "+recipe=tiny_qwen3"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_screen_and_the_right_exit_code(launch: Launch, case):
    args, code, text = case
    done = launch(*args)
    assert done.code == code, done
    assert text in done.err + done.out
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) < 40


def test_bad_input_as_json_is_json(launch: Launch):
    done = launch("check", "paralel.tp=2", "--json")
    assert done.code == 2
    assert done.json["mistakes"][0]["works"][0] == "parallel.tp"


def test_nothing_heavy_is_imported_to_show_a_job():
    code = (
        "import sys; from launcher.cli import main; main(['dry-run', '+recipe=qwen3_moe', 'backend=megatron']);"
        "heavy = ('torch', 'numpy', 'transformers', 'megatron', 'scipy');"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


EXPLAINED = {
    "field": ("parallel.tp", "tensor-model-parallel-size"),
    "native argument": ("--tensor-model-parallel-size", "parallel.tp"),
    "rule": ("MOE-TP-SP", "sequence parallelism"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_explain(launch: Launch, case):
    name, text = case
    done = launch("explain", name)
    assert done.code == 0, done
    assert text in done.out
    assert launch("explain", name, "--json").json


def test_explain_unknown_name_offers_others(launch: Launch):
    done = launch("explain", "paralel.tp")
    assert done.code == 2
    assert "parallel.tp" in done.err


def test_args_lists_the_catalogue(launch: Launch):
    done = launch("args", "megatron_lm", "tensor-model-parallel", "--json")
    assert {a["name"] for a in done.json["arguments"]} >= {"tensor-model-parallel-size"}
    assert launch("args", "none").code == 2
    assert launch("args", "megatron_lm", "--backend-version", "9").code == 2


# Name: overrides, what keeps the file that starts the job from being written.
UNWRITTEN = {
    "no hosts": ((), "no hosts are named: add cluster.hosts="),
    "too few hosts": (("cluster.nodes=4", "cluster.hosts=[n1,n2]"), "the job has 4 nodes and cluster.hosts names 2"),
}


@pytest.mark.parametrize("case", UNWRITTEN.values(), ids=UNWRITTEN.keys())
def test_what_cannot_be_submitted_yet_is_reported_in_one_line(launch: Launch, case):
    args, reported = case
    done = launch("dry-run", "+recipe=qwen3_8b", "backend=megatron", "cluster=ssh", "--format", "submit", *args)
    assert done.code == 1, done
    assert reported in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_arguments_of_a_version_by_its_short_form(launch):
    short = launch("args", "mindspeed@2.3.0", "recompute", "--json")
    assert short.out == launch("args", "mindspeed", "--backend-version", "2.3.0", "recompute", "--json").out
    assert "versions: 26.1.0" in launch("args", "mindspeed@99").err
    assert "works: launch args mindspeed" in launch("args", "mindspeed", "zzzz").err

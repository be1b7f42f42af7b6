"""`launch import` as a user types it: output, files, exit codes, speed."""

import json
from pathlib import Path

import pytest

from tests.conftest import Launch

DATA = Path(__file__).parent / "data"
SWIFT = str(DATA / "swift_sft.sh")


def test_report_and_job_file(launch: Launch, tmp_path: Path) -> None:
    done = launch("import", SWIFT, "-o", "job.yaml")
    assert done.code == 0, done
    table = [line.split() for line in done.out.splitlines()]
    assert ["tensor_model_parallel_size", "2", "parallel.tp"] in table
    assert "written: job.yaml" in done.out
    again = launch("dry-run", "+job=job.yaml", "--json")
    flags = {arg["flag"]: arg["value"] for arg in again.json["args"]}
    assert flags["tensor_model_parallel_size"] == 2
    assert again.json["backend"] == {"name": "megatron", "version": "4.6.0"}
    assert "override /model: qwen2_5_7b_instruct" in (tmp_path / "job.yaml").read_text()


def test_a_job_file_is_ported_by_its_override(launch: Launch) -> None:
    launch("import", SWIFT, "-o", "job.yaml")
    refused = launch("import", "job.yaml", "--to", "mindspeed@26.1.0")
    assert refused.code == 1
    assert "works: launch check +job=job.yaml backend=mindspeed backend.version=26.1.0" in refused.err
    checked = launch("check", "+job=job.yaml", "backend=mindspeed", "backend.version=26.1.0")
    assert "on MindSpeed-LLM 26.1.0" in checked.out + checked.err
    port = launch("port", "job.yaml", "--to", "mindspeed")
    assert (
        "works: launch import FILE --to BACKEND -o job.yaml · launch check +job=FILE.yaml backend=BACKEND" in port.err
    )
    assert "launch report" not in port.err


# name: (arguments, part of the message, what works)
WRONG_FILES = {
    "several scripts": ((SWIFT, "x.sh"), "SimuMax's strategy", f"launch import {SWIFT} · launch import x.sh · "),
    "a pattern": (("*.sh",), "no file *.sh", "works: launch check '*.sh'"),
    "standard input": (("-",), "no file -", "works: launch import /dev/stdin"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_files_that_import_does_not_take_have_an_offer(launch: Launch, tmp_path: Path, case: str) -> None:
    arguments, message, works = WRONG_FILES[case]
    (tmp_path / "x.sh").write_text("megatron sft --model m --dataset d\n")
    refused = launch("import", *arguments)
    assert refused.code == 2
    assert message in refused.err
    assert works in refused.err
    assert launch("check", "*.sh").code in (0, 1)


def test_report_shows_values_whole(launch: Launch, tmp_path: Path) -> None:
    data = "somebody/a-data-set-with-a-name-of-more-than-forty-letters"
    (tmp_path / "x.sh").write_text(f"megatron sft --model m --dataset {data}\n")
    rows = [line.split("  ") for line in launch("import", "x.sh").out.splitlines()]
    assert [data] in [row[1:2] for row in rows]


def test_a_job_that_was_edited_is_kept(launch: Launch, tmp_path: Path) -> None:
    launch("import", SWIFT, "-o", "job.yaml")
    first = (tmp_path / "job.yaml").read_text()
    assert "kept" not in launch("import", SWIFT, "-o", "job.yaml").err
    (tmp_path / "job.yaml").write_text(first + "# mine\n")
    assert "kept as job.yaml.1" in launch("import", SWIFT, "-o", "job.yaml").err
    assert (tmp_path / "job.yaml.1").read_text() == first + "# mine\n"
    assert (tmp_path / "job.yaml").read_text() == first


def test_json_contract(launch: Launch) -> None:
    done = launch("import", SWIFT, "--json")
    tree = done.json
    assert {"backend", "version", "job", "unmapped", "warnings"} <= set(tree)
    assert tree["backend"] == "megatron"
    assert tree["job"]["parallel"]["tp"] == 2
    assert all(set(each) == {"flag", "value"} for each in tree["unmapped"])


def test_json_of_a_refusal(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("megatron sft --model m --lrr 1\n")
    done = launch("import", "x.sh", "--json")
    assert done.code == 1
    mistake = done.json["mistakes"][0]
    assert mistake["where"] == "x.sh:1"
    assert "--lrr is not an argument" in mistake["what"]


def test_refusal_names_the_place_and_partial_helps(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("export A=1\nmegatron sft --model m \\\n  --tensor_model_paralel_size 2\n")
    done = launch("import", "x.sh")
    assert (done.code, done.out) == (1, "")
    assert "x.sh:3" in done.err
    assert "works: --tensor_model_parallel_size" in done.err
    assert "Traceback" not in done.err
    partial = launch("import", "x.sh", "--partial", "-o", "job.yaml")
    assert partial.code == 1
    assert "# not imported: x.sh:3" in (tmp_path / "job.yaml").read_text()


def test_usage_errors(launch: Launch) -> None:
    for args in (
        [],
        ["x.sh", "--backend", "nemo"],
        ["x.sh", "--set", "A"],
        ["x.sh", "--bogus"],
        ["x.sh", "--to", "megatron@1"],
    ):
        done = launch("import", *args)
        assert done.code == 2, (args, done)
        assert "Traceback" not in done.err


def test_help_has_an_example(launch: Launch) -> None:
    done = launch("import", "--help")
    assert done.code == 0
    assert "launch import train.sh -o job.yaml" in done.out


def test_arguments_after_two_dashes(launch: Launch) -> None:
    done = launch("import", "--backend", "mindspeed", "--json", "--", "--tensor-model-parallel-size", "4", "--bf16")
    assert done.json["job"]["parallel"]["tp"] == 4


def test_set_fills_what_the_script_leaves_open(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("torchrun --nproc_per_node $GPUS pretrain_gpt.py --lr $LR --save $OUT\n")
    done = launch("import", "x.sh", "--set", "GPUS=4", "--set", "LR=1e-4", "--json")
    job = done.json["job"]
    assert (job["cluster"]["devices_per_node"], job["optimizer"]["lr"], job["checkpoint"]["save"]) == (4, 1e-4, "$OUT")


def test_references_survive_the_job_file(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text(
        "export PYTHONPATH=$PYTHONPATH:/x\ntorchrun pretrain_gpt.py --micro-batch-size 1 --data-path ${DATA}/a\n"
    )
    assert launch("import", "x.sh", "-o", "job.yaml").code == 0
    done = launch("dry-run", "+job=job.yaml", "--json")
    assert done.json["job"]["data"]["paths"] == ["${DATA}/a"]
    assert done.json["job"]["backend"]["env"] == {"PYTHONPATH": "${PYTHONPATH}:/x"}


def test_port_names_what_is_missing(launch: Launch, tmp_path: Path) -> None:
    done = launch("import", SWIFT, "--to", "mindspeed", "-o", "job.yaml")
    assert done.code == 1  # the data set of a hub must be settled
    assert "Megatron-SWIFT 4.6.0 -> MindSpeed-LLM" in done.out
    assert "data.format=hub" in done.out
    assert "CUDA_VISIBLE_DEVICES" in done.out
    tree = launch("dry-run", "+job=job.yaml", "data.paths=[d.jsonl]", "data.format=messages", "--json").json
    flags = {arg["flag"]: arg["value"] for arg in tree["args"]}
    assert tree["backend"]["name"] == "mindspeed"
    assert (flags["tensor-model-parallel-size"], flags["num-layers"]) == (2, 28)


def test_plain_port_of_an_old_script_by_the_command_line(launch: Launch) -> None:
    assert launch("import", str(DATA / "swift_3_5_moe.sh"), "-o", "job.yaml").code == 0
    own = launch("dry-run", "+job=job.yaml", "--json").json
    assert own["backend"] == {"name": "megatron", "version": "3.12.6"}
    ported = launch("dry-run", "+job=job.yaml", "backend=mindspeed", "model=qwen3_30b_a3b", "--json").json
    assert ported["backend"]["name"] == "mindspeed"
    assert any(arg["flag"] == "expert-model-parallel-size" and arg["value"] == 8 for arg in ported["args"])
    assert any("data.format=hub" in finding["message"] for finding in ported["findings"])


def test_all_commands(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("megatron pt --model m --lr 1e-4\nmegatron sft --model m --lr 1e-5\n")
    done = launch("import", "x.sh", "--all-commands", "-o", "job.yaml", "--json")
    assert [each["job"]["task"]["type"] for each in json.loads(done.out)["jobs"]] == ["pretrain", "sft"]
    assert (tmp_path / "job_1.yaml").is_file()
    assert (tmp_path / "job_2.yaml").is_file()


def test_the_runner_of_other_python_keeps_working_without_the_parser(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "tree_sitter.py").write_text("raise ImportError('no', name='tree_sitter')\n")
    (tmp_path / "x.sh").write_text("megatron sft --model m\n")
    done = launch("import", "x.sh", env={"PYTHONPATH": f"{tmp_path}:{DATA.parents[2]}"})
    assert done.code == 1
    assert "pip install 'launch-llm[import]'" in done.err

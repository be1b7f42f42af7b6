"""The canonical job in a tracker's configuration: a file that Weights & Biases reads."""

import json
from pathlib import Path

from tests.cli.test_runs import JOB
from tests.conftest import Launch


def write(folder: Path) -> tuple[str, ...]:
    program = folder / "env" / "bin" / "megatron"
    program.parent.mkdir(parents=True)
    program.write_text('#!/usr/bin/env bash\ncat "$WANDB_SWEEP_PARAM_PATH"\n')
    program.chmod(0o755)
    (folder / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    return (*JOB, "estimate.enforce=false", f"cluster.python={folder}/env/bin/python", "output_dir=out")


def test_a_run_with_a_project_finds_the_job_in_the_file_of_its_environment(launch: Launch, tmp_path: Path) -> None:
    words = write(tmp_path)
    assert launch("run", *words, "logging.wandb_project=p", "backend.env.OF_SITE=\\${HOME}").code == 0
    log = (tmp_path / "out/logs/node0.log").read_text()
    found = json.loads(next(line for line in log.splitlines() if line.startswith('{"wandb_version"')))
    kept = json.loads((tmp_path / "out/run/job.json").read_text())
    value = found["launch_job"]["value"]
    # Paths of this machine may look like secrets, which are hidden from a server.
    assert [name for name in value if name != "cluster" and value[name] != kept[name]] == []
    assert (value["logging"]["wandb_project"], value["backend"]["env"]["OF_SITE"]) == ("p", "${HOME}")


def test_without_a_project_there_is_no_such_file(launch: Launch, tmp_path: Path) -> None:
    words = write(tmp_path)
    plan = launch("dry-run", *words, "--json").json["plan"]
    assert not [file for file in plan["files"] if file["path"].endswith("wandb_config.json")]
    none = launch("dry-run", "+recipe=qwen3_8b", "backend=mindformers", "logging.wandb_project=p", "--json").json
    assert "WANDB_SWEEP_PARAM_PATH" not in none["plan"]["nodes"][0]["env"]

"""Files of every earlier version are read as the same job or run; files of a newer version are refused in one line."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from launcher.compose import compose
from launcher.compose.errors import ComposeError
from launcher.executors.record import read_record
from launcher.job import fields
from launcher.job.migrations import JOB_FILES, RUN_RECORDS, Migration, WrongSchema, current_path, migrated
from tests.conftest import Launch

FILES = Path(__file__).parents[1] / "data" / "schema"
NEWER = f"reads up to schema {len(JOB_FILES)}"


def stored(kind: str, suffix: str) -> list[Path]:
    return sorted(FILES.glob(f"{kind}-*.{suffix}"))


def test_a_file_of_every_version_is_kept() -> None:
    for kind, suffix, table in (
        ("job", "yaml", JOB_FILES),
        ("strategy", "yaml", JOB_FILES),
        ("run", "json", RUN_RECORDS),
    ):
        versions = []
        for path in stored(kind, suffix):
            tree = yaml.safe_load(path.read_text())
            assert path.stem == f"{kind}-{tree.get('schema', 0)}"
            versions.append(tree.get("schema", 0))
        assert versions == list(range(len(table) + 1))


@pytest.mark.parametrize("path", stored("job", "yaml"), ids=lambda path: path.stem)
def test_a_job_file_of_any_version_is_the_same_job(path: Path) -> None:
    job = compose([f"+job={path}", "name=same"])
    assert job == compose([f"+job={stored('job', 'yaml')[-1]}", "name=same"])
    assert (job.parallel.tp, job.parallel.pp, job.optimizer.lr, job.backend.name) == (2, 2, 3e-4, "megatron_lm")
    assert job.origin("parallel.tp").where.startswith(f"tests/data/schema/{path.name}:")


@pytest.mark.parametrize("path", stored("strategy", "yaml"), ids=lambda path: path.stem)
def test_a_strategy_of_any_version_is_the_same(path: Path) -> None:
    assert compose(["+recipe=qwen3_8b", f"+strategy={path}"]).parallel.tp == 4


@pytest.mark.parametrize("path", stored("run", "json"), ids=lambda path: path.stem)
def test_a_run_record_of_any_version_is_the_same(path: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(path.read_text())
    record = read_record(tmp_path)
    assert record is not None
    assert (record.id, record.pid, record.nodes, record.command[0]) == ("tiny-1", 4711, 1, "run")
    assert json.loads(record.as_json())["schema"] == len(RUN_RECORDS)


@pytest.mark.slow
def test_what_is_written_carries_the_version(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 512 --micro-batch-size 1\n"
    )
    args = ("+recipe=qwen3_8b", "backend=megatron", "parallel.tp=3")
    assert launch("import", "train.sh", "-o", "job.yaml").code == 0
    launch("check", *args, "--fix", "-o", "fixes.yaml")
    for name in ("job.yaml", "fixes.yaml"):
        assert yaml.safe_load((tmp_path / name).read_text())["schema"] == len(JOB_FILES)
    assert launch("dry-run", "+job=job.yaml", "--json").json["job"]["model"]["hidden_size"] == 512
    (tmp_path / "whole.yaml").write_text(launch("dry-run", *args[:2], "--format", "yaml").out)
    assert yaml.safe_load((tmp_path / "whole.yaml").read_text())["schema"] == len(JOB_FILES)
    assert launch("check", "+job=whole.yaml").code == 0
    assert launch("import", "train.sh", "-o", "job.yaml").code == 0  # a job file may be replaced


RENAMES = Migration(
    why="for the test",
    renames={"parallel.tensor": "parallel.tp", "steps": "schedule.train_iters", "speed": "overlap"},
    change=lambda tree: {**tree, "seed": tree.get("seed", 41) + 1},
)


def test_renamed_fields_reach_their_new_names_with_their_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compose([])
    for name, module in list(sys.modules.items()):
        if name.startswith("launcher.") and hasattr(module, "JOB_FILES"):
            monkeypatch.setattr(module, "JOB_FILES", (*JOB_FILES, RENAMES))
    file = tmp_path / "old.yaml"
    file.write_text("parallel:\n  tensor: 2\n  pp: 4\nsteps: 7\nspeed:\n  grad_reduce: true\n")
    job = compose([f"+job={file}"])
    assert (job.parallel.tp, job.parallel.pp, job.schedule.train_iters, job.overlap.grad_reduce) == (2, 4, 7, True)
    assert job.seed == 42
    assert job.origin("parallel.tp").where.endswith("old.yaml:2")
    assert job.origin("overlap.grad_reduce").where.endswith("old.yaml:6")
    file.write_text(f"schema: {len(JOB_FILES) + 1}\nparallel: {{tp: 2}}\nseed: 5\n")
    assert compose([f"+job={file}"]).seed == 5
    with pytest.raises(ComposeError) as caught:
        compose(["parallel.tensor=2"])
    assert [name for mistake in caught.value.mistakes for name in mistake.works][:1] == ["parallel.tp"]


def test_only_later_migrations_are_applied() -> None:
    table = (Migration(why="1", renames={"a": "b"}), Migration(why="2", renames={"b": "c.d"}))
    assert migrated({"a": 1}, table, "f") == {"c": {"d": 1}}
    assert migrated({"schema": 1, "b": 1, "a": 2}, table, "f") == {"c": {"d": 1}, "a": 2}
    assert migrated({"schema": 2, "b": 1}, table, "f") == {"b": 1}
    assert (current_path("a", table), current_path("b.x", table), current_path("ab", table)) == ("c.d", "c.d.x", "ab")


def test_no_name_is_used_again() -> None:
    for migration in JOB_FILES:
        assert not set(migration.renames) & set(fields())
        assert {current_path(new, JOB_FILES) for new in migration.renames.values()} <= set(fields())


@pytest.mark.parametrize("written", ["7", "-1", "true", "new", "[1]", "1.0"])
def test_a_job_file_of_another_schema_is_refused_in_one_line(launch: Launch, tmp_path: Path, written: str) -> None:
    (tmp_path / "job.yaml").write_text(f"schema: {written}\nparallel: {{tp: 2}}\n")
    done = launch("dry-run", "+job=job.yaml", "backend=megatron")
    assert done.code == 2
    (line,) = done.err.strip().splitlines()
    assert "job.yaml:1" in line
    assert (NEWER if written == "7" else "schema is a number") in line


def test_a_newer_run_record_is_refused_and_hides_no_other_run(launch: Launch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    for name in ("old-1", "new-1", "bad-1"):
        folder = tmp_path / name
        (folder / "run").mkdir(parents=True)
        tree = json.loads((FILES / "run-1.json").read_text()) | {"id": name, "folder": str(folder)}
        text = json.dumps(tree | {"schema": 9} if name == "new-1" else tree)
        (folder / "run" / "run.json").write_text("{" if name == "bad-1" else text)
        (home / "runs" / f"{name}.json").write_text(json.dumps({"folder": str(folder)}))
    env = {"LAUNCH_HOME": str(home)}
    listed = launch("ps", "--json", env=env)
    assert (listed.code, [run["id"] for run in listed.json]) == (0, ["old-1"])
    assert f"run new-1: {tmp_path}/new-1/run/run.json is of schema 9" in listed.err
    for verb in ("status", "logs", "stop"):
        done = launch(verb, "new-1", env=env)
        assert done.code == 1
        assert len(done.err.strip().splitlines()) == 1
        assert "reads up to schema 1" in done.err
    assert launch("status", "old-1", env=env).code == 0


def test_a_record_that_is_no_mapping_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("[1]")
    assert read_record(tmp_path) is None
    (tmp_path / "run" / "run.json").write_text('{"schema": 99}')
    with pytest.raises(WrongSchema):
        read_record(tmp_path)

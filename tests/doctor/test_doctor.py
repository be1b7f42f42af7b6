"""What `launch doctor` finds: the smallest machine, file or host that is wrong, and what it says of it."""

import dataclasses
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue.requirements import Needed
from launcher.compose import compose
from launcher.doctor.check import ERROR, OK, SKIPPED, WARNING, Check
from launcher.doctor.data import global_batch, paths
from launcher.doctor.hosts import of_nodes
from launcher.doctor.machine import checkpoint_bytes, devices, devices_seen, disk, rendezvous
from launcher.doctor.software import cann, checkout_version, fits, software
from launcher.estimate import estimate
from launcher.executors.ssh.executor import Hosts
from launcher.installed import installed
from launcher.job import Job
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.plan import LaunchPlan, NodePlan, Start
from launcher.runtime import on_devices, requirements_of
from tests.conftest import Launch, make_job


def changed(backend: Backend, *support: Needed, requires: tuple[str, ...] = ()) -> Backend:
    return dataclasses.replace(backend, support=support, requires=requires)


def verdicts(checks: Any) -> dict[str, str]:
    return {check.what: check.verdict for check in checks}


# -- software

PYTEST = Needed(name="pytest", wanted=">=8", install="pip install pytest", source="a test")


@pytest.mark.parametrize(
    "here, wanted, right",
    [
        ("2.7.1", "==2.7.1", True),
        ("2.7.1+cpu", "==2.7.1", True),
        ("2.13.0", ">=2.6,<3", True),
        ("2.9.0rc1", ">=2.9.0a0,<2.12.0", True),
        ("2.12.0", ">=2.9.0a0,<2.12.0", False),
        ("no version", ">=1", False),
    ],
)
def test_versions_fit(here: str, wanted: str, right: bool):
    assert fits(here, wanted) is right


def test_what_is_there_is_fine_and_the_rest_says_how_to_get_it():
    missing = dataclasses.replace(PYTEST, name="no_such_package", module="no_such_module")
    old = dataclasses.replace(PYTEST, name="ruff", wanted="<0.0.1")
    backend = changed(get_backend("megatron_lm"), PYTEST, missing, old, requires=("module:no_such_module",))
    found = {check.what: check for check in software(backend, "0.16.1")}
    assert verdicts(found.values()) == {"pytest": OK, "no_such_package": ERROR, "ruff": WARNING}
    assert found["no_such_package"].works == "pip install pytest"
    assert "<0.0.1" in found["ruff"].works


@pytest.mark.parametrize(
    "here, verdict, works",
    [
        ("0.16.1", OK, ""),
        ("0.16.0", OK, ""),
        ("0.12.3", ERROR, "backend.version=0.12.1"),
        ("0.11.0", WARNING, f"known versions: {', '.join(get_backend('megatron_lm').versions)}"),
    ],
)
def test_a_checkout_of_another_version_than_arguments_are_written_for(
    tmp_path: Path, here: str, verdict: str, works: str
):
    major, minor, patch = here.split(".")
    (tmp_path / "megatron/core").mkdir(parents=True)
    file = tmp_path / "megatron/core/package_info.py"
    file.write_text(f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ''\n")
    backend = get_backend("megatron_lm")
    needed = next(each for each in backend.support if each.kind == "checkout")
    assert checkout_version(tmp_path, needed) == here
    only = changed(backend, needed, requires=("env:MEGATRON_LM_PATH",))
    (check,) = software(only, "0.16.1", environ={"MEGATRON_LM_PATH": str(tmp_path)})
    assert check.verdict == verdict
    assert works in check.works


def test_the_job_s_own_python_is_asked(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"python": "3.10.1", "pytest": "1.0"}\'\n')
    python.chmod(0o755)
    backend = changed(get_backend("megatron_lm"), PYTEST, requires=("module:sys",))
    found = {check.what: check for check in software(backend, "0.16.1", python=str(python))}
    assert (found["pytest"].verdict, found["pytest"].found) == (WARNING, "1.0")
    assert "of " + str(python) in found["sys"].found
    assert installed(["pytest"], str(tmp_path / "none")).problem


def test_cann_is_known_by_its_own_file(tmp_path: Path):
    assert cann({}) is None
    (tmp_path / "version.cfg").write_text("runtime_running_version=[8.2.RC1:8.2.RC1]\n")
    assert cann({"ASCEND_HOME_PATH": str(tmp_path)}) == "8.2.RC1"


@pytest.mark.parametrize("name", backend_names())
def test_every_backend_says_what_it_needs_and_who_says_so(name: str):
    backend = get_backend(name)
    for version in backend.versions:
        needed = [each for each in backend.support if each.holds(version, None)]
        names = [(each.name, each.devices) for each in needed]
        assert len(names) == len(set(names)), "one row a thing and version"
        assert all(each.source for each in needed)
        known = {each.module or each.name for each in needed}
        assert {requirement.partition(":")[2] for requirement in requirements_of(backend, version)} <= known, version


# backend, its version, thing, version of it that upstream names, one that it does not
MATRIX = (
    ("mindspeed", "26.1.0", "cann", "9.1.0", "8.2.RC1"),
    ("mindspeed", "26.1.0", "torch_npu", "2.7.1.post8", "2.8.0"),
    ("mindspeed", "26.1.0", "transformers", "5.2.0", "4.57.1"),
    ("mindspeed", "2.1.0", "torch", "2.6.0", "2.7.1"),
    ("mindspeed", "2.1.0", "MEGATRON_LM_PATH", "0.8.0", "0.12.1"),
    ("mindspeed", "2.1.0", "transformers", "4.57.1", "5.2.0"),
    ("mindspeed", "master", "MEGATRON_LM_PATH", "0.12.1", "0.8.0"),
    ("mindformers", "1.6.0", "mindspore", "2.7.0rc1", "2.9.0"),
    ("mindformers", "1.6.0", "datasets", "2.18.0", "4.0.0"),
    ("mindformers", "2.1.0", "mindspore", "2.11.0", "2.7.2"),
    ("mindformers", "2.1.0", "transformers", "5.3.0", "4.57.1"),
    ("megatron", "4.6.0", "mcore_bridge", "1.6.5", "1.0.2"),
    ("megatron", "4.6.0", "cann", "9.0.0", "8.3.RC1"),
    ("megatron", "4.0.0", "transformers", "5.2.0", "5.3.0"),
    ("megatron", "3.6.4", "peft", "0.15.2", "0.17.0"),
    ("megatron_lm", "0.16.1", "torch", "2.6.0", "2.5.1"),
)


@pytest.mark.parametrize("case", MATRIX, ids=[" ".join(case[:3]) for case in MATRIX])
def test_the_matrix_is_upstream_s(case: tuple[str, str, str, str, str]):
    name, version, thing, right, wrong = case
    found = [each for each in get_backend(name).support if each.name == thing and each.holds(version, "npu")]
    assert len(found) == 1
    assert fits(right, found[0].wanted)
    assert not fits(wrong, found[0].wanted)


# -- devices, addresses, disk


@pytest.mark.parametrize(
    "files, environ, count",
    [
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], {}, 2),
        (["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (["davinci0"], {}, 0),
    ],
)
def test_devices_are_counted(tmp_path: Path, files: list[str], environ: dict[str, str], count: int):
    for file in files:
        (tmp_path / file).touch()
    assert devices_seen("cuda", environ, tmp_path) == count


def test_too_few_devices_are_refused_unless_none_can_be_seen_and_the_user_knows_better():
    job = make_job({"hardware": {"device": "npu"}})
    assert devices(job).verdict == ERROR
    assert devices(job, forced=True).verdict == WARNING
    assert devices(make_job({"hardware": {"device": "cpu"}})).verdict == SKIPPED
    assert devices(job, supported=("cpu",)).verdict == SKIPPED


def test_several_nodes_do_not_meet_at_loopback():
    job = make_job({"cluster": {"nodes": 2, "master_addr": "127.0.0.1"}})
    assert verdicts(rendezvous(job)) == {"master address": ERROR}
    assert not list(rendezvous(make_job({"cluster": {"nodes": 2, "master_addr": "node0"}})))


@pytest.mark.parametrize(
    "changes, per_parameter",
    [
        ({}, 14),
        ({"precision": {"dtype": "fp32"}}, 16),
        ({"optimizer": {"type": "sgd"}}, 10),
        ({"checkpoint": {"no_save_optim": True}}, 2),
    ],
)
def test_a_checkpoint_has_the_bytes_of_its_precision_and_optimizer(changes: dict[str, Any], per_parameter: int):
    count = estimate(make_job(changes)).parameters["total"]
    assert checkpoint_bytes(make_job(changes)) == count * per_parameter


def test_a_full_disk_is_seen_before_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = make_job({"checkpoint": {"save": str(tmp_path / "not" / "there"), "save_total_limit": 4}})
    size = checkpoint_bytes(job)
    assert size is not None
    for free, verdict in ((size - 1, ERROR), (3 * size, WARNING), (4 * size, OK)):
        monkeypatch.setattr("shutil.disk_usage", lambda place, free=free: _Usage(free))
        assert verdicts(disk(job, here=True)) == {"disk": verdict}
    assert verdicts(disk(job, here=False)) == {"disk": SKIPPED}


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


# -- data


def index(folder: Path, name: str, lengths: list[int]) -> str:
    """Write Megatron's files with documents of so many tokens."""
    head = struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1)
    (folder / f"{name}.idx").write_bytes(b"MMIDIDX\x00\x00" + head + struct.pack(f"<{len(lengths)}i", *lengths))
    (folder / f"{name}.bin").write_bytes(bytes(4 * sum(lengths)))
    return str(folder / name)


def with_data(*args: str, task: str = "pretrain", form: str = "megatron") -> Job:
    batch = {"global_batch_size": 4, "micro_batch_size": 1, "seq_length": 10}
    return make_job({"data": {"paths": args, "format": form}, "batch": batch, "task": {"type": task}})


@pytest.mark.parametrize(
    "lengths, task, verdict",
    [
        ([41], "pretrain", OK),
        ([40], "pretrain", ERROR),
        ([3] * 4, "sft", OK),
        ([30] * 3, "sft", ERROR),
    ],
)
def test_megatron_s_files_hold_a_global_batch(tmp_path: Path, lengths: list[int], task: str, verdict: str):
    job = with_data(index(tmp_path, "x_text_document", lengths), task=task)
    assert verdicts(global_batch(job, here=True)) == {"data": verdict}


def test_data_of_two_files_with_weights_count_together(tmp_path: Path):
    args = ("0.3", index(tmp_path, "a", [20]), "0.7", index(tmp_path, "b", [31]))
    assert verdicts(global_batch(with_data(*args), here=True)) == {"data": OK}
    assert set(verdicts(paths(with_data(*args), here=True)).values()) == {OK}


def test_lines_are_counted_and_other_kinds_are_reported_to_be_skipped(tmp_path: Path):
    for name, lines in (("few.jsonl", 3), ("many.jsonl", 9), ("x.parquet", 1)):
        (tmp_path / name).write_text("{}\n" * lines)
    found = {}
    for name in ("few.jsonl", "many.jsonl", "x.parquet"):
        job = with_data(str(tmp_path / name), task="sft", form="messages")
        (check,) = global_batch(job, here=True)
        found[name] = check
    assert [check.verdict for check in found.values()] == [ERROR, OK, SKIPPED]
    assert "batch.global_batch_size=3" in found["few.jsonl"].works
    assert "not counted" in found["x.parquet"].found


def test_paths_that_are_not_there_are_errors_here_and_warnings_for_other_machines(tmp_path: Path):
    job = make_job({"data": {"paths": ("/none/x",), "format": "megatron"}, "checkpoint": {"load": "/none/c"}})
    assert verdicts(paths(job, here=True)) == {"checkpoint.load": ERROR, "data.paths": ERROR}
    assert set(verdicts(paths(job, here=False)).values()) == {WARNING}


# -- hosts


def hosts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    special: str,
    python: str = sys.executable,
    requires: tuple[str, ...] = (),
) -> list[Check]:
    """Ask three hosts behind a stand-in for ssh; n3 answers what `special` prints."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/bash\nwords=("$@")\nif [ "${{words[-2]}}" = n3 ]; then {special}; else exec bash -s; fi\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    start = Start(executor="ssh", settings=Hosts(hosts=("n1", "n2", "n3")), python=python)
    plan = LaunchPlan(nodes=tuple(NodePlan(rank=rank, argv=("x",)) for rank in range(3)), start=start)
    backend = changed(get_backend("megatron_lm"), PYTEST, requires=requires)
    return list(of_nodes(plan, backend, "0.16.1", {}))


def test_hosts_with_the_same_software_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert verdicts(hosts(tmp_path, monkeypatch, "exec bash -s")) == {"pytest": OK, "hosts": OK}


def test_a_host_that_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (check, *_) = hosts(tmp_path, monkeypatch, """echo '{"pytest": "1.0"}'""")[-1:]
    assert (check.what, check.verdict) == ("pytest on all hosts", ERROR)
    assert "n3 1.0" in check.found


def test_a_host_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = hosts(tmp_path, monkeypatch, "echo no route to host >&2; exit 255")
    assert found[0].what == "n3"
    assert "no route to host" in found[0].found


SAID = {
    "another folder": (
        "echo '@clock '$(date +%s); echo '@file '",
        "shared folder",
        ERROR,
        "another folder, or none, on n3",
    ),
    "a clock": ("echo @clock 1000", "clock of n3", WARNING, "behind this machine"),
    "no Python": ("echo bash: python: not found >&2; exit 127", "n3", WARNING, "python: not found"),
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID.keys())
def test_a_host_with_other_folders_or_another_time_is_named(
    case: tuple[str, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    special, what, verdict, text = case
    monkeypatch.chdir(tmp_path)
    found = {check.what: check for check in hosts(tmp_path, monkeypatch, special)}
    assert (found[what].verdict, found[what].found.count(text)) == (verdict, 1)
    assert list(Path.cwd().glob(".launch-doctor-*")) == []


def test_software_is_that_of_the_hosts_python_and_not_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """This Python has pytest; that of the hosts does not."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho \'{"python": "3.10.1", "pytest": "missing"}\'\n')
    python.chmod(0o755)
    found = verdicts(hosts(tmp_path, monkeypatch, "exec bash -s", python=str(python), requires=("module:pytest",)))
    assert found["pytest"] == ERROR


# -- the command


def test_a_cluster_that_does_not_answer_is_an_error(launch: Launch, tmp_path: Path):
    stub = tmp_path / "bin" / "kubectl"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'The connection to the server localhost:8080 was refused' >&2\nexit 1\n")
    stub.chmod(0o755)
    args = ("+recipe=tiny_qwen3", "backend=megatron", "cluster=kubernetes", "cluster.container=img:1", "runtime=native")
    done = launch("doctor", *args, "cluster.volumes=[pvc:d:/d]", "--json", env={"PATH": f"{stub.parent}:/usr/bin:/bin"})
    found = {check["what"]: check for check in done.json["checks"]}
    assert done.code == 1
    assert found["Kubernetes"]["verdict"] == ERROR
    assert "localhost:8080 was refused" in found["Kubernetes"]["found"]
    assert "img:1" in found["software"]["found"]


def test_a_rehearsal_needs_no_backend(launch: Launch):
    done = launch("doctor", "+recipe=tiny_qwen3", "backend=mindformers", "runtime=rehearsal", "--json")
    assert done.code == 0, done
    assert {"torch", "megatron-core"} <= {check["what"] for check in done.json["checks"]}


def test_a_machine_without_a_job(launch: Launch):
    done = launch("doctor", "--json")
    assert done.code == (0 if done.json["ok"] else 1)
    assert set(done.json["backends"]) == set(backend_names())
    wrong = [check for checks in done.json["backends"].values() for check in checks if check["verdict"] == ERROR]
    assert all(check["works"] for check in wrong), "what is missing says how to get it"


def test_a_job_names_everything_that_is_missing_at_once(launch: Launch):
    args = ("+recipe=qwen3_8b", "backend=megatron_lm", "data.paths=[/none/x]", "data.format=megatron")
    done = launch("doctor", *args, env={"MEGATRON_LM_PATH": "/none"})
    assert done.code == 1
    for text in ("MEGATRON_LM_PATH", "git clone --branch core_v0.16.1", "/none/x", "devices"):
        assert text in done.out


def test_run_refuses_what_doctor_finds(launch: Launch, tmp_path: Path):
    args = ("+recipe=tiny_qwen3", "backend=megatron_lm", "data.paths=[/none/x]", "data.format=megatron")
    done = launch("run", *args, "runtime=native", "output_dir=out", "tokenizer.type=NullTokenizer")
    assert done.code == 1
    assert "data.paths: /none/x does not exist" in done.err
    assert not (tmp_path / "out").exists()


def test_files_on_a_volume_of_the_pods_are_not_looked_for_here(tmp_path: Path):
    job = make_job({"data": {"format": "messages", "paths": ("/data/a.jsonl", "/database/b.jsonl")}})
    found = [(check.found.split()[0], check.verdict) for check in paths(job, here=False, mounted=("/data",))]
    assert found == [("/data/a.jsonl", SKIPPED), ("/database/b.jsonl", WARNING)]


# Overrides, backend, and the kind of devices that the job is for.
KINDS_OF_DEVICES = {
    "the default": ((), "megatron", "cuda"),
    "a backend for other devices": ((), "mindspeed", "npu"),
    "hardware that is named": (("hardware=h100_80g",), "mindspeed", "cuda"),
    "no accelerator": (("hardware.device=cpu",), "mindspeed", "cpu"),
}


@pytest.mark.parametrize(("words", "backend", "kind"), KINDS_OF_DEVICES.values(), ids=KINDS_OF_DEVICES)
def test_a_job_without_hardware_is_for_its_backend_s_devices(words: tuple[str, ...], backend: str, kind: str):
    job = compose([f"backend={backend}", *words])
    assert on_devices(job, get_backend(backend)).hardware.device == kind


# -- Ascend


def ascend(env: dict[str, str], *, starts_here: bool) -> Check:
    checks = software(get_backend("mindspeed"), "26.1.0", device="npu", environ=env, starts_here=starts_here)
    (found,) = [check for check in checks if check.what == "cann"]
    return found


def test_a_start_without_the_environment_of_cann_is_refused_where_it_runs(tmp_path: Path):
    assert ascend({}, starts_here=True).verdict == ERROR
    assert "set_env.sh" in ascend({}, starts_here=True).works
    assert ascend({}, starts_here=False).verdict == WARNING  # the nodes have their own
    assert ascend({"ASCEND_HOME_PATH": str(tmp_path)}, starts_here=True).verdict == WARNING  # of an unknown version


def test_hardware_that_the_backend_does_not_run_on_is_answered_with_some_that_it_does():
    job = compose(["+recipe=qwen3_8b", "backend=mindspeed", "hardware=h100_80g"])
    check = devices(job, supported=get_backend("mindspeed").devices)
    assert check.verdict == ERROR
    for word in check.works.split(" · "):
        changed = compose(["+recipe=qwen3_8b", "backend=mindspeed", word])
        assert changed.hardware.device in get_backend("mindspeed").devices

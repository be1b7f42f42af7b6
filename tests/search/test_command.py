"""`launch search` as a user meets it: the winner as a file, interruption, bad input, nothing that fits."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.api import compose
from launcher.cli import main
from launcher.estimate.estimate import estimate
from launcher.pipeline import judge
from launcher.search.begin import begin, varied
from launcher.search.state import load, save
from tests.conftest import ROOT
from tests.waiting import STUCK_SECONDS

# A small search of a few thousand points: seconds even on a busy machine.
SMALL = ["+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", "cluster.nodes=1", "search.max_vpp=2"]
PASSED = ["+recipe=tiny_qwen3", "backend=megatron_lm", "hardware=h100_80g", "cluster.devices_per_node=8"]
AXES = "search.axes=[tp,pp,micro_batch_size,recompute]"


def found_by(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, object]:
    assert main(["search", *args, "--json"]) == code
    tree = json.loads(capsys.readouterr().out)
    assert isinstance(tree, dict)
    return tree


def best_of(tree: dict[str, object]) -> dict[str, object]:
    candidates = tree["candidates"]
    assert isinstance(candidates, list)
    assert isinstance(candidates[0], dict)
    return candidates[0]


@pytest.mark.slow
def test_the_written_winner_is_the_job_that_was_promised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, table, plot = tmp_path / "best.yaml", tmp_path / "all.csv", tmp_path / "all.svg"
    args = [*SMALL, "-o", str(file), "--csv", str(table), "--plot", str(plot)]
    best = best_of(found_by(capsys, *args))
    job = compose([*SMALL, f"+strategy={file}"])
    assert judge(job).ok
    answer = estimate(job)
    assert answer.time is not None
    assert answer.time.step_s == pytest.approx(best["step_s"], rel=1e-6)
    assert answer.fullest.peak_reserved + answer.outside == best["peak_reserved"]
    rows = list(csv.DictReader(table.open()))
    assert list(rows[0])[:5] == ["dp", "tp", "pp", "ep", "peakMem"]
    assert float(rows[0]["step_s"]) == pytest.approx(best["step_s"], rel=1e-4)
    assert "seconds per step" in plot.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.csv", "all.svg", "best.yaml"]


@pytest.mark.slow
def test_a_winner_overrides_what_the_recipe_says_and_is_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recipe has uneven stages and full recomputation: the winner's other ones must not mix with them."""
    file = tmp_path / "best.yaml"
    args = ["+recipe=deepseek_v3", "backend=megatron", "hardware=h200", "search.axes=[tp,pp,ep,stages,recompute]"]
    best = best_of(found_by(capsys, *args, "-o", str(file)))
    job = compose([*args, f"+strategy={file}"])
    assert judge(job).ok
    answer = estimate(job)
    assert answer.time is not None
    assert answer.time.step_s == pytest.approx(best["step_s"], rel=1e-6)


def test_axes_keep_the_jobs_value_where_they_are_not_searched(capsys: pytest.CaptureFixture[str]) -> None:
    tree = found_by(capsys, *SMALL, "search.fix=[tp,recompute]", "parallel.tp=2")
    candidates = tree["candidates"]
    assert isinstance(candidates, list)
    assert {each["tp"] for each in candidates} == {2}
    limited = found_by(capsys, *SMALL, "search.max_tp=1", "search.max_pp=2", "search.max_micro_batch_size=1")
    candidates = limited["candidates"]
    assert isinstance(candidates, list)
    assert {each["tp"] for each in candidates} == {1}
    assert max(each["pp"] for each in candidates) <= 2


def test_several_backends_accept_what_is_found_for_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["+recipe=qwen3_8b", "hardware=ascend_910b", "cluster.nodes=1", "model.pretrained=false", AXES]
    best = best_of(found_by(capsys, *args, "--backends", "mindformers,mindspeed"))
    overrides = best["overrides"]
    assert isinstance(overrides, dict)
    changes = [f"{path}={'null' if value is None else value}" for path, value in overrides.items() if value != []]
    for backend in ("mindformers", "mindspeed"):
        assert judge(compose([*args, f"backend={backend}", *changes])).ok


def test_where_nothing_fits_the_closest_three_and_what_they_lack(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["+recipe=llama3_70b", "backend=megatron", "hardware=h100_80g", "cluster.nodes=1", AXES]
    assert main(["search", *args]) == 1
    captured = capsys.readouterr().out
    assert captured.startswith("no layout fits: the closest exceeds memory by ")
    table = captured.partition("exceeds by")[2]
    shown = [line.split() for line in table.splitlines() if line[:1].isdigit()]
    tree = found_by(capsys, *args, code=1)
    nearest = tree["nearest"]
    assert isinstance(nearest, list)
    lacks = [each["lacks"] for each in nearest]
    assert lacks == sorted(lacks)
    assert lacks[0] > 0
    assert [row[-2] for row in shown] == [f"{lack / 2**30:.1f}" for lack in lacks]


NOTHING_FOUND = {
    "more devices or more axes": (["+recipe=llama3_70b", AXES], ["search.axes=[]", "cluster.nodes=4"]),
    "a fixed size that divides no devices": (
        ["+recipe=qwen3_8b", "search.fix=[tp]", "parallel.tp=3"],
        ["search.fix=[]", "parallel.tp=2", "parallel.tp=4"],
    ),
    "a fixed size that the heads refuse": (
        [
            *("+recipe=qwen3_8b", "search.fix=[tp]", "parallel.tp=2"),
            *("model.num_attention_heads=7", "model.num_key_value_heads=7"),
        ],
        ["search.fix=[]", "parallel.tp=1"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "works"), NOTHING_FOUND.values(), ids=list(NOTHING_FOUND))
def test_where_nothing_is_found_fields_that_work_are_named(
    capsys: pytest.CaptureFixture[str], overrides: list[str], works: list[str]
) -> None:
    args = ["backend=megatron", "hardware=h100_80g", "cluster.nodes=1", *overrides]
    assert main(["search", *args]) == 1
    assert f"  works: {' · '.join(works)}\n" in capsys.readouterr().out
    assert found_by(capsys, *args, code=1)["works"] == works
    for change in works:
        assert best_of(found_by(capsys, *args, change))


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    args = ["+recipe=deepseek_v3", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=128"]
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", "search", *args, "--resume", "state.json", "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    state = tmp_path / "state.json"

    def found_something() -> bool:
        return state.exists() and bool(json.loads(state.read_text())["found"]["best"])

    while process.poll() is None and not found_something():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=STUCK_SECONDS)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    stopped = json.loads(out)
    assert not stopped["complete"]
    assert 0 < stopped["settled"] < stopped["points"]
    assert stopped["candidates"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_what_goes_on_finds_what_an_uninterrupted_search_finds(share: float, tmp_path: Path) -> None:
    job, file = compose([*SMALL, "cluster.nodes=2"]), tmp_path / "state.json"
    whole = begin(job)
    for _ in whole.run():
        pass
    first = begin(job)
    run = first.run()
    for _ in range(int(share * len(first.layouts))):
        done = next(run)
    save(file, "mark", done, first.found)
    state = load(file, "mark")
    assert state is not None
    second = begin(job)
    for _ in second.run(*state):
        pass
    assert second.found.complete
    assert second.found.best == whole.found.best
    assert second.found.points == whole.found.points
    assert second.found.settled == whole.found.settled


def test_the_state_of_another_search_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    found_by(capsys, *SMALL, AXES, "--resume", str(state))
    assert main(["search", *SMALL, AXES, "batch.seq_length=2048", "--resume", str(state)]) == 1
    assert "the state of another search" in capsys.readouterr().err
    state.write_text("{")
    assert main(["search", *SMALL, AXES, "--resume", str(state)]) == 1
    assert "not the state of a search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["backend=megatron", "hardware=h100_80g"], 1, "model.num_hidden_layers is not known"),
        (["+recipe=qwen3_8b", "backend=megatron"], 1, "the device's memory is not known"),
        ([*SMALL, "batch.global_batch_size=null"], 1, "batch.global_batch_size is not set"),
        ([*SMALL, "schedule.lr_warmup_iters=1000000"], 1, "warm-up"),
        (
            ["+recipe=qwen3_8b_gkd", "backend=mindformers", "hardware=ascend_910b"],
            1,
            "teacher_model is not an argument",
        ),
        ([*PASSED, "+backend.args.weight-decay-incr-style=linear"], 1, "MLM-WD-GROWS"),
        ([*SMALL, "search.axes=[tq]"], 2, "search.axes"),
        ([*SMALL, "--top", "0"], 2, "--top 0"),
        ([*SMALL, "--csv", "x.txt"], 2, "--csv x.txt"),
        ([*SMALL, "-o", "/no/such/folder/x.yaml"], 2, "there is no folder"),
        ([*SMALL, "--backends", "nothing"], 2, "nothing"),
        ([*SMALL, "--profile-devices", "0"], 2, "--profile-devices 0"),
        ([*SMALL, "--profile-result", "/no/such.csv"], 2, "/no/such.csv: there is no such file"),
        ([*SMALL, "--space", "nobody"], 2, "--space"),
    ],
)
def test_bad_input(args: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        got = main(["search", *args])
    except SystemExit as error:
        got = int(str(error.code))
    captured = capsys.readouterr()
    assert got == code
    assert text in captured.err + captured.out
    assert "Traceback" not in captured.err


def test_a_balanced_job_can_be_searched_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Layers recomputed per chunk are of the job's own chunks: the search starts from none."""
    args = ["+recipe=qwen3_8b", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=1", "parallel.pp=2"]
    again = ["recompute.granularity=full", "recompute.method=block", "recompute.num_layers=3"]
    best = best_of(found_by(capsys, *args, *again, "recompute.layers_per_chunk=[3,1]", AXES, "batch.seq_length=4096"))
    overrides = best["overrides"]
    assert isinstance(overrides, dict)
    assert overrides["recompute.layers_per_chunk"] == []


# Name: overrides, the warning's fix; None: no warning.
VARIED = {
    "set by hand": (["parallel.tp=2"], "search.fix=[tp]"),
    "several, and one that is fixed": (
        ["parallel.tp=2", "search.fix=[cp]", "recompute.granularity=full"],
        "search.fix=[cp,tp,recompute]",
    ),
    "kept": (["parallel.tp=2", "search.fix=[tp]"], None),
    "meant to vary": (["parallel.tp=2", "search.axes=[tp,pp]"], None),
    "another axis": (["parallel.tp=2", "search.axes=[pp]"], None),
    "only the recipe's": ([], None),
}


@pytest.mark.parametrize("name", VARIED)
def test_values_that_the_search_varies_are_named(name: str) -> None:
    args, fix = VARIED[name]
    findings = varied(compose([*SMALL, *args]))
    assert [str(finding.fixes[0]) for finding in findings] == ([fix] if fix else [])


def test_a_value_that_is_varied_is_a_warning_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    args = [*SMALL, "search.fix=[pp,vpp,cp,recompute,stages]", "parallel.tp=3", "--top", "1"]
    (finding,) = found_by(capsys, *args)["findings"]  # type: ignore[misc]
    assert (finding["rule"], finding["severity"], finding["fields"]) == ("SEARCH-VARIES", "warning", ["parallel.tp"])
    assert main(["search", *args]) == 0
    assert "the search varies parallel.tp" in capsys.readouterr().err


def test_a_contradicting_topology_is_refused_before_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*PASSED[:2], "hardware=gb300", "cluster.nodes=4", "cluster.devices_per_node=4"]
    assert main(["search", *words, "hardware.domain_devices=10", AXES]) == 1
    said = capsys.readouterr()
    assert "EST-TOPOLOGY" in said.out + said.err
    assert "works: hardware.domain_devices=8" in said.out + said.err

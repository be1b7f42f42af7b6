"""The profile loop: short jobs that measure what the candidates' layers take, and candidates ranked by that."""

import csv
import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("highspy")

from launcher.api import compose
from launcher.balance.from_job import layer_times
from launcher.balance.measured import with_measured
from launcher.balance.profile import TIMES, BadTable, Measured, read_table, sizes_of
from launcher.cli import main
from launcher.estimate.estimate import estimate
from launcher.job import Job, with_values
from launcher.pipeline import judge
from launcher.search.points import nothing_recomputed
from launcher.search.profile import CannotShrink, emit, shrunk

HARDWARE = {"megatron": "h100_80g", "megatron_lm": "h100_80g", "mindspeed": "ascend_910b", "mindformers": "ascend_910b"}
SMALL = ["+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g", "cluster.nodes=2", "search.max_vpp=2"]
NARROW = [
    *SMALL,
    "search.fix=[cp,etp,micro_batch_size,dispatcher,expert_overlap,group_order,dp_overlap,tp_overlap,cuda_graphs,offload,offload_modules]",
    "parallel.etp=1",
    "--top",
    "3",
]
HEADER = "dp,tp,pp,ep,vp,dmratio,bfratio,hratio,moe_bw,re_grow_ration"


def deepseek(backend: str, *more: str) -> Job:
    return compose(
        ["+recipe=deepseek_v3", f"backend={backend}", f"hardware={HARDWARE[backend]}", "model.pretrained=false", *more]
    )


@pytest.mark.parametrize("backend", HARDWARE)
def test_a_profile_keeps_what_a_layer_does_and_runs(backend: str) -> None:
    job = deepseek(backend, "cluster.nodes=128")
    small = shrunk(job, 64)
    assert small.cluster.world_size == 64
    assert small.parallel.pp == 2
    for name in ("tp", "cp", "ep", "etp", "sequence_parallel"):
        assert getattr(small.parallel, name) == getattr(job.parallel, name), name
    assert small.batch.micro_batch_size == job.batch.micro_batch_size
    assert small.model.hidden_size == job.model.hidden_size
    assert small.model.num_experts == job.model.num_experts
    assert judge(small).ok
    kinds = {chunk for stage in stages(small) for chunk in stage}
    assert kinds == {"dense again", "dense", "moe again", "moe"}
    assert estimate(small, changes=False).fits


def test_a_profile_has_no_recomputation_of_the_stages_that_it_lacks() -> None:
    kept = ("recompute.granularity=selective", "recompute.method=null", "recompute.num_layers=null")
    parts = ("recompute.modules=[mla_up_proj]", "recompute.selective_layers_per_chunk=[0,5,1,0,0,0,0,0]")
    job = deepseek("mindformers", "cluster.nodes=128", "parallel.pp=8", *kept, *parts)
    assert judge(job).ok
    assert judge(shrunk(job, 64)).ok


def stages(job: Job) -> list[list[str]]:
    """Return what a profile measures: per stage, its layers by kind and whether they are recomputed."""
    layers, again = (job.model.num_hidden_layers or 0) // job.parallel.pp, job.recompute.num_layers or 0
    return [
        [
            ("dense" if stage * layers + n < job.model.first_k_dense_replace else "moe") + (" again" * (n < again))
            for n in range(layers)
        ]
        for stage in range(job.parallel.pp)
    ]


@pytest.mark.parametrize(
    ("devices", "pp", "dp"),
    [(1024, 8, 32), (512, 4, 32), (256, 2, 32), (128, 2, 16), (64, 2, 8), (32, 1, 8)],
)
def test_stages_shrink_first_then_replicas(devices: int, pp: int, dp: int) -> None:
    small = shrunk(deepseek("megatron", "cluster.nodes=128"), devices)
    assert (small.parallel.pp, small.parallel.dp) == (pp, dp)


def test_experts_that_need_more_devices_cannot_be_profiled() -> None:
    with pytest.raises(CannotShrink, match="needs 32 devices: tp 4 × cp 1 × dp 8, which holds ep 32"):
        shrunk(deepseek("megatron", "cluster.nodes=128"), 16)


@pytest.mark.parametrize("backend", HARDWARE)
def test_the_written_scripts_are_shell_and_the_table_has_a_row_for_each(backend: str, tmp_path: Path) -> None:
    jobs = [deepseek(backend), deepseek(backend, "parallel.ep=16"), deepseek(backend, "parallel.vpp=2")]
    profiles = emit(jobs[:2], tmp_path, 64)
    rows = list(csv.DictReader((tmp_path / "profile.csv").open()))
    assert [row["profile"] for row in rows] == [profile.file.name for profile in profiles if profile.file]
    assert [row["ep"] for row in rows] == ["32", "16"]
    for row in rows:
        assert {row[name] for name in TIMES} == {""}
        script = tmp_path / row["profile"]
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
        assert "checkpoints" not in script.read_text()
    assert len(list(tmp_path.glob("*.yaml"))) == (2 if backend == "mindformers" else 0)


def fill(path: Path, job: Job, scale: float = 1.0) -> None:
    """Fill in the table with the estimate's own times, all of them `scale` times as long."""
    rows = list(csv.DictReader(path.open()))
    for row in rows:
        sizes = {f"parallel.{name}": int(row[name]) for name in ("tp", "pp", "ep", "etp")}
        plain = with_values(job, {**sizes, **nothing_recomputed(), "parallel.vpp": None})
        problem = layer_times(plain)
        layer, last = problem.kinds[-1], problem.fixed_of(problem.parts - 1)
        row["dmratio"] = str(problem.kinds[0].forward / layer.forward)
        row["bfratio"] = str(layer.modes[0].backward / layer.forward)
        row["re_grow_ration"] = str((layer.modes[1].backward - layer.modes[0].backward) / layer.forward)
        row["hratio"] = str(last.forward / layer.forward)
        row["moe_bw"] = str(1e3 * scale * layer.forward)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def ranking_of(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, object]]:
    assert main(["search", *args, "--json"]) == 0
    ranking = json.loads(capsys.readouterr().out)["ranking"]
    assert isinstance(ranking, list)
    return ranking


@pytest.mark.slow
def test_measured_times_override_the_estimate_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, best = tmp_path / "measure", tmp_path / "best.yaml"
    assert main(["search", *NARROW, "--emit-profile", str(folder), "--profile-devices", "16"]) == 0
    assert "fill in" in capsys.readouterr().out
    table, job = folder / "profile.csv", compose(NARROW[:-2])
    fill(table, job)
    same = ranking_of(capsys, *NARROW, "--profile-result", str(table))
    for each in same:
        assert "moe_bw" in str(each["measured"])
        assert each["step_s"] == pytest.approx(each["estimated_step_s"], rel=0.05)
    fill(table, job, scale=2.0)
    twice = ranking_of(capsys, *NARROW, "--profile-result", str(table), "-o", str(best))
    for each in twice:
        assert 1.7 < float(str(each["step_s"])) / float(str(each["estimated_step_s"])) < 2.1
    chosen = compose([*NARROW[:-2], f"+strategy={best}"])
    assert judge(chosen).ok
    assert sizes_of(chosen)["pp"] == twice[0]["pp"]


@pytest.mark.slow
def test_a_layout_measured_to_be_slow_or_too_big_falls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = [*NARROW[:-1], "12"]
    assert main(["search", *args, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["candidates"][0]
    sizes = [str(first[name]) for name in ("dp", "tp", "pp", "ep")]
    slow = tmp_path / "slow.csv"
    slow.write_text(f"{HEADER}\n{','.join(sizes)},1,1,2,1.5,500,1\n")
    ranking = ranking_of(capsys, *args, "--profile-result", str(slow))
    assert [ranking[-1][name] for name in ("dp", "tp", "pp", "ep")] == [first[n] for n in ("dp", "tp", "pp", "ep")]
    assert ranking[0]["measured"] == []
    big = tmp_path / "big.csv"
    ep = int(sizes[3])
    big.write_text(
        f"{HEADER},ep1,peakMem1,ep2,peakMem2\n{','.join(sizes)},1,1,2,1.5,1,1,{2 * ep},90000,{4 * ep},85000\n"
    )
    last = ranking_of(capsys, *args, "--profile-result", str(big))[-1]
    assert last["fits"] is False
    assert last["peak"] == pytest.approx(2**20 * 100_000)


def test_a_table_as_taylor_writes_it_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "profiling_result.csv"
    path.write_text(f"\ufeff{HEADER}\n128,1,8,16,1,0.1,0.2,0.3,100,0.34\n128,1,8,8,1,,,,,\n", encoding="utf-8")
    table = read_table(path, dense=True)
    assert table.empty == (3,)
    assert table.rows == (
        Measured(
            line=2,
            sizes={"dp": 128, "tp": 1, "pp": 8, "ep": 16},
            dense=0.1,
            backward=0.2,
            recompute=0.34,
            head=0.3,
            layer=0.1,
            peak=None,
        ),
    )


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("", ["x.csv:1: empty"]),
        ("dp,tp,pp,ep\n", ["x.csv:1: there is no column dmratio", "x.csv:1: there is no column moe_bw"]),
        (f"{HEADER},dp\n", ["x.csv:1: column dp appears twice"]),
        (f"{HEADER}\n", ["x.csv: no row is filled in"]),
        (f"{HEADER}\n1,1,1,1,1,1,nan,1,1,1\n", ["x.csv:2: column bfratio: nan"]),
        (f"{HEADER}\n\n1,1,1,1,1,1,1,1,-3,1\n", ["x.csv:3: column moe_bw: -3"]),
        (f"{HEADER}\n1,1,1,1,1,1,1,1,0,1\n", ["x.csv:2: column moe_bw: 0"]),
        (f"{HEADER}\n1,1,1,1,1,1e999,1,1,1,1\n", ["x.csv:2: column dmratio: 1e999"]),
        (f"{HEADER}\n1,two,1,1,1,1,1,1,1,1\n", ["x.csv:2: column tp: two"]),
        (f"{HEADER}\n1,1,0,1,1,1,1,1,1,\n", ["x.csv:2: column pp: 0", "x.csv:2: column re_grow_ration: empty"]),
        (f"{HEADER}\n1,1,1\n", ["x.csv:2: 3 cells"]),
        (f"{HEADER}\n1,1,1,1,1,1,1,1,1,1\n1,1,1,1,2,1,1,1,1,1\n", ["x.csv:3: the same layout as line 2"]),
        (f"{HEADER},ep1,peakMem1,ep2,peakMem2\n1,1,1,1,1,1,1,1,1,1,8,5,8,6\n", ["x.csv:2: column ep2: both peaks"]),
        (f"{HEADER},ep1,peakMem1,ep2,peakMem2\n1,1,1,1,1,1,1,1,1,1,8,5,,\n", ["x.csv:2: column ep2: empty"]),
    ],
)
def test_what_cannot_be_read_is_named_by_line_and_column(text: str, mistakes: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(BadTable) as caught:
        read_table(path, dense=True)
    for mistake in mistakes:
        assert any(f"{tmp_path}/{mistake}" in captured for captured in caught.value.mistakes), caught.value.mistakes


def test_the_command_names_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{HEADER}\n1,1,1,1,1,1,nan,1,-1,1\n")
    for verb in ("search", "balance"):
        assert main([verb, *SMALL, "parallel.pp=2", "--profile-result", str(path)]) == 1
        captured = capsys.readouterr().err
        assert f"{path}:2: column bfratio: nan" in captured
        assert f"{path}:2: column moe_bw: -1" in captured


def test_balance_takes_the_row_of_its_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{HEADER}\n16,4,8,32,1,0.4,2,0.1,20,1\n16,4,8,16,1,0.4,2,9,20,1\n")
    args = ["+recipe=deepseek_v3", "backend=megatron", "hardware=h100_80g", "--quick", "--profile-result", str(path)]
    args.append("--keep-recompute")
    last = []
    for more in ([], ["parallel.ep=16", "hardware.memory_gib=141"]):
        assert main(["balance", *args, *more, "--json"]) == 0
        tree = json.loads(capsys.readouterr().out)
        assert tree["measured"]
        last.append(tree["layers"][0][-1])
    assert last[1] < last[0]
    assert main(["balance", *args, "parallel.ep=64"]) == 1
    assert "nothing was measured for dp=16, tp=4, pp=8, ep=64" in capsys.readouterr().err


def test_the_jobs_own_recomputation_counts_as_measured() -> None:
    """Where recomputation is not chosen, a layer's backward holds it: bfratio alone would leave it out."""
    args = [*SMALL, "parallel.pp=2", "recompute.granularity=full", "recompute.method=uniform"]
    problem = layer_times(compose([*args, "recompute.num_layers=1", "recompute.modules=[]"]), choose=False)
    row = Measured(line=1, sizes={}, dense=None, backward=2.0, recompute=0.5, head=1.0, layer=4.0, peak=None)
    assert [mode.backward for mode in with_measured(problem, row).kinds[0].modes] == [2.0 * 4.0 + 0.5 * 4.0]


def test_dense_layers_between_layers_with_experts_keep_their_own_ratio() -> None:
    job = compose([*SMALL, "parallel.pp=2", "model.moe_layer_freq=2"])
    problem = layer_times(with_values(job, nothing_recomputed()))
    row = Measured(line=1, sizes={}, dense=0.5, backward=2.0, recompute=1.0, head=1.0, layer=1.0, peak=None)
    measured = with_measured(problem, row)
    assert {(kind.name, kind.forward) for kind in measured.kinds} == {("dense", 0.5), ("moe", 1.0)}

"""`launch balance` as a user meets it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("highspy")

from launcher.api import compose
from launcher.balance.problem import Fixed, Kind, Mode, Problem
from launcher.balance.solve import balance_any
from launcher.cli import main
from launcher.estimate.estimate import estimate
from launcher.job import value_at
from launcher.pipeline import judge
from tests.conftest import Launch

pytestmark = pytest.mark.slow

DEEPSEEK = ["+recipe=deepseek_v3", "hardware=h100_80g", "model.pretrained=false"]
TIGHT = [
    *("+recipe=qwen3_8b", "backend=megatron", "hardware=a100_80g", "parallel.tp=1", "parallel.pp=4"),
    *("cluster.nodes=1", "batch.micro_batch_size=2", "batch.seq_length=8192"),
]


def answer_of(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert main(["balance", *args, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert isinstance(tree, dict)
    return tree


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("backend", ["megatron", "megatron_lm", "mindspeed", "mindformers"])
def test_the_written_strategy_is_accepted_and_as_fast_as_promised(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "balanced.yaml"
    args = [*DEEPSEEK, f"backend={backend}"]
    tree = answer_of(capsys, *args, "-o", str(file))
    assert main(["check", *args, f"+strategy={file}", "--json"]) == 0
    job = compose([*args, f"+strategy={file}"])
    time = estimate(job).time
    assert time is not None
    after, before = tree["after"], tree["before"]
    assert isinstance(after, dict)
    assert isinstance(before, dict)
    assert time.step_s == pytest.approx(after["step_s"], rel=1e-6)
    assert after["step_s"] < 0.95 * before["step_s"]


def test_the_job_as_it_is_has_the_figures_of_its_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    args = [*SHORT, "backend=megatron_lm", "model.pretrained=false", "recompute.granularity=full"]
    args += ["recompute.method=uniform", "recompute.num_layers=1"]
    assert main(["estimate", *args, "--json"]) in (0, 1)
    own = json.loads(capsys.readouterr().out)
    tree = answer_of(capsys, *args, "--quick")
    peaks = [stage["peak_reserved"] for stage in own["memory"]["per_stage"]]
    assert tree["job"] == {"step_s": own["time"]["step_s"], "peak_reserved": peaks}
    assert tree["outside"] == own["memory"]["outside"]
    main(["balance", *args, "--quick"])
    assert f"the job as it is: step {own['time']['step_s']:.4g} s, " in capsys.readouterr().out


def test_a_job_whose_own_split_is_none_has_no_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer_of(capsys, *TIGHT, "parallel.vpp=2", "--quick")["job"] is None


def test_the_written_strategy_keeps_what_else_the_former_one_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former, file = tmp_path / "former.yaml", tmp_path / "balanced.yaml"
    former.write_text(
        "# @package _global_\noffload: {attention: true}\nmoe: {shared_expert_overlap: true}\nrecompute: {norm: true}\n"
    )
    args = [*SHORT, "backend=mindformers"]
    tree = answer_of(capsys, *args, f"+strategy={former}", "--quick", "-o", str(file))
    job = compose([*args, f"+strategy={file}"])
    assert (job.offload.attention, job.moe.shared_expert_overlap) == (True, True)
    time, after = estimate(job).time, tree["after"]
    assert time is not None
    assert isinstance(after, dict)
    assert time.step_s == pytest.approx(after["step_s"], rel=1e-6)


def test_an_old_version_without_layouts_gets_a_list_of_layers_per_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*DEEPSEEK, "backend=mindspeed", "backend.version=2.1.0"]
    tree = answer_of(capsys, *args, "-o", str(tmp_path / "balanced.yaml"))
    layers = tree["layers"]
    assert isinstance(layers, list)
    judged = judge(compose([*args, f"+strategy={tmp_path / 'balanced.yaml'}"]), fixes=False)
    assert judged.native.get("num-layer-list") == ",".join(str(sum(stage)) for stage in zip(*layers, strict=True))
    assert sum(map(sum, layers)) == 61


def test_layers_are_recomputed_where_memory_forces_it(capsys: pytest.CaptureFixture[str]) -> None:
    tree = answer_of(capsys, *TIGHT)
    overrides, after = tree["overrides"], tree["after"]
    assert isinstance(overrides, dict)
    assert isinstance(after, dict)
    assert overrides["recompute.granularity"] == "full"
    assert max(after["peak_reserved"]) < int(tree["capacity"])  # type: ignore[call-overload]


SHORT = ["+recipe=deepseek_v3", "hardware=ascend_910b", "hardware.memory_gib=52", "model.pretrained=false"]
# Name: overrides, what the job itself recomputes, what says so in the strategy that is written.
TREATED: dict[str, tuple[list[str], list[str], set[str]]] = {
    "in full, and in part, stage by stage": (
        [*SHORT, "backend=mindformers"],
        [],
        {"recompute.selective_layers_per_chunk", "recompute.modules"},
    ),
    "what the user says is recomputed in part": (
        [*SHORT, "backend=mindformers"],
        ["recompute.granularity=selective", "recompute.modules=[mla_up_proj]"],
        {"recompute.selective_layers_per_chunk", "recompute.modules"},
    ),
    "the same parts of every layer": ([*SHORT, "backend=megatron"], [], {"recompute.modules"}),
    "the activation function and norms of every layer": (
        [*SHORT, "backend=mindspeed", "hardware.memory_gib=56"],
        ["recompute.activation=true"],
        {"recompute.activation"},
    ),
}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", TREATED)
def test_layers_are_recomputed_in_part_as_far_as_the_backend_takes_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args, own, fields = TREATED[name]
    file = tmp_path / "balanced.yaml"
    tree = answer_of(capsys, *args, *own, "--quick", "-o", str(file))
    assert main(["check", *args, f"+strategy={file}", "--json"]) == 0
    job = compose([*args, f"+strategy={file}"])
    assert all(value_at(job, path) for path in fields)
    in_part, after = tree["recomputed_in_part"], tree["after"]
    assert isinstance(in_part, list)
    assert isinstance(after, dict)
    assert sum(in_part[0]) > 0
    if "recompute.selective_layers_per_chunk" in fields:
        assert list(job.recompute.selective_layers_per_chunk) == in_part[0]
        assert len(set(in_part[0])) > 1
    # What is promised is what the estimate says of the job that was written, and it fits.
    answer = estimate(job)
    assert answer.fits
    assert answer.time is not None
    assert answer.time.step_s == pytest.approx(after["step_s"], rel=1e-6)


def test_recomputing_in_part_takes_less_time_than_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    from launcher.balance.choices import choices_of
    from launcher.balance.solve_job import balance_job

    job = compose([*SHORT, "backend=mindformers"])
    some = balance_job(job, quick=True)
    posed, _, _ = choices_of(job, recompute=True, empty_ends=False)
    _, full = balance_any([replace(posed.problem, in_order=True)], quick=True)
    assert some.balanced.time < 0.99 * full.time
    assert some.balanced.bound <= some.balanced.time


def test_what_a_backend_cannot_express_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["balance", *SHORT, "backend=megatron", "--quick"]) == 0
    captured = capsys.readouterr().out
    assert "num_layers holds for all chunks" in captured
    assert "selective recompute holds for all layers or none" in captured
    assert main(["balance", *SHORT, "backend=mindformers", "--quick"]) == 0
    assert "not chosen" not in capsys.readouterr().out


def test_measured_ratios_move_layers_away_from_a_heavy_head(capsys: pytest.CaptureFixture[str]) -> None:
    light = answer_of(capsys, *DEEPSEEK, "--head-loss", "0.1")["layers"]
    heavy = answer_of(capsys, *DEEPSEEK, "--head-loss", "5")["layers"]
    assert isinstance(light, list)
    assert isinstance(heavy, list)
    assert heavy[0][-1] < light[0][-1]


def test_pictures_and_program_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot, program = tmp_path / "b.svg", tmp_path / "b.mps"
    assert main(["balance", *TIGHT, "--plot", str(plot), "--mps", str(program)]) == 0
    assert "before (even)" in plot.read_text()
    assert "after (balanced)" in plot.read_text()
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(program))
    assert solver.getNumCol() > 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.mps", "b.svg"]


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["+recipe=qwen3_8b", "parallel.pp=1", "hardware=h100_80g"], 1, "no stages to balance"),
        ([*DEEPSEEK, "hardware.memory_gib=20"], 1, "GiB short"),
        ([*DEEPSEEK, "--gap", "2"], 2, "--gap 2"),
        ([*DEEPSEEK, "--time-limit", "nan"], 2, "--time-limit nan"),
        ([*DEEPSEEK, "--head-loss", "-1"], 2, "--head-loss -1"),
        ([*DEEPSEEK, "--plot", "x.doc"], 2, "--plot x.doc"),
        ([*DEEPSEEK, "-o", "/no/such/folder/x.yaml"], 2, "there is no folder"),
        ([*DEEPSEEK, "parallel.pp=64", "parallel.vpp=2"], 1, "cannot fill 128 chunks"),
    ],
)
def test_bad_input(args: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["balance", *args]) == code
    captured = capsys.readouterr().err
    assert text in captured
    assert "Traceback" not in captured


def test_measured_ratios_replace_only_what_is_given() -> None:
    from launcher.balance.measured import with_ratios

    modes = (Mode(name="none", backward=4, keeps=1), Mode(name="full", backward=6, keeps=0))
    kinds = (
        Kind(name="dense", count=1, forward=1, memory=0, modes=modes),
        Kind(name="moe", count=3, forward=2, memory=0, modes=modes),
    )
    problem = Problem(
        stages=2,
        chunks=1,
        micro_batches=2,
        kinds=kinds,
        limits=(9, 9),
        fixed={1: Fixed(forward=1, backward=2)},
    )
    assert with_ratios(problem) == problem
    dense = with_ratios(problem, dense=1.0).kinds[0]
    assert (dense.forward, dense.modes[0].backward, dense.modes[1].backward) == (2, 8, 12)
    again = with_ratios(problem, recompute=0.25).kinds[1]
    assert [mode.backward for mode in again.modes] == [4, 4.5]
    assert with_ratios(problem, head=2.0, backward=1.5).fixed_of(1) == Fixed(forward=4, backward=6)


def test_fewer_micro_batches_than_stages_are_balanced(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", "parallel.pp=4", "batch.global_batch_size=4"]
    tree = answer_of(capsys, *args)
    (layers,) = tree["layers"]  # type: ignore[misc]
    assert (len(layers), sum(layers)) == (4, 36)


def test_nothing_but_json_is_on_the_standard_output(launch: Launch) -> None:
    """HiGHS 1.16 announces itself there, below Python's own stream."""
    assert json.loads(launch("balance", *TIGHT, "--json").out)["layers"]

"""Charts say what the estimate, the search and Megatron's order of ranks say."""

import json

import pytest

from launcher import api
from launcher.estimate import estimate
from launcher.job import with_values
from launcher.report.figures import devices_chart, memory_chart, pareto_chart, peak_chart, step_chart, timeline_chart
from launcher.report.figures.pareto import front
from launcher.report.placement import placement_of, shown_ranks

GIB = 2**30


def composed(*words: str) -> api.Job:
    return api.compose(["backend=megatron", "hardware=h100_80g", *words], recipe="qwen3_moe")


@pytest.fixture(scope="module")
def job() -> api.Job:
    return composed("cluster.nodes=4", "parallel.tp=2", "parallel.pp=4", "parallel.ep=4")


def test_memory_adds_up_to_the_estimate_and_folds_equal_stages(job):
    answer = estimate(job)
    chart = memory_chart(answer)
    bars = [trace for trace in chart.data if trace["type"] == "bar"]
    peaks = [sum(trace["x"][row] for trace in bars) for row in range(len(chart.rows))]
    assert max(peaks) == pytest.approx(answer.fullest.peak_reserved / GIB, abs=0.01)
    assert len(chart.rows) <= len(answer.stages)
    many = estimate(composed("cluster.nodes=16", "parallel.tp=1", "parallel.pp=16", "parallel.ep=8"))
    assert all(
        len(trace["x"]) == len(memory_chart(many).rows) for trace in memory_chart(many).data if trace["type"] == "bar"
    )


def test_the_timeline_has_every_step_of_every_stage_within_the_step(job):
    answer = estimate(job, timeline=True)
    chart = timeline_chart(answer)
    assert chart is not None
    assert answer.time is not None
    count = sum(len(trace["x"]) for trace in chart.data if trace["name"] != "reduction, optimizer")
    assert count == len(answer.timeline)
    last = max(base + size for trace in chart.data for base, size in zip(trace["base"], trace["x"], strict=True))
    assert last == pytest.approx(answer.time.step_s, rel=1e-3)


def test_a_long_step_is_drawn_at_its_ends_and_says_what_is_left_out():
    job = composed("cluster.nodes=2", "parallel.tp=1", "parallel.pp=8", "parallel.ep=2", "batch.global_batch_size=2048")
    answer = estimate(job, timeline=True)
    chart = timeline_chart(answer)
    assert chart is not None
    assert len(answer.timeline) > 3000
    assert len(json.dumps(chart.figure)) < 400_000
    assert f"{len(answer.timeline) - 3000:,} steps" in chart.summary


def test_no_times_no_timeline(job):
    assert timeline_chart(estimate(job)) is None
    assert timeline_chart(estimate(composed("hardware.bf16_tflops=null"), timeline=True)) is None


def test_ten_thousand_devices_are_a_few_rows():
    job = composed("cluster.nodes=1250", "parallel.tp=2", "parallel.pp=5", "parallel.ep=4")
    placement = placement_of(job)
    assert placement is not None
    chart = devices_chart(placement)
    assert len(chart.layout["yaxis"]["tickvals"]) == 5
    assert len(json.dumps(chart.figure)) < 100_000
    assert "10,000 ranks" in chart.summary
    assert "249 more" in chart.layout["yaxis"]["ticktext"][0] or "–" in chart.layout["yaxis"]["ticktext"][0]


@pytest.mark.parametrize("words", [("parallel.tp=3",), ("parallel.tp=2", "parallel.pp=5"), ("parallel.ep=64",)])
def test_sizes_that_do_not_divide_have_no_placement(words):
    assert placement_of(composed("cluster.nodes=2", *words)) is None


def test_ranks_as_text():
    assert [shown_ranks(r) for r in (range(3, 4), range(8), range(0, 8, 4), range(0, 64, 8))] == [
        *("3", "0–7", "0, 4", "0, 8, 16 … 56 (8)"),
    ]


@pytest.mark.slow
def test_the_front_is_not_beaten(job):
    found = api.search(job, top=3, progress=lambda done, total, found: done < 40).found
    chart = pareto_chart(job, found)
    assert chart is not None
    best = front(found.fitting)
    assert len(chart.data[1]["x"]) == len(best)
    assert not [(a, b) for a in best for b in found.fitting if b.step_s < a.step_s and b.peak < a.peak]


def test_jobs_side_by_side(job):
    answers = {"a": estimate(job), "b": estimate(with_values(job, {"parallel.tp": 1}))}
    steps = step_chart(answers)
    assert steps is not None
    assert [row[0] for row in steps.rows] == ["a", "b"]
    assert len(peak_chart(answers).rows) == 2


@pytest.mark.slow
def test_labels_are_drawn_literally(job):
    """Plotly reads `<a href>` in every text, and takes a label such as 1 for a number."""
    answer = estimate(job)
    for chart in (step_chart({"<a href='https://x'>j</a>": answer, "1": answer}), peak_chart({"<b>": answer})):
        texts = [*chart.data[0]["y"], *chart.layout["yaxis"]["tickvals"], *chart.layout["yaxis"]["ticktext"]]
        assert not [text for text in texts if "<a" in text or "<b>" in text]
        assert chart.layout["yaxis"]["tickvals"] == chart.data[0]["y"]
        assert chart.layout["yaxis"]["type"] == "category"


def test_plotly_takes_every_chart(job):
    go = pytest.importorskip("plotly.graph_objects")
    answer = estimate(job, timeline=True)
    placement = placement_of(job)
    found = api.search(job, top=3, progress=lambda done, total, found: done < 10).found
    charts = [memory_chart(answer), timeline_chart(answer), pareto_chart(job, found), step_chart({"a": answer})]
    for chart in [*charts, peak_chart({"a": answer}), placement and devices_chart(placement)]:
        assert chart
        assert go.Figure(chart.figure).to_json()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tp", "cp", "ep", "etp", "pp", "order"),
    [
        (2, 2, 4, 1, 4, "tp-cp-ep-dp-pp"),
        (4, 1, 2, 2, 2, "tp-cp-ep-dp-pp"),
        (2, 1, 8, 2, 2, "tp-cp-ep-dp-pp"),
        (2, 2, 2, 1, 4, "tp-cp-ep-pp-dp"),
    ],
)
def test_groups_are_those_of_megatron_core(tp, cp, ep, etp, pp, order):
    state = pytest.importorskip("megatron.core.parallel_state")
    outer = order.endswith("dp")
    words = ("backend=megatron_lm", "backend.args.use_tp_pp_dp_mapping=true") if outer else ()
    sizes = [f"parallel.{name}={size}" for name, size in [("tp", tp), ("cp", cp), ("ep", ep), ("etp", etp), ("pp", pp)]]
    job = composed("cluster.nodes=8", *words, *sizes)
    placement = placement_of(job)
    assert placement is not None
    world = 64
    dense = state.RankGenerator(tp=tp, ep=1, dp=world // (tp * cp * pp), pp=pp, cp=cp, order=order)
    experts = state.RankGenerator(tp=etp, ep=ep, dp=world // (etp * ep * pp), pp=pp, cp=1, order=order)
    for axis in placement.axes:
        name = {"etp": "tp"}.get(axis.name, axis.name)
        theirs = (experts if axis.name in ("ep", "etp") else dense).get_ranks(name)
        assert {tuple(axis.group(rank)) for rank in range(world)} == {tuple(group) for group in theirs}, axis

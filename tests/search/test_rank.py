"""A layout's rank is one of its job and space: the same whatever part of the list is shown, and that of all points."""

import random

import pytest

from launcher.balance.from_job import UNEVEN, layers_of, layout_text
from launcher.compose import compose
from launcher.estimate.as_run import chosen_by_backend
from launcher.estimate.check import problems
from launcher.estimate.estimate import quick
from launcher.job import Job, with_values
from launcher.pipeline import judge
from launcher.search.begin import begin
from launcher.search.compare import Comparison, comparison
from launcher.search.found import Candidate
from launcher.search.points import layout_of, own
from launcher.search.uneven import moves
from tests.search.test_best import CASES, every_point, searched

pytestmark = pytest.mark.slow

LONG = 400
JOBS = {
    "dense, one node": [
        *("+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g"),
        "search.axes=[tp,pp,vpp,micro_batch_size,recompute,stages,offload]",
    ],
    "dense, little memory": [
        *("+recipe=qwen3_8b", "backend=megatron_lm", "hardware=a100_80g", "hardware.memory_gib=40"),
        *("model.pretrained=false", "search.axes=[tp,pp,vpp,cp,recompute,stages]", "search.max_vpp=4"),
    ],
    "experts, Ascend": [
        *("+recipe=qwen3_moe", "backend=mindspeed", "hardware=ascend_910b", "cluster.nodes=2"),
        *("search.axes=[tp,pp,vpp,ep,recompute,stages]", "search.max_vpp=4"),
    ],
}


def compared(job: Job, top: int) -> Comparison:
    search = begin(job, top=top)
    search.rank_own(own(job))
    for _ in search.run():
        pass
    return comparison(search)


def with_a_layer_moved(search_job: Job, candidate: Candidate) -> Job | None:
    """Return the job of a candidate with another uneven split, as somebody might write it; None: it has one stage."""
    job = with_values(search_job, candidate.point)
    work, pp = begin(search_job).floor.work(candidate.point), job.parallel.pp
    if work is None or pp == 1:
        return None
    for counts in moves(work, layers_of(job), pp, candidate.stage):
        one = with_values(job, {**UNEVEN, "parallel.layout": layout_text(job, counts)})
        if judge(one, fixes=False).ok and quick(with_values(one, chosen_by_backend(one)), exact=True).fits:
            return one
    return None


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", JOBS)
def test_a_rank_is_the_place_in_the_list_however_much_of_it_is_shown(name: str, seed: int) -> None:
    job = compose([*JOBS[name], "search.fit_probability=null"])
    ranked = searched(job, top=LONG).best
    times = [each.step_s for each in ranked]
    draw = random.Random(seed)
    places = [0, draw.randrange(1, 10), draw.randrange(10, len(ranked))]
    for place in places:
        mine = with_values(job, ranked[place].point)
        found = [compared(mine, top) for top in (2, 10, LONG)]
        assert [each.rank for each in found] == [place + 1] * 3, ranked[place].values
        assert {each.winner and each.winner.step_s for each in found} == {times[0] if place else None}
    uneven = next(filter(None, (with_a_layer_moved(job, each) for each in draw.sample(ranked, len(ranked)))))
    found = [compared(uneven, top) for top in (2, 10, LONG)]
    ahead = sum(step < found[0].own.step_s * (1 - 1e-9) for step in times)
    assert [each.rank for each in found] == [ahead + 1] * 3, uneven.parallel


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", ["dense, tight", "dense, long, chunks", "experts, Ascend", "experts, switches"])
def test_trying_every_point_of_every_layout_gives_the_same_list_and_ranks(name: str) -> None:
    args, axes = CASES[name]
    job = compose(
        [*args, f"search.axes=[{','.join(axes)}]", "search.max_pp=8", "search.max_vpp=8", "search.fit_probability=null"]
    )
    layouts: dict[object, list[tuple[float, Job]]] = {}
    as_run = with_values(job, chosen_by_backend(job))
    for point in every_point(job, axes):
        one = with_values(as_run, point)
        if not problems(one):
            answer = quick(one, exact=True)
            if answer.fits and answer.time is not None:
                layouts.setdefault(layout_of(own(one)), []).append((answer.time.step_s, one))
    fastest = [next(filter(_legal, sorted(each, key=lambda pair: pair[0])), None) for each in layouts.values()]
    legal = sorted(filter(None, fastest), key=lambda pair: pair[0])
    assert len(legal) >= 5
    assert [each.step_s for each in searched(job, top=LONG).best] == pytest.approx([step for step, _ in legal])
    for step, mine in legal[:: max(1, len(legal) // 6)]:
        ahead = sum(other < step * (1 - 1e-9) for other, _ in legal)
        assert compared(mine, 2).rank == ahead + 1, mine.parallel


def _legal(pair: tuple[float, Job]) -> bool:
    """Return whether the backend runs a job, and has an argument for each of its fields."""
    judged = judge(pair[1], fixes=False)
    return judged.ok and not [each for each in judged.findings if each.rule.startswith("MAP-")]

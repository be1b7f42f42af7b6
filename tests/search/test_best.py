"""No point that anybody could try is better than what the search found."""

from collections.abc import Iterator
from itertools import combinations, product

import pytest

from launcher.balance.from_job import UNEVEN, layout_text
from launcher.balance.parts import MODULES, PARTS
from launcher.compose import compose
from launcher.estimate.as_run import as_run, chosen_by_backend
from launcher.estimate.check import problems
from launcher.estimate.estimate import quick
from launcher.job import Job, Value, value_at, with_values
from launcher.pipeline import judge
from launcher.search.begin import begin
from launcher.search.found import Found
from launcher.search.points import everything, in_block, in_part, nothing_recomputed
from launcher.search.switches import SWITCHES, paths_of

pytestmark = pytest.mark.slow

# The brute force asks the estimate alone.
EIGHT = ["cluster.nodes=1", "cluster.devices_per_node=8", "search.fit_probability=null"]
# Name: overrides, axes that are searched. Memory is tight enough that recomputation and sharding matter.
CASES = {
    "dense, tight": (
        [
            *("+recipe=qwen3_8b", "backend=megatron", "hardware=a100_80g", *EIGHT),
            *("hardware.memory_gib=48", "batch.seq_length=8192", "batch.global_batch_size=16"),
        ],
        ("tp", "pp", "micro_batch_size", "distributed_optimizer", "recompute"),
    ),
    "dense, long, chunks": (
        [
            *("+recipe=llama3_8b", "backend=megatron_lm", "hardware=h100_80g", *EIGHT),
            *(
                "hardware.memory_gib=30",
                "batch.seq_length=8192",
                "batch.global_batch_size=16",
                "model.pretrained=false",
            ),
        ],
        ("tp", "pp", "vpp", "cp", "sequence_parallel", "recompute"),
    ),
    "experts, Ascend": (
        [
            *("+recipe=qwen3_moe", "backend=mindspeed", "hardware=ascend_910b", "cluster.nodes=2"),
            *("cluster.devices_per_node=8", "batch.global_batch_size=32", "hardware.memory_gib=56"),
        ],
        ("tp", "pp", "ep", "micro_batch_size", "recompute"),
    ),
    "experts, switches": (
        [
            *("+recipe=qwen3_moe", "backend=megatron_lm", "hardware=h100_80g", "cluster.nodes=2"),
            *("cluster.devices_per_node=4", "batch.global_batch_size=32", "model.pretrained=false"),
            *("parallel.sequence_parallel=true", "parallel.tp=2", "search.fit_probability=null"),
        ],
        ("pp", "ep", "dispatcher", "expert_overlap", "offload"),
    ),
    "experts, overlap": (
        [
            *("+recipe=qwen3_moe", "backend=megatron_lm", "hardware=h100_80g", "cluster.nodes=2"),
            *("cluster.devices_per_node=4", "batch.global_batch_size=32", "model.pretrained=false"),
            *("parallel.sequence_parallel=true", "parallel.tp=2", "search.fit_probability=null", "parallel.ep=2"),
        ],
        ("pp", "vpp", "group_order", "dp_overlap", "tp_overlap"),
    ),
    "dense, CUDA graphs": (
        [
            *("+recipe=qwen3_8b", "backend=megatron_lm", "hardware=h100_80g", *EIGHT, "model.pretrained=false"),
            *("hardware.memory_gib=48", "batch.seq_length=4096", "batch.global_batch_size=16"),
            "fault_tolerance.check_for_nan=false",
        ],
        ("tp", "pp", "micro_batch_size", "recompute", "cuda_graphs", "offload_modules"),
    ),
    "experts, CUDA graphs": (
        [
            *("+recipe=qwen3_moe", "backend=megatron_lm", "hardware=h100_80g", "cluster.nodes=2"),
            *("cluster.devices_per_node=4", "batch.global_batch_size=32", "model.pretrained=false"),
            *("parallel.sequence_parallel=true", "parallel.tp=2", "search.fit_probability=null"),
        ],
        ("pp", "ep", "cuda_graphs", "offload_modules"),
    ),
    "experts, static graph": (
        [
            *("+recipe=qwen3_moe", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=2"),
            *("cluster.devices_per_node=8", "batch.global_batch_size=32", "hardware.memory_gib=48"),
        ],
        ("tp", "pp", "ep", "recompute"),
    ),
}
VALUES: dict[str, tuple[str, tuple[Value, ...]]] = {
    "tp": ("parallel.tp", (1, 2, 4, 8)),
    "pp": ("parallel.pp", (1, 2, 4, 8)),
    "vpp": ("parallel.vpp", (None, 2, 4, 8)),
    "cp": ("parallel.cp", (1, 2, 4, 8)),
    "ep": ("parallel.ep", (1, 2, 4, 8, 16)),
    "micro_batch_size": ("batch.micro_batch_size", (1, 2, 4, 8)),
    "sequence_parallel": ("parallel.sequence_parallel", (True, False)),
    "distributed_optimizer": ("parallel.distributed_optimizer", (True, False)),
}


# A few layers and a large vocabulary: the last stage does best with fewer layers than the others.
FEW = ["model.num_hidden_layers=9", "batch.seq_length=4096", "batch.global_batch_size=32", "search.max_pp=4"]
UNEVEN_CASES = {
    "a heavy head, roomy": (
        ["+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", *EIGHT, *FEW, "parallel.pp=4"],
        ("tp", "recompute", "stages"),
    ),
    "a heavy head, tight": (
        [
            *("+recipe=qwen3_8b", "backend=megatron_lm", "hardware=h100_80g", *EIGHT, *FEW),
            *("parallel.pp=4", "hardware.memory_gib=13", "model.pretrained=false"),
        ],
        ("tp", "recompute", "stages"),
    ),
    "a dense layer before those with experts, a static graph": (
        [
            *("+recipe=deepseek_v3", "backend=mindformers", "hardware=ascend_910b", *EIGHT, *FEW, "parallel.pp=4"),
            *("model.num_experts=8", "model.num_experts_per_tok=2", "model.n_group=1", "model.topk_group=1"),
            *("parallel.tp=2", "parallel.ep=2", "model.pretrained=false", "hardware.memory_gib=60"),
        ],
        ("micro_batch_size", "recompute", "stages"),
    ),
}


def searched(job: Job, top: int = 10) -> Found:
    search = begin(job, top=top)
    for _ in search.run():
        pass
    return search.found


def every_point(job: Job, axes: tuple[str, ...]) -> Iterator[dict[str, Value]]:
    """Yield every combination of the axes, whether it makes sense or not."""
    fields = [VALUES[axis] for axis in axes if axis in VALUES]
    for chosen in product(*(values for _, values in fields)):
        sizes = dict(zip((path for path, _ in fields), chosen, strict=True))
        for switches in every_switch(job, axes):
            yield from every_depth(job, axes, sizes | switches)


def every_switch(job: Job, axes: tuple[str, ...]) -> Iterator[dict[str, Value]]:
    """Yield every combination of switches, off and as in the job included.

    Graphs of whole layers and steps need experts' inputs of one size, which no rule says: the capture fails.
    """
    values = [
        [
            {},
            dict.fromkeys(paths_of([switch.axis])) | switch.off,
            *(
                option.values
                for option in switch.options
                if switch.axis != "cuda_graphs" or option.matters(job, option.values)
            ),
        ]
        for switch in SWITCHES
        if switch.axis in axes
    ]
    for chosen in product(*values):
        yield {path: value for each in chosen for path, value in each.items()}


def every_depth(job: Job, axes: tuple[str, ...], point: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """Yield every recomputation of a point."""
    layers = job.model.num_hidden_layers or 0
    chunk = layers // (int(str(point.get("parallel.pp", job.parallel.pp))) * int(str(point.get("parallel.vpp") or 1)))
    deepest = layers if "stages" in axes else chunk
    ways = [nothing_recomputed(), *every_part(), everything(), *(in_block(n) for n in range(1, deepest + 1))]
    for recompute in ways if "recompute" in axes else [{}]:
        yield point | recompute


def every_part() -> Iterator[dict[str, Value]]:
    """Yield the recomputation of every set of modules, and of activation function and normalisations."""
    modules = [part[MODULES] for part in PARTS if MODULES in part]
    for count in range(1, len(modules) + 1):
        for chosen in combinations(modules, count):
            yield in_part({"recompute.granularity": "selective", MODULES: sum(chosen, ())})
    for activation, norm in ((True, True), (True, None), (None, True)):
        yield in_part({"recompute.activation": activation, "recompute.norm": norm})


def every_split(job: Job, point: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """Yield every way to spread the layers over the stages of a point."""
    layers, pp = job.model.num_hidden_layers or 0, int(str(point.get("parallel.pp", job.parallel.pp)))
    for borders in combinations(range(1, layers), pp - 1):
        counts = [end - start for start, end in zip((0, *borders), (*borders, layers), strict=True)]
        text = layout_text(job, tuple(counts)) if pp > 1 else None
        yield {**UNEVEN, "parallel.layout": text}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", UNEVEN_CASES)
def test_trying_every_split_of_every_point_finds_none_better(name: str) -> None:
    args, axes = UNEVEN_CASES[name]
    job = compose([*args, f"search.axes=[{','.join(axes)}]"])
    found = searched(job)
    assert found.best
    best, tried = found.best[0].step_s, 0
    job = with_values(job, chosen_by_backend(job))
    for point in every_point(job, axes):
        for split in every_split(job, point):
            one = with_values(job, point | split)
            if problems(one):
                continue
            tried += 1
            answer = quick(one, exact=True)
            assert answer.time is not None
            if answer.fits and answer.time.step_s < best * (1 - 1e-9):
                assert not judge(one, fixes=False).ok, (answer.time.step_s, best, point, split)
    assert tried > 200
    assert any(value_at(with_values(job, found.best[0].values), path) for path in UNEVEN)


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", CASES)
def test_trying_every_point_finds_none_better(name: str) -> None:
    args, axes = CASES[name]
    job = compose([*args, f"search.axes=[{','.join(axes)}]"])
    found = searched(job)
    job = with_values(job, chosen_by_backend(job))
    assert found.complete
    assert found.best
    best = found.best[0].step_s
    for point in every_point(job, axes):
        one = with_values(job, point)
        if problems(one):
            continue
        answer = quick(one, exact=True)
        assert answer.time is not None
        if answer.fits and answer.time.step_s < best * (1 - 1e-9):
            assert not judge(one, fixes=False).ok, (answer.time.step_s, best, point)


def test_trying_every_count_of_recomputed_layers_of_every_stage_finds_none_better() -> None:
    args, _ = UNEVEN_CASES["a dense layer before those with experts, a static graph"]
    job = compose(
        [
            *args,
            "search.axes=[recompute]",
            "hardware.memory_gib=47",
            "batch.seq_length=16384",
            "parallel.layout=Et*2|t*3|t*2|t*2mL",
        ]
    )
    found = searched(job)
    assert found.best
    best, tried = found.best[0], 0
    job = with_values(job, chosen_by_backend(job))
    assert best.point["recompute.layers_per_chunk"] or best.point["recompute.selective_layers_per_chunk"]
    chunks = [range(layers + 1) for layers in (2, 3, 2, 2)]
    for part in [{}, *PARTS]:
        for counts in product(*chunks):
            full: dict[str, Value] = in_block(max(1, *counts)) | {"recompute.layers_per_chunk": counts}
            some: dict[str, Value] = in_part(part) | {"recompute.selective_layers_per_chunk": counts} | part
            one = with_values(job, some if part else full)
            answer = quick(one, exact=True)
            assert answer.time is not None
            tried += 1
            if answer.fits and answer.time.step_s < best.step_s * (1 - 1e-9):
                assert not judge(one, fixes=False).ok, (answer.time.step_s, best, part, counts)
    assert tried > 700


@pytest.mark.parametrize("name", CASES)
def test_what_is_promised_is_what_judge_and_estimate_say(name: str) -> None:
    args, axes = CASES[name]
    job = compose([*args, f"search.axes=[{','.join(axes)}]"])
    found = searched(job, top=5)
    for candidate in found.best:
        one = with_values(job, candidate.values)
        assert all(value_at(one, path) == value for path, value in candidate.point.items())
        judged = judge(one, fixes=False)
        assert judged.ok
        assert not [each for each in judged.findings if each.rule.startswith("MAP-")], "a field without an argument"
        answer = quick(as_run(one)[0], exact=True)
        assert answer.time is not None
        assert answer.fits
        assert answer.time.step_s == pytest.approx(candidate.step_s, rel=1e-9)
        assert answer.fullest.peak_reserved + answer.outside == candidate.peak
    assert found.best == sorted(found.best, key=lambda each: each.order)

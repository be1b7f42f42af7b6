"""A search sets only what the backend's version has an argument for."""

from launcher.compose import compose
from launcher.job import with_values
from launcher.pipeline import judge
from launcher.search.begin import begin


def test_experts_without_an_argument_for_their_tensor_parallelism_are_searched() -> None:
    where = ("backend=mindspeed", "backend.version=2.1.0", "hardware=ascend_910b", "cluster.nodes=4")
    job = compose(["+recipe=qwen3_moe", *where, "model.pretrained=false", "search.axes=[tp,pp,ep,etp,recompute]"])
    search = begin(job)
    for _ in search.run():
        pass
    assert search.found.best
    for candidate in search.found.best:
        assert candidate.values.get("parallel.etp") is None
        assert judge(with_values(job, candidate.values), fixes=False).ok
    assert {candidate.point["parallel.ep"] for candidate in search.found.best} != {1}

"""Words that stand for many jobs: Hydra's sweep syntax, read as a user would type each single value."""

from pathlib import Path

import pytest

from launcher.compose import ComposeError, compose, sweep

# words -> the words of each job
EXPANDED = {
    "a list": (["parallel.tp=1,2"], [["parallel.tp=1"], ["parallel.tp=2"]]),
    "choice": (["optimizer.lr=choice(1e-4,3e-4)"], [["optimizer.lr=0.0001"], ["optimizer.lr=0.0003"]]),
    "range": (["parallel.tp=range(1,8,step=3)"], [["parallel.tp=1"], ["parallel.tp=4"], ["parallel.tp=7"]]),
    "sorted": (["parallel.tp=sort(2,1,4,reverse=true)"], [["parallel.tp=4"], ["parallel.tp=2"], ["parallel.tp=1"]]),
    "a group": (["backend=megatron,mindspeed"], [["backend=megatron"], ["backend=mindspeed"]]),
    "a pattern": (
        ["+recipe=glob(tiny_qwen3*)"],
        [["+recipe=tiny_qwen3"], ["+recipe=tiny_qwen3_moe"]],
    ),
    "a pattern with exceptions": (["backend=glob(m*,exclude=[mind*,*_lm])"], [["backend=megatron"]]),
    "lists of paths": (["data.paths=[a,b],[c]"], [["data.paths=[a,b]"], ["data.paths=[c]"]]),
    "quoted text": (["data.split='99,1,0','98,2,0'"], [["data.split='99,1,0'"], ["data.split='98,2,0'"]]),
    "text in a choice": (["data.split=choice('99,1,0','98,2,0')"], [["data.split=99,1,0"], ["data.split=98,2,0"]]),
    "text with a space": (["name=a b,c"], [["name=a b"], ["name=c"]]),
    "null": (["checkpoint.load=ck,null"], [["checkpoint.load=ck"], ["checkpoint.load=null"]]),
    "an argument": (["backend.args.x=1,2"], [["backend.args.x=1"], ["backend.args.x=2"]]),
    "the last word counts": (["parallel.tp=1,2", "parallel.tp=4"], [["parallel.tp=4"]]),
    "the first turns slowest": (
        ["parallel.tp=1,2", "parallel.pp=1,2"],
        [[f"parallel.tp={tp}", f"parallel.pp={pp}"] for tp in (1, 2) for pp in (1, 2)],
    ),
}


@pytest.mark.parametrize("case", EXPANDED.values(), ids=EXPANDED.keys())
def test_a_sweep_is_written_as_hydra_has_it(case):
    args, expanded = case
    assert sweep(args) == expanded


def test_every_value_of_a_text_composes_to_what_was_typed():
    jobs = [compose([*args, "+recipe=tiny_qwen3"]) for args in sweep(["data.split=choice('99,1,0','98,2,0')"])]
    assert [job.data.split for job in jobs] == ["99,1,0", "98,2,0"]


def test_own_folders_are_globbed_too(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine_a.yaml").write_text("hidden_size: 64\n")
    assert sweep(["model=glob(mine_*)"], [str(tmp_path)]) == [["model=mine_a"]]


# words -> what the message says, and what it offers
REFUSED = {
    "an interval": (
        "optimizer.lr=interval(1e-5,1e-4)",
        "an interval has infinitely many values",
        "optimizer.lr=1e-5,3e-5,1e-4",
    ),
    "a pattern of a field": ("parallel.tp=glob(*)", "glob() lists the files of a group", "parallel.tp=a,b"),
    "a pattern that nothing fits": ("model=glob(none*)", "no value fits", None),
    "an option that is not there": ("model=qwen3_8b,qwen3_8c", "no model named 'qwen3_8c'", "qwen3_8b"),
    "a field that is not there": ("paralel.tp=1,2", "is not a field", "parallel.tp"),
    "no grammar": ("parallel.tp=choice(1", "", None),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_enumerated_is_a_mistake(case):
    arg, says, works = case
    with pytest.raises(ComposeError) as caught:
        sweep([arg])
    (mistake,) = caught.value.mistakes
    assert says in mistake.what
    assert works is None or works in mistake.works

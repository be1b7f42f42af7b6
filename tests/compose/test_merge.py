"""Files merged by Hydra with fields set afterwards equal what Hydra makes of all at once, to the order of the keys."""

import json
from pathlib import Path

import pytest
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import strategies as st
from omegaconf.errors import OmegaConfBaseException

from launcher.compose import ComposeError, compose, merge
from launcher.compose.overrides import Override, for_hydra, parse
from launcher.compose.search_path import search_path
from launcher.job import field_paths
from launcher.job.shipped import shipped
from tests.sampling import examples

PLACES = search_path()
RECIPES = sorted(path.stem for path in shipped("recipes").glob("*.yaml"))
REFUSED = (HydraException, OmegaConfBaseException, ValueError, TypeError, AttributeError)


def overrides(args: list[str]) -> list[Override]:
    found, mistakes = parse(args)
    assert not mistakes
    return found


def at_once(args: list[str]) -> merge.Merged | None:
    """Return what Hydra makes of files and fields at once; None where it refuses them."""
    try:
        return merge._by_hydra(*for_hydra(overrides(args)), PLACES)
    except REFUSED:
        return None


def agree(args: list[str]) -> None:
    """Fail where the two ways differ, in the answer or in refusing one."""
    whole = at_once(args)
    try:
        tree, files = merge.merged(overrides(args), PLACES)
    except REFUSED:
        assert whole is None, args
        return
    assert whole is not None, args
    assert json.dumps(tree) == json.dumps(whole.tree), args
    assert list(files) == list(whole.files), args


ARGS: dict[str, list[str]] = {
    "nothing": [],
    "groups": ["backend=mindspeed", "model=tiny_qwen3", "hardware=h200", "cluster=slurm", "task=sft"],
    "numbers": [
        "parallel.tp=2",
        "optimizer.lr=1e-5",
        "optimizer.min_lr=1.5e-6",
        "seed=0",
        "batch.global_batch_size=-1",
    ],
    "nothing said": ["moe.capacity_factor=null", "tokenizer.path=null", "model.sliding_window=NULL"],
    "switches": ["model.tie_word_embeddings=True", "parallel.sequence_parallel=false"],
    "text as typed": ["data.split=99,1,0", "backend.version=3.10", "name=007", "parallel.cp_algorithm=hybrid"],
    "lists": ["recompute.modules=[core_attn,mlp]", "parallel.noop_layers=3,4", "data.paths=a,/b/c.jsonl"],
    "one of a list": ["recompute.modules=mlp", "data.paths=[]"],
    "free": ["backend.args.foo=3", "backend.args.bar=x", "backend.env.A_B=7", "backend.args.on=true"],
    "signs": ["+parallel.vpp=2", "++parallel.pp=2"],
    "a sweep": ["parallel.tp=choice(1,2)"],
    "an interpolation": ["name=${parallel.tp}", "parallel.tp=2"],
    "a mapping": ["recompute={method:block}", "recompute.granularity=full"],
    "a mapping of a free section": ["backend.args.extra={a:1,b:[2]}"],
    "an item of a list": ["data.paths=[a,b]", "data.paths.0=c"],
    "quotes": ["name='a b'", "data.paths=['x y']"],
    "twice the same": ["seed=1", "seed=2"],
    "a value through a value": ["seed=1", "seed.more=2"],
}


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("args", ARGS.values(), ids=ARGS)
@pytest.mark.parametrize("recipe", [None, *RECIPES])
def test_fields_set_after_the_files_are_as_if_hydra_had_set_them(recipe: str | None, args: list[str]) -> None:
    agree([f"+recipe={recipe}", *args] if recipe else args)


OURS = [path for path in field_paths() if not path.startswith(("backend.args", "backend.env"))]
TEXTS = st.one_of(
    st.integers(-3, 10**7).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["true", "False", "null", "Null", "1e3", "1_000", "007", "+5", ".5", "5.", "nan", "inf", "", "''"]),
    st.sampled_from(
        ["a,b", "[a,b]", "[1,2]", "[a,[b]]", "{a:1}", "'quoted'", "a b", "~/x", "${seed}", "a:b", "[a, b]"]
    ),
    st.sampled_from(
        ["choice(1,2)", "range(1,4)", "h\\'x", "it's", "-", "--x", "a-b", "x=y", "1,2", "[]", "[null,true]"]
    ),
    st.text("abcXYZ019_./~:@%+=,-[]{}()'\"\\$# ", max_size=8),
)


@examples(150)
@given(st.lists(st.tuples(st.sampled_from(OURS), TEXTS), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_any_value_is_set_as_hydra_sets_it(pairs: list[tuple[str, str]]) -> None:
    agree([f"{path}={text}" for path, text in pairs])


INTERPOLATED = "parallel:\n  tp: 2\n  pp: ${parallel.tp}\nname: job${parallel.tp}\n"


def test_an_interpolation_of_a_file_follows_the_override(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(INTERPOLATED)
    job = compose(["+recipe=mine", "parallel.tp=8"], [str(tmp_path)])
    assert (job.parallel.pp, job.name) == (8, "job8")


def test_a_missing_value_is_given_by_the_override(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("parallel:\n  tp: ???\n")
    assert compose(["+recipe=mine", "parallel.tp=8"], [str(tmp_path)]).parallel.tp == 8
    with pytest.raises(ComposeError, match=r"parallel\.tp"):
        compose(["+recipe=mine"], [str(tmp_path)])


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    for value in (1, 2):
        (tmp_path / "mine.yaml").write_text(f"seed: {value}\n")
        assert compose(["+recipe=mine"], [str(tmp_path)]).seed == value


NOT_READ = {
    "a list as a key": ("? [a, b]\n: 1\n", "unhashable key"),
    "an alias in itself": ("name: &x [*x]\n", "an alias refers to the value that contains it"),
    "a merge with itself": ("&x {<<: *x}\n", "an alias refers to the value that contains it"),
    "an alias of itself as a key": ("? &x [*x]\n: 1\n", "an alias refers to the value that contains it"),
    "settings of Hydra": ("hydra: {run: {dir: /tmp}}\n", "sets hydra, which is not a section of a job"),
    "Hydra's section emptied": ("hydra:\n", "sets hydra"),
    "settings of Hydra merged in": ("<<: {hydra: null}\n", "sets hydra"),
    "a tag that does not fit": ("seed: !!bool perhaps\n", "perhaps"),
}


@pytest.mark.parametrize(("text", "says"), NOT_READ.values(), ids=NOT_READ)
def test_a_file_that_nobody_can_read_is_a_mistake(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ComposeError, match=says) as refused:
        compose([f"+recipe={file}"])
    assert refused.value.mistakes[0].where.startswith(str(file))

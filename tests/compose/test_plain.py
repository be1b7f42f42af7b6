"""What is composed without Hydra is what Hydra would have composed, to the order of the keys."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose import ComposeError, compose, plain
from launcher.compose.overrides import Override
from launcher.compose.search_path import search_path, shipped
from launcher.job import field_at, field_paths
from tests.sampling import examples

by_hydra = sys.modules["launcher.compose.compose"]._composed  # launcher.compose.compose is also a function
PLACES = search_path()
RECIPES = sorted(path.stem for path in shipped("recipes").glob("*.yaml"))


def overrides(words: list[str]) -> list[Override]:
    found: list[Override] = sys.modules["launcher.compose.compose"]._parsed(words, PLACES)
    return found


def agree(words: list[str]) -> bool:
    """Return whether the words are plain; fail where both ways read them and differ."""
    parsed = overrides(words)
    found = plain.composed(parsed, PLACES)
    if found is None:
        return False
    tree, files = by_hydra(parsed, PLACES)
    assert json.dumps(found[0]) == json.dumps(tree), words
    assert sorted(map(str, found[1])) == sorted(map(str, files)), words
    return True


PLAIN: dict[str, list[str]] = {
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
}


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("words", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("recipe", [None, *RECIPES])
def test_plain_words_are_read_as_hydra_reads_them(recipe: str | None, words: list[str]) -> None:
    assert agree([f"+recipe={recipe}", *words] if recipe else words)


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
def test_any_value_that_is_plain_is_read_as_hydra_reads_it(pairs: list[tuple[str, str]]) -> None:
    words = [f"{path}={text}" for path, text in pairs]
    try:
        agree(words)
    except ComposeError as error:
        pytest.fail(f"plain, but Hydra refuses it: {words}: {error}")


HYDRAS: dict[str, list[str]] = {
    "a sweep": ["parallel.tp=1,2"],
    "an interpolation": ["name=${seed}"],
    "a mapping": ["recompute={method:block}"],
    "quotes": ["name='a'"],
    "a strategy": ["+strategy=x.yaml"],
    "twice the same": ["seed=1", "seed=2"],
}


@pytest.mark.parametrize("words", HYDRAS.values(), ids=HYDRAS)
def test_the_rest_is_left_to_hydra(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text("parallel:\n  tp: 2\n")
    assert plain.composed(overrides(words), PLACES) is None


def test_folders_of_the_user_are_left_to_hydra(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("seed: 7\n")
    places = search_path([str(tmp_path)])
    assert plain.composed([Override(raw="+recipe=mine", sign="+", key="recipe", value="mine")], places) is None
    assert compose(["+recipe=mine"], [str(tmp_path)]).seed == 7


FILES = {
    "numbers": ("a: 1e-5\nb: 1.5e3\nc: 1E5\nd: .5\ne: -2e3\n", True),
    "dates are text": ("a: 2026-01-01\n", True),
    "switches of YAML 1.1": ("a: yes\nb: off\n", True),
    "nested": ("a:\n  b: [1, x, null]\n  c: {d: 2}\n", True),
    "nothing": ("# only a comment\n", True),
    "underscores": ("a: 1_0e5\n", False),
    "interpolation": ("a: 1\nb: ${a}\n", False),
    "missing": ("a: ???\n", False),
    "the same key twice": ("a: 1\na: 2\n", False),
    "a list": ("- 1\n", False),
    "numbers as keys": ("1: a\n", False),
    "a list as a key": ("? [a, b]\n: 1\n", False),
    "a mapping as a key": ("a:\n  ? {b: 1}\n  : 2\n", False),
    "an alias in itself": ("a: &x [*x]\n", False),
    "a mapping in itself": ("a: &x\n  b: *x\n", False),
    "a tag of another kind": ("a: !!map [1]\n", False),
    "a tag that does not fit": ("a: !!bool perhaps\n", False),
    "no such day": ("a: !!timestamp 2001-99-99\n", False),
    "bytes": ("a: !!binary aGk=\n", False),
}


@pytest.mark.parametrize(("text", "is_plain"), FILES.values(), ids=FILES)
def test_a_file_is_read_as_omegaconf_reads_it(text: str, is_plain: bool, tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    file = tmp_path / "x.yaml"
    file.write_text(text)
    read = plain.read(file)
    assert (read is not None) is is_plain
    if read is not None:
        assert read == OmegaConf.to_container(OmegaConf.load(file))


NOT_READ = {
    "a list as a key": ("? [a, b]\n: 1\n", "unhashable key"),
    "an alias in itself": ("name: &x [*x]\n", "an alias stands inside of what it names"),
    "a merge with itself": ("&x {<<: *x}\n", "an alias stands inside of what it names"),
    "an alias of itself as a key": ("? &x [*x]\n: 1\n", "an alias stands inside of what it names"),
    "settings of Hydra": ("hydra: {run: {dir: /tmp}}\n", "sets hydra, which is no section of a job"),
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


def test_no_field_needs_hydra_for_its_default() -> None:
    """A recipe with every plain value would still be plain: no field has a type that plain words cannot set."""
    for path in OURS:
        value = field_at(path).default
        if isinstance(value, bool | int | float) and not isinstance(value, str):
            word = f"{path}={str(value).lower() if isinstance(value, bool) else value}"
            assert plain.composed(overrides([word]), PLACES) is not None, word

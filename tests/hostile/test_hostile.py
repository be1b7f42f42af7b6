"""Bad input of every kind: a refusal with its reason, never a traceback; a sample here, the whole table when slow."""

import contextlib
import io
import json
import os
import random
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.cli import main
from launcher.job import fields
from tests.hostile.run import run_all
from tests.hostile.table import Case, cases, one_way_each, write_files
from tests.sampling import sample, trials

# In one process: no conditions, nothing that starts or waits for processes, nothing that takes seconds by itself.
_SLOW = ("run", "logs", "stop", "search", "balance", "doctor", "")
Run = Callable[[Sequence[str]], tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("hostile")
    write_files(made)
    before, home = Path.cwd(), os.environ.get("LAUNCH_HOME")
    os.chdir(made)
    os.environ["LAUNCH_HOME"] = str(made / "home")
    yield made
    os.chdir(before)
    os.environ.pop("LAUNCH_HOME")
    if home is not None:
        os.environ["LAUNCH_HOME"] = home


def called(args: Sequence[str]) -> tuple[int, str, str]:
    """Run the command line in this process; whatever it raises fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(args))
    return code, out.getvalue(), err.getvalue()


def answered(args: Sequence[str], codes: Sequence[int] = (0, 1, 2)) -> tuple[int, str, str]:
    code, out, err = called(args)
    assert "internal error" not in err, (args, err)
    assert "Traceback" not in out + err, args
    assert code in codes, (args, out[-2000:], err[-2000:])
    return code, out, err


def quick() -> list[Case]:
    """Return the cases that can be run in this process."""
    return [case for case in cases() if not set(case.conditions) - {"ok"} and [*case.words, ""][0] not in _SLOW]


def test_the_table_holds_enough() -> None:
    found = cases()
    assert len(found) >= 300
    verbs = {[*case.words, ""][0] for case in found}
    assert {"run", "dry-run", "check", "doctor", "estimate", "search", "balance", "diff", "explain", "import"} <= verbs
    assert {"convert", "args", "ps", "status", "logs", "stop"} <= verbs


@pytest.mark.sample(keep=60)
@pytest.mark.parametrize("case", quick(), ids=lambda case: case.name[:80].encode("ascii", "replace").decode())
def test_a_sample_of_the_table(folder: Path, case: Case) -> None:
    _, out, _ = answered(case.words, case.codes)
    if "--json" in case.words:
        json.loads(out)
    assert not list(folder.rglob("EXECUTED"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_the_whole_table(tmp_path: Path, part: int) -> None:
    """Every file by one of the ways to give it, and every command of the table, as the real command."""
    whole = one_way_each(cases())[part::2]
    chosen = sample(whole, trials(len(whole)), f"hostile {part}")
    results = list(run_all(chosen, tmp_path, workers=2))
    assert not [result.row for result in results if result.problem]
    assert not list(tmp_path.rglob("EXECUTED"))


# -- words
_VALUES = st.one_of(
    st.text(max_size=12),
    st.text(string.printable, max_size=12),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["null", "[]", "{}", "[1,2]", "{a: b}", "${name}", "${oc.env:X}", "1,2", "range(1,3)", "~", "'", '"']
    ),
)
_KEYS = st.one_of(
    st.sampled_from(sorted(fields())),
    st.sampled_from(["recipe", "+recipe", "+job", "+strategy", "model", "backend", "hardware", "cluster", "task"]),
    st.sampled_from(["backend.args.lr", "backend.args.x", "backend.env.X", "backend.env", "model", "parallel", "~tp"]),
)
_WORDS = st.one_of(
    st.builds("{}={}".format, _KEYS, _VALUES),
    st.sampled_from(
        ["--json", "--format", "argv", "shell", "--fix", "--config-dir", ".", "--", "--backends", "--nosuch"]
    ),
    st.text(max_size=8),
)
_VERBS = st.sampled_from(["check", "dry-run", "estimate", "explain", "args", "diff", "import", "status", "convert", ""])
_STARTS = st.sampled_from(
    [["+recipe=tiny_qwen3", "backend=megatron_lm"], ["+recipe=qwen3_8b", "backend=mindspeed"], []]
)


def few(count: int) -> Any:
    return settings(
        max_examples=count, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    )


def words_are_answered(verb: str, start: list[str], args: list[str]) -> None:
    args = [*filter(None, [verb]), *start, *args]
    if args and args[0] not in ("run", "") and verb:
        answered(args)


@few(40)
@given(verb=_VERBS, start=_STARTS, args=st.lists(_WORDS, max_size=3))
def test_any_arguments(folder: Path, verb: str, start: list[str], args: list[str]) -> None:
    words_are_answered(verb, start, args)


@pytest.mark.slow
@few(300)
@given(verb=_VERBS, start=_STARTS, args=st.lists(_WORDS, max_size=4))
def test_any_more_arguments(folder: Path, verb: str, start: list[str], args: list[str]) -> None:
    words_are_answered(verb, start, args)


# -- files
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from(["tp", "name", "defaults", "paths"]), st.text(max_size=4)), inner, max_size=3
        ),
    ),
    max_leaves=8,
)
_SECTIONS = st.sampled_from(sorted({path.partition(".")[0] for path in fields()} | {"defaults", "hydra", "x"}))
_JOBS = st.dictionaries(_SECTIONS, _TREES, max_size=4)


def yaml_is_answered(text: str, group: str) -> None:
    Path("any.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    base = [] if group == "job" else ["+recipe=tiny_qwen3"]
    answered(["check", *base, f"+{group}=./any.yaml", "backend=megatron"])
    answered(["import", "any.yaml"])


@pytest.mark.slow
@few(25)
@given(tree=_JOBS, group=st.sampled_from(["job", "strategy"]))
def test_any_job_file(folder: Path, tree: dict[str, Any], group: str) -> None:
    yaml_is_answered(yaml.safe_dump(tree, allow_unicode=True), group)


@few(25)
@given(text=st.text(st.sampled_from("ab:{}[]&*!|>-?#%@'\"\\,\n\t 01~<=$"), max_size=60))
def test_any_yaml(folder: Path, text: str) -> None:
    yaml_is_answered(text, "strategy")


_DENSE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "rope_scaling": None,
    "sliding_window": None,
    "layer_types": None,
    "attention_bias": False,
}
_SPARSE = _DENSE | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "quantization_config": None,
    "num_nextn_predict_layers": 0,
}


@few(40)
@given(
    base=st.sampled_from([_DENSE, _SPARSE]),
    changes=st.dictionaries(st.sampled_from(sorted(_SPARSE)), _TREES, max_size=3),
)
def test_any_config_json(folder: Path, base: dict[str, Any], changes: dict[str, Any]) -> None:
    Path("any").mkdir(exist_ok=True)
    Path("any/config.json").write_text(json.dumps(base | changes), encoding="utf-8")
    answered(["check", "+recipe=qwen3_8b", "backend=megatron_lm", "model.path=any"])
    answered(["estimate", "+recipe=qwen3_8b", "backend=megatron_lm", "model.path=any", "hardware=h100_80g"])
    answered(["convert", "hf-to-mcore", "--model", "any", "--out", "out", "--dry-run"])


def test_any_bytes(folder: Path) -> None:
    """Files of other kinds under the names that are read."""
    chance = random.Random(20)
    for name in ("bytes.yaml", "bytes.sh", "bytes.json", "bytes/config.json"):
        for _ in range(5):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_bytes(chance.randbytes(chance.choice([1, 7, 300])))
            answered(["import", name], (1,))
            answered(["check", "+recipe=qwen3_8b", "backend=megatron", "model.path=bytes"], (1, 2))

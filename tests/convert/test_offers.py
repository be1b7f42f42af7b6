"""What is offered where a size of the layout does not divide the model: each offer works."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from launcher.convert.layouts.legacy import Grid
from launcher.convert.layouts.offers import Undivided
from tests.convert.helpers import launch, tensors, write
from tests.sampling import examples

_HEAD = 8


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = config["num_key_value_heads"] * _HEAD
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (config["num_attention_heads"] * _HEAD, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, config["num_attention_heads"] * _HEAD),
    }
    experts = config.get("num_local_experts")
    if experts:
        layer["block_sparse_moe.gate.weight"] = (experts, hidden)
        for expert in range(experts):
            for name, shape in {"w1": (inner, hidden), "w3": (inner, hidden), "w2": (hidden, inner)}.items():
                layer[f"block_sparse_moe.experts.{expert}.{name}.weight"] = shape
    else:
        layer |= {f"mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        layer["mlp.down_proj.weight"] = (hidden, inner)
    ends = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "lm_head.weight": (config["vocab_size"], hidden),
    }
    layers = range(config["num_hidden_layers"])
    return {
        **ends,
        "model.norm.weight": (hidden,),
        **{f"model.layers.{number}.{name}": shape for number in layers for name, shape in layer.items()},
    }


@cache
def _model(heads: int, keys: int, inner: int, layers: int, experts: int) -> Path:
    """A folder with a Llama or Mixtral model of these sizes."""
    import numpy

    config = {
        "architectures": ["MixtralForCausalLM" if experts else "LlamaForCausalLM"],
        "model_type": "mixtral" if experts else "llama",
        "hidden_size": heads * _HEAD,
        "head_dim": _HEAD,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": 96,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        **({"num_local_experts": experts, "num_experts_per_tok": 1} if experts else {}),
    }
    random = numpy.random.default_rng(0)
    arrays = {name: random.standard_normal(shape).astype(numpy.float32) for name, shape in _shapes(config).items()}
    return write(Path(tempfile.mkdtemp()) / "hf", arrays, config)


def _offers(text: str) -> list[list[str]]:
    """The overrides of each offer in an error."""
    found = re.findall(r"works: (.*(?:\n {2,}\S.*)*)", text)
    return [each.split() for offers in found for each in offers.split(" · ")]


def _refused(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The error of a conversion; empty if there is none."""
    capsys.readouterr()
    out = folder.parent / "out"
    code = launch("hf-to-mcore", "--model", folder, "--out", out, "--dry-run", *words)
    text = capsys.readouterr().err
    assert (code == 1) == ("error" in text), text
    return text if code else ""


SIZES = st.sampled_from((1, 2, 3, 4, 6))


@st.composite
def _words(draw: st.DrawFn, experts: int) -> list[str]:
    backend = draw(st.sampled_from((["--format", "legacy"], ["--backend", "mindspeed"], ["--backend", "mindformers"])))
    tp, pp = draw(SIZES), draw(SIZES)
    words = [*backend, f"parallel.tp={tp}", f"parallel.pp={pp}"]
    if pp > 1:
        ends = ("parallel.first_stage_layers=", "parallel.last_stage_layers=")
        words += [end + str(draw(SIZES)) for end in ends if draw(st.booleans())]
        words += [f"parallel.vpp={draw(SIZES)}"] if draw(st.booleans()) else []
    if experts:
        words += [f"parallel.ep={draw(SIZES)}"]
        words += [f"parallel.etp={draw(SIZES)}"] if draw(st.booleans()) else []
    return words


@st.composite
def cases(draw: st.DrawFn) -> tuple[Path, list[str]]:
    heads, experts = draw(st.sampled_from((2, 4, 6))), draw(st.sampled_from((0, 4, 6)))
    keys = draw(st.sampled_from([size for size in (1, 2, 3, heads) if heads % size == 0]))
    inner, layers = draw(st.sampled_from((24, 32, 40))), draw(st.sampled_from((4, 6)))
    return _model(heads, keys, inner, layers, experts), draw(_words(experts))


def _all_work(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Try each offer of a refused conversion; return their number."""
    offers = [offer for offer in _offers(_refused(folder, words, capsys)) if offer[0].startswith("parallel.")]
    for offer in offers:
        names = [word.partition("=")[0] for word in offer]
        kept = [word for word in words if word.partition("=")[0] not in names]
        assert _refused(folder, [*kept, *offer], capsys) == "", (words, offer)
    return len(offers)


NAMED = {
    "heads, not the network": (_model, (6, 6, 32, 6, 0), ["parallel.tp=4"], "tp=1 · parallel.tp=2"),
    "the network alone": (
        _model,
        (6, 6, 32, 6, 0),
        ["parallel.tp=3"],
        "x 3 parts; works: parallel.tp=1 · parallel.tp=2",
    ),
    "two at once": (
        _model,
        (6, 6, 32, 6, 0),
        ["parallel.tp=4", "parallel.pp=4"],
        "works: parallel.pp=2 parallel.tp=2 · parallel.pp=3 parallel.tp=2",
    ),
    "ends of more layers than there are": (
        _model,
        (2, 2, 32, 4, 0),
        ["parallel.pp=2", "parallel.first_stage_layers=4", "parallel.last_stage_layers=4"],
        "first_stage_layers=4 and last_stage_layers=4: the model has 4 layers for 2 pipeline stages; works:"
        " parallel.pp=1",
    ),
    "the matrix of all experts": (
        _model,
        (6, 6, 40, 4, 6),
        ["parallel.tp=3", "moe.grouped_gemm=true", "--layers", "local"],
        "experts.0.linear_fc1.weight: 80 cannot be split into 2 x 3 parts; works: parallel.etp=1",
    ),
    "chunks": (_model, (2, 2, 32, 6, 0), ["parallel.pp=2", "parallel.vpp=2"], "works: parallel.vpp=1 · parallel.vpp=3"),
    "experts": (_model, (2, 2, 32, 4, 6), ["parallel.ep=4"], "works: parallel.ep=2 · parallel.ep=3"),
    "inside experts": (_model, (6, 6, 40, 4, 6), ["parallel.tp=3"], "x 3 parts; works: parallel.etp=1"),
    "parts of experts": (
        _model,
        (4, 4, 32, 4, 4),
        ["parallel.tp=1", "parallel.etp=2"],
        "would write the same file; works: parallel.etp=1",
    ),
}


@pytest.mark.parametrize("make,sizes,words,shown", NAMED.values(), ids=NAMED.keys())
def test_the_nearest_sizes_that_work_are_offered(
    make: Any, sizes: tuple[int, ...], words: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = make(*sizes), ["--format", "legacy", *words]
    assert shown in re.sub(r"\s+", " ", _refused(folder, words, capsys))
    assert _all_work(folder, words, capsys)


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_every_offer_works(case: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assume(_refused(*case, capsys) != "")
    _all_work(*case, capsys)


def test_expert_tensor_sizes_that_do_not_divide_tp_come_back(tmp_path: Path) -> None:
    folder, legacy, back = _model(6, 6, 24, 4, 6), tmp_path / "legacy", tmp_path / "back"
    words = ("--format", "legacy", "parallel.tp=3", "parallel.etp=2", "parallel.ep=3")
    assert launch("hf-to-mcore", "--model", folder, "--out", legacy, *words) == 0
    assert launch("mcore-to-hf", "--checkpoint", legacy, "--out", back) == 0
    assert tensors(back) == tensors(folder)


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2, 3, 4, 6])
def test_a_file_has_the_part_of_an_expert_that_megatron_core_gives_its_rank(tp: int) -> None:
    core = pytest.importorskip("megatron.core.parallel_state")
    compared = 0
    for etp, ep in ((1, 2), (2, 3), (2, 2), (3, 2), (4, 3), (3, 4)):
        world = 24
        dense = core.RankGenerator(tp=tp, ep=1, dp=world // tp, pp=1, cp=1, order="tp-cp-ep-dp-pp")
        expert = core.RankGenerator(tp=etp, ep=ep, dp=world // (etp * ep), pp=1, cp=1, order="tp-cp-ep-dp-pp")
        parts: dict[tuple[int, int], set[int]] = {}
        for rank in range(world):
            at = [
                next(group.index(rank) for group in generator.get_ranks(what) if rank in group)
                for generator, what in ((dense, "tp"), (expert, "ep"), (expert, "tp"))
            ]
            parts.setdefault((at[0], at[1]), set()).add(at[2])
        grid = Grid(tp=tp, ep=ep, etp=etp)
        if any(len(found) > 1 for found in parts.values()):
            with pytest.raises(Undivided):
                grid.ranks()
            continue
        assert {key: grid.experts(*key, count=12)[1] for key in grid.ranks()} == {
            key: next(iter(found)) for key, found in parts.items()
        }
        compared += 1
    assert compared


NOOPS = {
    "outside": (["parallel.noop_layers=[99]"], "layer 99 is outside 0 … 4"),
    "outside, and layers that do not divide": (["parallel.pp=3", "parallel.noop_layers=[6,7]"], "layer 6 is outside"),
    "twice": (["parallel.pp=2", "parallel.noop_layers=[0,0]"], "a layer is named twice"),
}


@pytest.mark.parametrize("words,text", NOOPS.values(), ids=NOOPS)
def test_numbers_of_no_op_layers_that_are_refused_have_an_offer(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _model(4, 2, 24, 4, 0)
    error = _refused(folder, ["--backend", "mindspeed", *words], capsys)
    assert text in error
    (offer,) = _offers(error)
    kept = [word for word in words if "noop" not in word]
    assert _refused(folder, ["--backend", "mindspeed", *kept, *offer], capsys) == ""

"""Selections of layers: Python evaluates an expression as we do, and the real megatron-core refuses what we refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.megatron_lm import BACKEND
from launcher.list_expression import expand
from tests.backends.megatron_lm import rule_cases

LAYERS = 8  # of the models in rule_cases
_LISTS = st.one_of(
    st.lists(st.integers(0, 1), max_size=4).map(lambda items: f"[{','.join(map(str, items))}]"),
    st.sampled_from(["[0]*2", "3*[1]", "[1]*8", "[2]*8", "([0]*3+[1])*2"]),
)
EXPRESSIONS = st.one_of(
    _LISTS,
    st.tuples(_LISTS, st.sampled_from(["+", "*", ",", ""]), _LISTS).map("".join),
    st.tuples(_LISTS, st.integers(0, 9)).map(lambda pair: f"({pair[0]})*{pair[1]}"),
    st.text("[]()+*,01289", min_size=1, max_size=12),
)


def _evaluated(expression: str) -> object:
    """Return what Megatron-LM's parser makes of an expression of these characters: it evaluates it."""
    try:
        return eval(expression)
    except Exception:
        return None


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@given(EXPRESSIONS)
def test_an_expression_is_what_python_makes_of_it(expression):
    wanted = _evaluated(expression)
    is_list = isinstance(wanted, list) and all(isinstance(item, int) for item in wanted)
    assert expand(expression) == (wanted if is_list else None)


def _refuses(rule: str, words: str) -> bool:
    values = rule_cases.values(BACKEND, "0.16.1", words, moe=rule == "MLM-MOE-PATTERN")
    return rule in {found.rule for found in rule_cases.findings(BACKEND, "0.16.1", values, {})}


@pytest.mark.slow
@pytest.mark.parametrize("freq", ["1", "2", "0", "[1]*8", "[1]*7", "[1]*9", "[0]+[1]*7", "[2]*8", "[0]*8", "-1"])
def test_megatron_core_builds_the_layers_that_pass(freq):
    specs = pytest.importorskip("megatron.core.models.gpt.gpt_layer_specs", reason="extra rehearsal")
    from megatron.core.transformer.transformer_config import TransformerConfig

    places = int(freq) if freq.lstrip("-").isdigit() else eval(freq)
    sizes = {"num_layers": LAYERS, "hidden_size": 8, "num_attention_heads": 2, "num_moe_experts": 2}
    config = TransformerConfig(**sizes, moe_layer_freq=places, gated_linear_unit=True, add_bias_linear=False)
    try:
        specs.get_gpt_decoder_layer_specs(config, use_transformer_engine=False, normalization="RMSNorm")
        built = True
    except (AssertionError, ValueError, ZeroDivisionError):
        built = False
    assert built is not _refuses("MLM-MOE-PATTERN", f"--moe-layer-freq {freq}")


@pytest.mark.slow
@pytest.mark.parametrize("freq", ["1", "0", "3", "[1]*8", "[1]*7", "[1]*9", "[5,0]*4"])
def test_megatron_core_finds_the_window_of_each_layer_that_passes(freq):
    utils = pytest.importorskip("megatron.core.transformer.utils", reason="extra rehearsal")
    places = int(freq) if freq.isdigit() else eval(freq)
    try:
        for layer in range(1, LAYERS + 1):
            utils.is_layer_window_attention((8, 0), places, layer)
        found = True
    except (IndexError, ZeroDivisionError):
        found = False
    assert found is not _refuses("MLM-WINDOW-PATTERN", f"--window-size 8,0 --window-attn-skip-freq {freq}")


def test_a_list_for_another_number_of_layers_is_not_read_as_the_model_s(launch, tmp_path):
    """[1]*4 describes 4 layers; read as "every layer is an MoE layer" it would train another model than the script."""
    script = tmp_path / "train.sh"
    words = "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --num-experts 4 --moe-layer-freq [1]*4"
    script.write_text(f"torchrun --nproc_per_node 1 pretrain_gpt.py {words}\n", encoding="utf-8")
    found = launch("check", str(script), "--json").json["findings"]
    message = next(each["message"] for each in found if each["rule"] == "MLM-MOE-PATTERN")
    assert message == "--moe-layer-freq [1]*4 describes 4 layers; the model has 8"

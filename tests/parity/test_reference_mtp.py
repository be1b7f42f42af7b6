"""The reference's multi-token prediction: equations 21 to 25 of DeepSeek-V3, its layer run by transformers itself."""

from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.parity.model import make_model
from launcher.parity.reference_mtp import knows, load_with_mtp, mtp_loss
from launcher.rehearse.shrink import shrink

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=["tiny_deepseek_v3", "glm4_5_air"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    job = shrink(compose([f"+recipe={request.param}", "precision.dtype=fp32"]), cores=1).job
    folder = make_model(job, tmp_path_factory.mktemp("model"))
    name = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    arguments = {"attn_implementation": "eager", name: torch.float32}
    return *load_with_mtp(transformers, torch, str(folder), **arguments), folder


def test_the_loss_is_that_of_the_equations(loaded: tuple[Any, Any, Path]) -> None:
    model, layer, _ = loaded
    with torch.no_grad():
        for norm in (layer.enorm, layer.hnorm, layer.shared_head.norm):
            norm.weight.add_(torch.randn_like(norm.weight) * 0.1)
        tokens = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(3))
        hidden = model.model(input_ids=tokens).last_hidden_state
        following = torch.cat(
            [model.model.embed_tokens(tokens[:, 1:]), model.model.embed_tokens.weight[0].expand(2, 1, -1)], 1
        )
        merged = torch.cat([_norm(following, layer.enorm), _norm(hidden, layer.hnorm)], -1) @ layer.eh_proj.weight.T
        output = _alone(model, layer, merged)
        scores = torch.log_softmax(_norm(output, layer.shared_head.norm) @ model.lm_head.weight.T, -1)
        picked = [scores[row, place, tokens[row, place + 2]] for row in range(2) for place in range(10)]
        assert float(mtp_loss(torch, model, layer, tokens, hidden)) == pytest.approx(
            -float(sum(picked)) / len(picked), rel=1e-5
        )


def _norm(values: Any, norm: Any) -> Any:
    return values / (values.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * norm.weight


def _alone(model: Any, layer: Any, merged: Any) -> Any:
    """Return the output of the layer alone, with the mask and positions that transformers makes."""
    whole = model.model
    layers, norm, count = whole.layers, whole.norm, whole.config.num_hidden_layers
    try:
        whole.layers, whole.norm, whole.config.num_hidden_layers = torch.nn.ModuleList([layer]), torch.nn.Identity(), 1
        return whole(inputs_embeds=merged, use_cache=False).last_hidden_state
    finally:
        whole.layers, whole.norm, whole.config.num_hidden_layers = layers, norm, count


def test_it_is_saved_under_the_names_of_the_checkpoint(loaded: tuple[Any, Any, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model, _, folder = loaded
    model.save_pretrained(tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    made = load_file(next(folder.glob("*.safetensors")))
    copies = {name for name in made if name.endswith((".embed_tokens.weight", "shared_head.head.weight"))}
    assert set(written) == set(made) - copies | {"model.embed_tokens.weight"}


def test_the_families_whose_layers_are_computed_follow_from_their_checkpoints() -> None:
    assert [name for name in ("deepseek_v3", "glm4_moe", "qwen3", "deepseek_v4", None) if knows(name)] == [
        "deepseek_v3",
        "glm4_moe",
    ]

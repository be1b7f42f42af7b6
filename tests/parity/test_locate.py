"""--locate names the first tensor that differs, whatever order each implementation keeps its tokens in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from launcher.compose import compose  # noqa: E402
from launcher.job import Job  # noqa: E402
from launcher.parity.locate import Located, located, with_settings  # noqa: E402
from launcher.parity.recording import Traced  # noqa: E402
from launcher.parity.sides import Side, side_of  # noqa: E402
from launcher.rehearse.cpu import tracer  # noqa: E402

HIDDEN, VOCABULARY, PAD = 4, 11, 7
SHORT, LONG = [3, 1, 4], [1, 5, 9, 2, 6]
JOB = compose(["+recipe=tiny_qwen3", "model.num_hidden_layers=2"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What a model computes of each token: deterministic numbers of the token, its place and its sequence."""

    sequences: list[list[int]]

    def of(self, name: str, width: int = HIDDEN) -> list[Any]:
        """Return [tokens, width] for each sequence."""
        return [
            torch.stack(
                [
                    torch.sin(torch.arange(1.0, width + 1) * (token + 1) + place + len(name))
                    for place, token in enumerate(sequence)
                ]
            )
            for sequence in self.sequences
        ]


MODULES: Mapping[str, tuple[str, str]] = {
    "embedding": ("embedding.word_embeddings", "model.embed_tokens"),
    "norm": ("decoder.layers.0.input_layernorm", "model.layers.0.input_layernorm"),
    "mlp": ("decoder.layers.1.mlp", "model.layers.1.mlp"),
    "logits": ("output_layer", "lm_head"),
}


def losses(logits: list[Any], sequences: list[list[int]]) -> list[Any]:
    """Return the loss of each token's successor; of the last one, of token 0, as a backend that predicts it would."""
    targets = [torch.tensor([*sequence[1:], 0]) for sequence in sequences]
    return [torch.nn.functional.cross_entropy(*each, reduction="none") for each in zip(logits, targets, strict=True)]


def trace(
    sequences: list[list[int]],
    joined: Callable[[list[Any]], Any],
    *,
    side: int,
    change: str = "",
    scale: float = 1.0,
) -> dict[str, dict[str, Any]]:
    """Return what one implementation records.

    Args:
        joined: tensors of each sequence to one of the implementation.
        side: 0 for Megatron-core's names, 1 for those of transformers.
        change: `NAME` or `NAME gradient` that differs.
        scale: of all gradients.
    """
    computed, found = Computed(sequences=sequences), {}
    numbers = joined([torch.tensor(each)[:, None] for each in sequences])[..., 0]
    tokens_first = side == 0 and numbers.dim() == 2 and numbers.shape[0] > 1
    for name, modules in MODULES.items():
        width = VOCABULARY if name == "logits" else HIDDEN
        values, gradients = computed.of(name, width), computed.of(f"{name} gradient", width)
        if change == name:
            values[0][1] += 0.5
        if change == f"{name} gradient":
            gradients[-1][1] += 0.5
        output, gradient = joined(values), joined(gradients) * scale
        if tokens_first and name != "embedding":
            output, gradient = output.transpose(0, 1), gradient.transpose(0, 1)
        found[modules[side]] = {"inputs": [output + 1], "outputs": [output], "gradient": gradient}
    found[MODULES["embedding"][side]]["inputs"] = [numbers]
    loss = losses(computed.of("logits", VOCABULARY), sequences)
    if change == "loss":
        loss[0][0] += 0.5
    whole = [joined([each[:, None] for each in loss])[..., 0]] if side == 0 else [output]
    found[""] = {"inputs": [numbers], "outputs": whole, "gradient": None}
    return found


def padded(values: list[Any]) -> Any:
    """Return tensors of each sequence as one, [sequences, tokens, …], with the ends filled."""
    longest = max(len(each) for each in values)
    rows = [torch.cat([each, each.new_full((longest - len(each) + 2, *each.shape[1:]), PAD)]) for each in values]
    return torch.stack(rows)


def packed(values: list[Any]) -> Any:
    """Return tensors of each sequence joined, [1, tokens, …]."""
    return torch.cat(values)[None]


def compare(tmp_path: Path, first: Traced, second: Traced, job: Job = JOB) -> Located:
    for name, traced in (("first.pt", first), ("second.pt", second)):
        torch.save(traced, tmp_path / name)
    return located(job, tmp_path / "first.pt", tmp_path / "second.pt", allowed=1e-5)[0]


LAYOUTS: Mapping[str, Callable[[list[Any]], Any]] = {"padded": padded, "joined": packed}
CHANGES = {
    "": "",
    "embedding": "embedding",
    "norm": "layer 0: norm before attention",
    "mlp": "layer 1: MLP",
    "logits": "logits",
    "loss": "loss of each token",
    "logits gradient": "gradient of logits",
    "mlp gradient": "gradient of layer 1: MLP",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_first_difference_is_named_whatever_the_order_of_the_tokens(
    tmp_path: Path, change: str, layout: str
) -> None:
    sequences = [SHORT, LONG]
    reference = trace(sequences, padded, side=1)
    side = trace(sequences, LAYOUTS[layout], side=0, change=change, scale=8.0)
    found = compare(tmp_path, reference, side)
    assert f"{'gradient of ' if found.backward else ''}{found.stage}" == CHANGES[change]
    # Two backends, of which the first one joins its sequences.
    other = compare(tmp_path, trace(sequences, packed, side=0), side)
    assert other.stage == found.stage


def test_the_logits_are_those_of_the_model_and_not_of_its_multi_token_prediction(tmp_path: Path) -> None:
    sequences = [SHORT, LONG]
    side = trace(sequences, packed, side=0)
    own = side["output_layer"]
    side["decoder.final_layernorm"] = {"inputs": [own["inputs"][0] - 1], "outputs": own["inputs"], "gradient": None}
    ahead = {key: [each + 1 for each in own[key]] for key in ("inputs", "outputs")} | {"gradient": own["gradient"]}
    reference = trace(sequences, padded, side=1)
    for first, last in ((own, ahead), (ahead, own)):
        calls = {"output_layer": first, f"output_layer{tracer.AGAIN}": last}
        assert not compare(tmp_path, reference, {**side, **calls}).stage


def test_a_reference_that_computes_one_answer_is_compared_with_that_one(tmp_path: Path) -> None:
    """DPO: backends compute the preferred and the rejected answers of a micro-batch at once."""
    reference = trace([LONG], padded, side=1)
    assert not compare(tmp_path, reference, trace([SHORT, LONG], packed, side=0, change="mlp")).stage
    assert compare(tmp_path, reference, trace([LONG, SHORT], packed, side=0, change="mlp")).stage == "layer 1: MLP"


def test_other_tokens_are_the_first_difference(tmp_path: Path) -> None:
    reference = trace([SHORT, LONG], padded, side=1)
    found = compare(tmp_path, reference, trace([SHORT, [1, 5, 9, 2, 8]], padded, side=0))
    assert found.stage == "tokens"
    assert "first difference: tokens" in found.lines()[0]


def test_a_recording_of_no_model_is_told(tmp_path: Path) -> None:
    found = compare(tmp_path, trace([LONG], padded, side=1), {"x": {"inputs": [], "outputs": [], "gradient": None}})
    assert found.lines() == ["not located: no embedding was recorded"]


def test_both_sides_settings_are_shown(tmp_path: Path) -> None:
    reference = trace([LONG], padded, side=1)
    for name, traced in (("a.pt", reference), ("b.pt", trace([LONG], padded, side=0, change="norm"))):
        torch.save(traced, tmp_path / name)
    sides = [side("megatron_lm"), side("mindspeed")]
    found = with_settings(*located(JOB, tmp_path / "a.pt", tmp_path / "b.pt", allowed=1e-5), sides, "transformers")
    head, *rest = found.lines()
    assert "layer 0: norm before attention" in head
    assert rest[0].startswith("  transformers: model.normalization=RMSNorm model.rms_norm_eps=1e-06")
    for line, name in zip(rest[1:], ("megatron_lm", "mindspeed"), strict=True):
        assert line.startswith(f"  {name}: ")
        assert "--normalization RMSNorm" in line
        assert "--norm-epsilon 1e-06" in line


def side(backend: str) -> Side:
    return side_of(
        ["+recipe=tiny_qwen3"], backend, entry="native", python=None, environ={}, config_dirs=[], iterations=2
    )


def test_the_pass_that_is_trained_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_active", [])
    monkeypatch.setenv(tracer.VARIABLE, str(tmp_path / "trace.pt"))
    frozen, trained = (torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(12))) for _ in range(2))
    tracer.install()
    with torch.no_grad():
        frozen(torch.ones(1, 2))
    trained(torch.ones(1, 2)).sum().backward()
    tracer.write()
    trained(torch.zeros(1, 2)).sum().backward()
    found = torch.load(tmp_path / "trace.pt", weights_only=True)
    torch.testing.assert_close(found["0"]["outputs"][0], trained[0](torch.ones(1, 2)).detach())
    torch.testing.assert_close(found[""]["gradient"], torch.ones(1, 2))

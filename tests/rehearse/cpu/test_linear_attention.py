"""Linear attention in torch: samples of a pack are computed as each on its own."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
ssm = pytest.importorskip("megatron.core.ssm.gated_delta_net")

from launcher.rehearse.cpu.linear_attention import _with_torch  # noqa: E402

LENGTHS = (5, 70, 1)
ENDS = torch.tensor([0, 5, 75, 76])


@pytest.fixture
def kernels() -> SimpleNamespace:
    """A module that imports the package, as mcore-bridge does."""
    plain = ssm.torch_chunk_gated_delta_rule
    module = SimpleNamespace(chunk_gated_delta_rule=None, causal_conv1d=None, torch_chunk_gated_delta_rule=plain)
    _with_torch(module)
    return module


def test_packed_samples_are_attended_apart(kernels: SimpleNamespace) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 76, 2, 8) for _ in range(3))
    gates = {"g": -torch.rand(1, 76, 2), "beta": torch.rand(1, 76, 2)}
    packed, _ = kernels.chunk_gated_delta_rule(query, key, value, **gates, cu_seqlens=ENDS)
    for start, length in zip(ENDS.tolist(), LENGTHS, strict=False):
        part = slice(start, start + length)
        alone, _ = kernels.chunk_gated_delta_rule(
            query[:, part], key[:, part], value[:, part], **{name: gate[:, part] for name, gate in gates.items()}
        )
        assert torch.allclose(packed[:, part], alone, atol=1e-6)


def test_packed_samples_are_convolved_apart_and_causally(kernels: SimpleNamespace) -> None:
    x, weight = torch.randn(1, 76, 6), torch.randn(6, 4)
    packed, _ = kernels.causal_conv1d(x=x, weight=weight, bias=None, activation="silu", cu_seqlens=ENDS)
    first = torch.nn.functional.silu(x[0, 5] * weight[:, -1])  # of the second sample: nothing is before it
    assert torch.allclose(packed[0, 5], first, atol=1e-6)
    window = (x[0, 6:10] * weight.T).sum(0)
    assert torch.allclose(packed[0, 9], torch.nn.functional.silu(window), atol=1e-6)

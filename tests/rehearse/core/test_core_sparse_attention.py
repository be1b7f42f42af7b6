"""Sparse attention of the embedded trainer."""

import torch

from launcher.rehearse.core.sparse_attention import hadamard_transform


def test_the_rotation_is_the_hadamard_matrix() -> None:
    rows = hadamard_transform(torch.eye(4))
    assert rows.tolist() == [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]


def test_the_rotation_keeps_lengths_and_is_its_own_inverse() -> None:
    x = torch.randn(3, 5, 64, dtype=torch.float32)
    turned = hadamard_transform(x, scale=64**-0.5)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-5)
    assert torch.allclose(hadamard_transform(turned, scale=64**-0.5), x, atol=1e-5)
    assert hadamard_transform(x.bfloat16()).dtype is torch.bfloat16

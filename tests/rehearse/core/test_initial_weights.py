"""Which initialiser a parameter has, where a library wraps an initialised tensor in a new parameter."""

from types import SimpleNamespace
from typing import Any

import pytest

from launcher.rehearse.core.initial_weights import record_initialisers


def test_a_parameter_that_is_wrapped_again_keeps_its_initialiser_and_gives_it_to_no_other() -> None:
    """As Transformer Engine does: norms were drawn like weights where they took the place of the first wrapping."""
    torch = pytest.importorskip("torch")
    config = SimpleNamespace(init_method=torch.nn.init.normal_, output_layer_init_method=torch.nn.init.zeros_)
    recorder = record_initialisers(config)
    weights: list[Any] = []
    norms: list[Any] = []
    for _ in range(50):
        first = torch.nn.Parameter(torch.empty(4, 4))
        config.init_method(first.data)
        weights.append(torch.nn.Parameter(first.data))
        del first
        norms.append(torch.nn.Parameter(torch.ones(4)))
    plain = torch.nn.Parameter(torch.empty(4, 4))
    config.output_layer_init_method(plain)
    initialiser_of = recorder.lookup()
    assert {initialiser_of(weight) for weight in weights} == {torch.nn.init.normal_}
    assert {initialiser_of(norm) for norm in norms} == {None}
    plain.data = plain.data.clone()  # as a module's move to another device
    assert initialiser_of(plain) is torch.nn.init.zeros_

"""What --locate says where no pass can show the difference."""

from pathlib import Path

from launcher.parity.compare import compared
from launcher.parity.parameters import ParameterDifference
from launcher.parity.request import Request, Result
from launcher.parity.retrace import locate
from launcher.parity.runs import Iteration, Trained


def test_parameters_that_differ_alone_are_the_optimizers(tmp_path: Path) -> None:
    one, other = (
        Trained(
            label=label,
            iterations=(Iteration(iteration=1, loss=6.0, grad_norm=1.0),),
            problem="",
            command="",
            log="",
            seconds=0.0,
        )
        for label in ("transformers", "megatron")
    )
    result = Result(
        folder=tmp_path,
        sides=(),
        trained=(one, other),
        reordered=None,
        compared=(compared(one, other, {1: (1e-5, 1e-4)}, iterations=1),),
        parameters={"megatron": ParameterDifference(name="a", relative=1.0, tolerance=0.1, compared=1)},
    )
    assert not result.agrees
    asked = Request(overrides=(), backends=("megatron",), iterations=1, reference="transformers", locate=True)
    found = locate(asked, result, tmp_path, lambda _line: None)["megatron"]
    why = "the optimizer's step differs, or how the weights are saved, no layer"
    assert found.lines() == [f"not located: loss and gradient norm agree: {why}"]

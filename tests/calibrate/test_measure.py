"""What a training of a calibration recorded is read, or refused with the figure that cannot be one."""

from typing import Any

import pytest

from launcher.calibrate.measure import CannotMeasure, read

RESULT: dict[str, Any] = {
    "device": "cpu",
    "losses": [5.0] * 6,
    "milliseconds": [900.0, 500.0, 100.0, 104.0, 96.0, 100.0],
    "processor_milliseconds": [900.0, 500.0, 80.0, 80.0, 80.0, 80.0],
    "peak_memory_bytes": 400_000_000,
    "peak_tensor_bytes": 30_000_000,
}


def test_the_first_iterations_are_left_out() -> None:
    found = read(RESULT, "base", "wall")
    assert (found.step_s, found.steps, found.tensor_bytes) == (0.1, 4, 30_000_000)
    assert 0.03 < found.spread < 0.1
    assert read(RESULT, "base", "processor").step_s == 0.08
    on_gpu = {**RESULT, "device": "NVIDIA H100", "peak_tensor_bytes": None}
    assert read(on_gpu, "base", "wall").tensor_bytes == 400_000_000


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "not finite": ({"milliseconds": [900.0, 500.0, 100.0, None]}, "milliseconds of iteration 4 is None, not a time"),
    "zero": ({"milliseconds": [900.0, 500.0, 0.0]}, "milliseconds of iteration 3 is 0.0, not a time"),
    "too short": ({"milliseconds": [900.0, 500.0]}, "no milliseconds after the first 2 iterations"),
    "an older trainer": ({"milliseconds": None}, "no milliseconds"),
    "the loss": ({"losses": [5.0, None]}, "the loss is not a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_measurement_is_refused(name: str) -> None:
    changes, said = WRONG[name]
    with pytest.raises(CannotMeasure, match=said):
        read({**RESULT, **changes}, "base", "wall")

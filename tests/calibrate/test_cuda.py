"""A calibration's way on CUDA devices, whose trainings are made here by the estimate from a known hardware file."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.calibrate import calibrate as calibration
from launcher.calibrate import trainings
from launcher.calibrate.calibrate import Calibration, CannotCalibrate, Request, calibrate
from launcher.calibrate.layouts import Layout
from launcher.calibrate.measure import CannotMeasure, Measured
from launcher.compose import compose
from launcher.estimate.as_run import as_run
from launcher.estimate.estimate import quick

pytestmark = pytest.mark.slow

JOB = ("+recipe=qwen3_0_6b", "precision.dtype=bf16")
KNOWN = compose(["+recipe=qwen3_0_6b", "hardware=h200"]).hardware
PEAKS = {"tflops": 900.0, "gbs": 4500.0, "name": "NVIDIA H200", "memory_bytes": 140 * 2**30, "torch": "2.11"}
Training = Callable[[Layout], Measured]


class Device:
    """A stand-in for trainings on GPUs: what it trained, and what it says of each layout."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.failing: Callable[[str], bool] = lambda _name: False

    def measured(self, layout: Layout, words: Sequence[str], folder: Path, **_given: Any) -> Measured:
        self.trained.append(layout.name)
        if self.failing(layout.name):
            raise CannotMeasure(f"{layout.name}: CUDA out of memory", "/tmp/log.txt")
        job, _ = as_run(replace(compose(list(words)), hardware=KNOWN))
        answer = quick(job)
        assert answer.time is not None
        return Measured(
            step_s=answer.time.step_s,
            spread=0.01,
            steps=8,
            tensor_bytes=answer.stages[0].peak_allocated,
            process_bytes=answer.stages[0].peak_allocated,
            device="NVIDIA H200",
        )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Device:
    made = Device()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(calibration, "has_device", lambda kinds: "cuda" in kinds)
    monkeypatch.setattr(calibration, "peaks", lambda *_: PEAKS)
    monkeypatch.setattr(calibration, "devices_seen", lambda _kind: 2)
    monkeypatch.setattr(trainings, "measured", made.measured)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


def calibrated(said: list[str] | None = None, **options: Any) -> Calibration:
    request = Request(overrides=JOB, **options)
    return calibrate(request, show=(said if said is not None else []).append, advanced=lambda *_: None)


def test_a_known_gpu_is_found_again(device: Device) -> None:
    said: list[str] = []
    found = calibrated(said)
    ranks = [row.observation.ranks for row in found.fitted.rows]
    assert set(ranks) == {1, 2}
    assert len(device.trained) == len(set(device.trained)) == len(ranks)
    assert found.threads is None
    assert found.fitted.hardware.device == "cuda"
    assert found.fitted.hardware.memory_gib == 140
    for memory in (False, True):
        assert max(map(abs, found.fitted.errors(held_out=True, memory=memory))) < 0.05
    assert f"1 of {len(ranks)}: " in said[1]
    assert not found.notes


def test_one_device_has_no_layouts_of_two(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "devices_seen", lambda _kind: 1)
    found = calibrated(layouts=6)
    assert {row.observation.ranks for row in found.fitted.rows} == {1}
    assert found.fitted.errors(held_out=True)


def test_hidden_devices_are_none(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "devices_seen", lambda _kind: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(CannotCalibrate, match="CUDA_VISIBLE_DEVICES= hides them") as refused:
        calibrate(Request(overrides=(*JOB, "rehearse.device=cuda")), show=lambda _line: None, advanced=lambda *_: None)
    assert refused.value.works == ("rehearse.device=cpu",)
    assert not device.trained


def test_processor_time_is_no_time_of_a_gpu(device: Device) -> None:
    with pytest.raises(CannotCalibrate, match="kernels are started") as refused:
        calibrated(clock="processor")
    assert refused.value.works == ("--clock wall",)


def test_layouts_that_do_not_fit_are_not_trained(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "peaks", lambda *_: {**PEAKS, "memory_bytes": 9 * 2**30})
    found = calibrated()
    (note,) = found.notes
    assert note.startswith("not trained, too large for the device by the estimate: ")
    assert not set(note.partition(": ")[2].split("; ")) & set(device.trained)
    assert found.fitted.errors(held_out=True)


def test_one_that_fails_is_left_out_and_named(device: Device) -> None:
    device.failing = lambda name: "tp 2" in name
    found = calibrated()
    assert sum("CUDA out of memory (log: /tmp/log.txt)" in note for note in found.notes) == sum(
        map(device.failing, device.trained)
    )
    assert not any("tp 2" in row.observation.name for row in found.fitted.rows)


def test_the_first_that_fails_ends_it(device: Device) -> None:
    device.failing = lambda _name: True
    with pytest.raises(CannotCalibrate, match="CUDA out of memory") as refused:
        calibrated()
    assert refused.value.log == "/tmp/log.txt"
    assert len(device.trained) == 1


def clock(monkeypatch: pytest.MonkeyPatch, device: Device, seconds: float) -> None:
    """Let each training take so long, on a clock of its own."""
    now = [0.0]
    real = device.measured

    def slow(layout: Layout, words: Sequence[str], folder: Path, **given: Any) -> Measured:
        now[0] += seconds
        if given["limit"] is not None and given["limit"] < seconds:
            raise CannotMeasure(f"{layout.name}: stopped after {given['limit']:.0f} s")
        return real(layout, words, folder, **given)

    monkeypatch.setattr(trainings, "measured", slow)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])


def test_a_limit_of_time_fits_what_was_measured(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, device, 25)
    found = calibrated(minutes=2.5)
    assert len(found.fitted.rows) == 6  # 150 s
    assert found.fitted.errors(held_out=True)
    (late,) = found.notes
    assert late.startswith("not measured in 2.5 minutes: ")
    names = late.partition(": ")[2].split("; ")
    assert len(names) == 4  # three, and how many more
    assert not set(names) & {row.observation.name for row in found.fitted.rows}


def test_too_short_a_limit_is_refused_and_what_was_measured_is_kept(
    device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = str(tmp_path / "state.json")
    clock(monkeypatch, device, 25)
    with pytest.raises(CannotCalibrate, match=r"--minutes 0\.5 were over: 1 layout of one process") as refused:
        calibrated(minutes=0.5, state=state)
    assert refused.value.works == ("--minutes 1", f"--resume {state}, which has what was measured")
    before = list(device.trained)
    found = calibrated(minutes=3, state=state)
    assert device.trained[len(before) :]
    assert not set(before) & set(device.trained[len(before) :])
    assert set(before) <= {row.observation.name for row in found.fitted.rows}


@pytest.mark.parametrize("other", [{"steps": 5}, {"overrides": (*JOB, "model.hidden_size=512")}])
def test_the_state_of_another_calibration_is_refused(device: Device, tmp_path: Path, other: Mapping[str, Any]) -> None:
    state = str(tmp_path / "state.json")
    calibrated(layouts=4, state=state)
    trained = len(device.trained)
    request = Request(**{"overrides": JOB, "layouts": 4, "state": state, **other})
    with pytest.raises(CannotCalibrate, match="the state of another calibration"):
        calibrate(request, show=lambda _line: None, advanced=lambda *_: None)
    assert len(device.trained) == trained

"""The steps of a verification: each yields rows of measured figures, or says why it measured none."""

import json
import math
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.families.config_json import config_from_model
from launcher.parity.compare import Compared, compared, tolerances
from launcher.rehearse.implementation import Layers
from tools.gpu.device import Device
from tools.gpu.layouts import DENSE, LATENT, LAYOUTS, MOE, SCALES, Layout, job, words_of
from tools.gpu.runs import OutOfTimeError, Run, Runner
from tools.gpu.table import Row

_ITERATIONS = 6
_SMALL = ("batch.micro_batch_size=2", "batch.global_batch_size=4")
_FP32, _BF16 = ("precision.dtype=fp32",), ("precision.dtype=bf16",)
# At the recipe's 3e-3 without a warm-up gradient norms jump tenfold in single steps, to values that rounding decides.
_GENTLE = ("optimizer.lr=3.0e-4", "optimizer.min_lr=3.0e-5")
_FP8 = (*_BF16, "precision.fp8_format=hybrid", "precision.fp8_recipe=delayed")
_GIB = 2**30
# A calibration may take as long as so many trainings; seconds in which one starts, and fits.
_CALIBRATION, _LEAST_SECONDS = 3, 30.0
_PARITY: Mapping[str, str] = {"dense": DENSE, "MoE": MOE, "MLA, MoE, MTP": LATENT}


class CheckpointError(Exception):
    """The checkpoint of the start weights could not be made on the CPU; the reason."""


@dataclass(slots=True, kw_only=True)
class Verification:
    """What the steps share.

    Attributes:
        device: the device under test.
        runner: starts the trainings.
        hardware: name of a file in conf/hardware for the estimates; None: there is none for this device.
        layouts: how many layouts are measured; all by default.
    """

    device: Device
    runner: Runner
    hardware: str | None
    layouts: int = len(LAYOUTS)
    weights: Path | None = None

    @property
    def layers(self) -> Layers:
        """The layers that the trainer chooses by itself: Transformer Engine's where it is installed."""
        return "local" if self.device.transformer_engine is None else "transformer_engine"

    def on_device(self, name: str, words: Sequence[str]) -> Run:
        """Train on the device under test."""
        return self.runner.train(f"{name}, {self.device.kind}", words, self.device.kind)

    def on_cpu(self, name: str, words: Sequence[str]) -> Run:
        """Train on the CPU, for comparison; a run of its own where the device is a CPU, too."""
        return self.runner.train(f"{name}, reference", words, "cpu")

    def start_weights(self) -> tuple[str, ...]:
        """Return the overrides that load the dense model's start weights, made on the CPU the first time.

        Three iterations of training, converted to Hugging Face's format and by `launch convert hf-to-mcore` back: a
        torch_dist checkpoint that the trainer has not written, with norms and weights that are no fresh draws.

        Raises:
            CheckpointError: a command failed.
        """
        if self.weights is None:
            self.weights = self._made()
        return (f"checkpoint.load={self.weights}", "checkpoint.finetune=true")

    def _made(self) -> Path:
        folder = self.runner.folder / "start weights"
        saved = folder / "trained"
        save = (f"checkpoint.save={saved}", "checkpoint.save_interval=3", "checkpoint.no_save_optim=true")
        words = (*_SMALL, *_FP32, *save)
        run = self.runner.train("start weights/training", job(DENSE, *words, iterations=3), "cpu")
        if run.trained.problem:
            raise CheckpointError(run.trained.problem)
        config = folder / "config"
        config.mkdir(exist_ok=True)
        (config / "config.json").write_text(json.dumps(_config()), encoding="utf-8")
        there = ("mcore-to-hf", "--checkpoint", str(saved), "--model", str(config), "--out", str(folder / "hf"))
        back = ("hf-to-mcore", "--model", str(folder / "hf"), "--out", str(folder / "mcore"))
        for command in (there, back):
            done = self.runner.command("convert", *command)
            if done.returncode:
                raise CheckpointError(f"launch convert {command[0]}: {_line(done.stderr or done.stdout)}")
        return folder / "mcore"


def _config() -> dict[str, Any]:
    """Return the config.json of the dense model."""
    from launcher.compose import compose

    return dict(config_from_model(compose([DENSE, "backend=megatron_lm"]).model, torch_dtype="float32"))


def _line(text: str) -> str:
    """Return the first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


def rehearsal(shared: Verification) -> Iterator[Row]:
    """Train from scratch with local layers, and with Transformer Engine's where it is installed."""
    for name, recipe in _PARITY.items():
        run = shared.on_device(f"{name} fp32", job(recipe, *_sizes(recipe), *_FP32, iterations=_ITERATIONS))
        yield _trained("rehearsal", f"{name}, fp32, local layers", run)
    if shared.device.transformer_engine is None:
        reason = "a CPU has none" if shared.device.kind == "cpu" else "Transformer Engine is not installed"
        yield Row(check="rehearsal", what="Transformer Engine's layers", status="not run", figures=reason)
        return
    for name, recipe in _PARITY.items():
        words = job(recipe, *_sizes(recipe), *_BF16, iterations=_ITERATIONS, layers="transformer_engine")
        run = shared.on_device(f"{name} bf16 Transformer Engine", words)
        yield _trained("rehearsal", f"{name}, bf16, Transformer Engine's layers", run, layers="transformer_engine")


def parity(shared: Verification) -> Iterator[Row]:
    """Compare trainings from scratch with those of the CPU, in fp32 and with local layers on both."""
    for name, recipe in _PARITY.items():
        words = job(recipe, *_sizes(recipe), *_FP32, iterations=_ITERATIONS)
        there, here = shared.on_device(f"{name} fp32", words), shared.on_cpu(f"{name} fp32", words)
        yield _beside("parity with CPU", f"{name}, fp32", there, here, "fp32")


def precision(shared: Verification) -> Iterator[Row]:
    """Compare bf16 with the CPU's, and train in fp8 where device and software have it; all from the same weights."""
    load = shared.start_weights()
    words = job(DENSE, *_SMALL, *_BF16, *_GENTLE, *load, iterations=_ITERATIONS)
    plain, reference = shared.on_device("bf16 loaded", words), shared.on_cpu("bf16 loaded", words)
    yield _beside("precision", "dense, bf16, local layers, beside the CPU", plain, reference, "bf16")
    engine = shared.device.transformer_engine
    fused: Run | None = None
    if engine is not None:
        asked = job(DENSE, *_SMALL, *_BF16, *_GENTLE, *load, iterations=_ITERATIONS, layers="transformer_engine")
        fused = shared.on_device("bf16 loaded Transformer Engine", asked)
        yield _beside(
            "precision", "dense, bf16, Transformer Engine, beside the CPU's local layers", fused, reference, "bf16"
        )
    reason = _no_fp8(shared.device)
    if reason or fused is None:
        yield Row(check="precision", what="dense, fp8", status="not run", figures=reason)
        return
    eighth = job(DENSE, *_SMALL, *_FP8, *_GENTLE, *load, iterations=_ITERATIONS, layers="transformer_engine")
    run = shared.on_device("fp8 loaded", eighth)
    row = _trained("precision", "dense, fp8 (hybrid, delayed scaling)", run, layers="transformer_engine")
    if row.status == "ok":
        other = _compared(run, fused, "bf16")
        row = Row(check=row.check, what=row.what, status="ok", figures=f"{row.figures}; beside bf16: {_largest(other)}")
    yield row


def _no_fp8(device: Device) -> str:
    """Return why fp8 is not run; "" where it is."""
    reasons = []
    if device.kind == "cpu":
        reasons.append("a CPU has no fp8 products")
    elif not device.has_fp8:
        reasons.append(f"compute capability {device.capability} is below 8.9")
    if device.kind != "cpu" and device.transformer_engine is None:
        reasons.append("Transformer Engine is not installed")
    return "; ".join(reasons)


def layouts(shared: Verification) -> Iterator[Row]:
    """Measure step time and peak memory of layouts of one device, beside `launch estimate` of the same job."""
    scale = SCALES[shared.device.kind]
    for layout in LAYOUTS[: shared.layouts]:
        words = words_of(layout, scale, shared.layers)
        what = f"{layout.model}: {layout.name}"
        try:
            run = shared.on_device(f"layout {what}".replace("/", "over"), words)
            if run.trained.problem:
                yield Row(check="estimate", what=what, status="failed", figures=run.trained.problem)
            else:
                yield Row(check="estimate", what=what, status="ok", figures=_measured(shared, layout, run, words))
        except OutOfTimeError:
            yield Row(check="estimate", what=what, status="not run", figures="the time was used up")


def _measured(shared: Verification, layout: Layout, run: Run, words: Sequence[str]) -> str:
    """Return step time and peak memory, each beside the estimate's where there is one."""
    tokens = int(SCALES[shared.device.kind].seq_length * layout.longer) * 2 * layout.micro_batch
    found: Mapping[str, Any] = {}
    if shared.hardware is not None:
        done = shared.runner.command("estimate", *words, f"hardware={shared.hardware}", "--json")
        found = json.loads(done.stdout) if done.returncode == 0 else {}
    step = (found.get("time") or {}).get("step_s")
    stages = (found.get("memory") or {}).get("per_stage") or [{}]
    peak = stages[0].get("peak_allocated")
    kind = "peak of the process" if shared.device.kind == "cpu" else "peak allocated"
    parts = [
        _beside_estimate(run.step_ms, None if step is None else step * 1e3, "ms a step", 1),
        _beside_estimate(run.peak_bytes / _GIB, None if peak is None else peak / _GIB, f"GiB {kind}", 2),
        f"{tokens / run.step_ms * 1e3:,.0f} tokens/s",
    ]
    return ", ".join(parts)


def _beside_estimate(measured: float, estimated: float | None, unit: str, digits: int) -> str:
    if estimated is None:
        return f"{measured:,.{digits}f} {unit} (no estimate)"
    return f"{measured:,.{digits}f} {unit} (estimate {estimated:,.{digits}f}, {measured / estimated:.2f} of it)"


def calibrate(shared: Verification) -> Iterator[Row]:
    """Run `launch calibrate`: errors of step time and memory on the layouts that it did not fit."""
    out = shared.runner.folder / "calibrated.yaml"
    kind = shared.device.kind
    sizes = ("model=qwen3_0_6b", *_BF16) if kind == "cuda" else ()
    few = ("--layouts", "8", "--steps", "5") if kind == "cuda" else ("--layouts", "4", "--steps", "3")
    left = max(_LEAST_SECONDS, shared.runner.left(_CALIBRATION) - _LEAST_SECONDS)  # it starts and fits in the others
    limits = (*few, "--rounds", "1", "--minutes", f"{left / 60:.2f}")
    words = ("calibrate", DENSE, *sizes, *limits, f"rehearse.device={kind}", "--json", "-o", str(out))
    done = shared.runner.command(*words, hide_devices=kind == "cpu", trainings=_CALIBRATION)
    if done.returncode:
        yield Row(
            check="calibrate", what="launch calibrate", status="failed", figures=_line(done.stderr or done.stdout)
        )
        return
    (shared.runner.folder / "calibrated.json").write_text(done.stdout, encoding="utf-8")
    found = json.loads(done.stdout)
    held_out = found["errors"]["held_out"]
    figures = "; ".join(
        f"{what} {held_out[what]['mean']:.1%} mean, {held_out[what]['worst']:+.1%} worst"
        for what in ("time", "memory")
        if held_out[what]
    )
    count = sum(each["held_out"] for each in found["layouts"])
    yield Row(check="calibrate", what=f"launch calibrate, {count} layouts held out", status="ok", figures=figures)


def checkpoint(shared: Verification) -> Iterator[Row]:
    """Load a torch_dist checkpoint that was made on the CPU, and train; beside the CPU from the same one."""
    words = job(DENSE, *_SMALL, *_FP32, *shared.start_weights(), iterations=_ITERATIONS)
    there, here = shared.on_device("fp32 loaded", words), shared.on_cpu("fp32 loaded", words)
    row = _beside("checkpoint", "dense, fp32, made on the CPU (launch convert hf-to-mcore)", there, here, "fp32")
    said = str(there.result.get("weights", ""))
    if row.status == "ok" and not said.startswith("loaded from"):
        row = Row(check=row.check, what=row.what, status="failed", figures=f"it was not loaded: {said}")
    yield row


STEPS: Mapping[str, Callable[[Verification], Iterator[Row]]] = {
    "rehearsal": rehearsal,
    "parity": parity,
    "checkpoint": checkpoint,
    "precision": precision,
    "calibrate": calibrate,
    "layouts": layouts,
}
"""Name of a step to what runs it; the ones that take the longest come last."""


def rows_of(name: str, shared: Verification) -> Iterator[Row]:
    """Yield the rows of a step; one that says why where it cannot go on."""
    try:
        yield from STEPS[name](shared)
    except OutOfTimeError:
        yield Row(check=name, what="the rest of this step", status="not run", figures="the time was used up")
    except CheckpointError as error:
        yield Row(check=name, what="start weights", status="failed", figures=str(error))
    except subprocess.TimeoutExpired as error:
        words = " ".join(error.cmd[3:5])
        yield Row(check=name, what=words, status="failed", figures=f"stopped after {error.timeout:.0f} s")


def _sizes(recipe: str) -> tuple[str, ...]:
    """Return a small batch; DeepSeek-V3's loss balances single sequences, so its micro batch stays 1."""
    return ("batch.global_batch_size=4",) if recipe == LATENT else _SMALL


def _trained(check: str, what: str, run: Run, *, layers: Layers = "local") -> Row:
    """Return the row of a training without comparison: it ran, on the layers that were asked for, and is finite."""
    if run.trained.problem:
        return Row(check=check, what=what, status="failed", figures=run.trained.problem)
    losses: list[float | None] = run.result["losses"]
    first, last = losses[0], losses[-1]
    if first is None or last is None or not (math.isfinite(first) and math.isfinite(last)):
        return Row(check=check, what=what, status="failed", figures="the loss is not a number")
    if run.result["layers"] != layers:
        return Row(check=check, what=what, status="failed", figures=f"it ran on {run.result['layers']} layers")
    figures = f"loss {first:.4f} to {last:.4f} in {len(losses)} iterations, {run.step_ms:.1f} ms a step"
    return Row(check=check, what=what, status="ok", figures=figures)


def _beside(check: str, what: str, run: Run, reference: Run, dtype: str) -> Row:
    """Return the row of a training beside the CPU's: largest relative differences, and whether they are rounding."""
    found = _compared(run, reference, dtype)
    if found.problem:
        return Row(check=check, what=what, status="failed", figures=found.problem)
    if found.agrees:
        return Row(check=check, what=what, status="ok", figures=_largest(found))
    first = found.first
    where = "" if first is None else f"; from iteration {first.iteration}: {first.quantity} {first.value:.6g} beside "
    where += "" if first is None else f"{first.reference:.6g}, tolerance {first.tolerance:.0e}"
    return Row(check=check, what=what, status="differs", figures=_largest(found) + where)


def _compared(run: Run, reference: Run, dtype: str) -> Compared:
    allowed = tolerances(dtype, reference.trained, None, None)
    return compared(reference.trained, run.trained, allowed, iterations=_ITERATIONS)


def _largest(found: Compared) -> str:
    loss, norm = found.largest["loss"], found.largest["grad_norm"]
    return f"largest relative difference: loss {loss:.0e}, gradient norm {norm:.0e} ({_ITERATIONS} iterations)"

"""The training run: from settings to result.json, on each rank."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from launcher.rehearse.core import checkpoint, environment
from launcher.rehearse.core.data import batches
from launcher.rehearse.core.data.tokenizer import load as load_tokenizer
from launcher.rehearse.core.errors import RehearsalError, stage
from launcher.rehearse.core.interrupt import Interrupt
from launcher.rehearse.core.model import Model, build
from launcher.rehearse.core.options import PreferenceOptions, TrainerOptions
from launcher.rehearse.core.preference import PreferenceStepper, Reference, for_preferences
from launcher.rehearse.core.report import Line, Progress, draw_curve, set_aside, write_result
from launcher.rehearse.core.settings import Settings, padded_vocabulary
from launcher.rehearse.core.step import Stepper, build_stepper
from launcher.rehearse.core.supported_args import IgnoredArg
from launcher.rehearse.core.tensor_memory import TensorMemory
from launcher.rehearse.cpu import recorder, routing, tracer
from launcher.terminal import duration

# Iterations in which tensors are counted: the first one makes the optimizer's states, the second has them.
_COUNTED = 2
_VOCABULARY = ("embedding.word_embeddings.weight", "output_layer.weight")


@dataclasses.dataclass(slots=True, kw_only=True)
class History:
    """Progress so far; the same on every rank."""

    first_iteration: int
    weights: str
    """What the first iteration's weights are."""
    losses: list[float] = dataclasses.field(default_factory=list)
    grad_norms: list[float] = dataclasses.field(default_factory=list)
    """Gradient norm before clipping, of each iteration of this run."""
    validation: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    milliseconds: list[float] = dataclasses.field(default_factory=list)
    processor_milliseconds: list[float] = dataclasses.field(default_factory=list)
    """Processor time of this rank's threads in each iteration, which other programs of the machine do not lengthen."""
    earlier: list[float] = dataclasses.field(default_factory=list)
    """Losses of the run that this one continues, for the plot; on the first rank only."""
    skipped: int = 0
    last_checkpoint: str | None = None
    saved_iteration: int = -1

    @property
    def iteration(self) -> int:
        """Number of iterations done, those before a resume included."""
        return self.first_iteration + len(self.losses)


class Trainer:
    """One rank of a run."""

    def __init__(self, settings: Settings, options: TrainerOptions, ignored: Sequence[IgnoredArg]) -> None:
        self.settings = for_preferences(settings) if options.preference else settings
        self.options, self.ignored = options, ignored
        self.interrupt, self.tensor_memory = Interrupt(), TensorMemory()
        self.started = time.perf_counter()
        self.output_dir = Path(options.output_dir)

    def run(self) -> Interrupt:
        """Train to the end or to an interrupt, and write all outputs of the run."""
        settings = self.settings
        tracer.install()
        routing.install()
        self.interrupt.install()
        tokenizer = load_tokenizer(self.options.data.tokenizer)
        tokenised = self.options.data.kind == "megatron"
        vocab, padded = padded_vocabulary(settings, None if tokenised else tokenizer.size)
        data = batches.build(settings, self.options.data, tokenizer, vocab_size=vocab)
        self.tensor_memory.start()
        with stage("model"):
            model = build(
                settings,
                vocab_size=vocab,
                padded_vocab_size=padded,
                layer_impl=self.options.layer_impl,
                lora=self.options.lora,
            )
        with stage("optimizer"):
            stepper = build_stepper(settings, model)
        loaded = checkpoint.load(settings, stepper)
        history = History(first_iteration=loaded.iteration, weights=loaded.weights)
        if self.options.lora is not None and self.options.lora.load is not None and loaded.iteration == 0:
            history.weights += "; " + checkpoint.load_adapters(settings, stepper, self.options.lora.load)
        if self.options.preference is not None:
            stepper = self._for_preferences(stepper, self.options.preference, loaded.iteration)
        if history.first_iteration >= settings.train_iters:
            if environment.rank() == 0:
                print(f"nothing to do: trained to iteration {history.first_iteration} of {settings.train_iters} before")
            return self.interrupt
        progress = self._progress(model, history, vocab, padded)
        try:
            self._loop(stepper, data, history, progress)
            self._finish(stepper, history, progress)
        finally:
            if progress is not None:
                progress.close()
        return self.interrupt

    def _for_preferences(self, stepper: Stepper, options: PreferenceOptions, iteration: int) -> Stepper:
        adapters = self.options.lora is not None
        if iteration and not adapters:
            raise RehearsalError(
                f"preferences: the reference is the start model, which the checkpoint of iteration {iteration} lacks; "
                "works: --finetune (that checkpoint is the start model), or LoRA"
            )
        return PreferenceStepper(stepper, options, Reference(stepper.model, adapters=adapters))

    def _progress(self, model: Model, history: History, vocab: int, padded: int) -> Progress | None:
        self.parameters = count_parameters(model, vocab)
        self.trained = count_parameters(model, vocab, trained=True)
        self.what, self.layers = what_runs(self.settings, model), model.layer_impl
        if environment.rank() != 0:
            return None
        history.earlier = set_aside(self.output_dir, history.first_iteration)
        progress = Progress(
            self.output_dir,
            iterations=self.settings.train_iters,
            show=self.options.progress,
            tensorboard_dir=self.settings.value("tensorboard_dir"),
            first_iteration=history.first_iteration,
        )
        layout = self.settings.layout
        progress.print_line(self.what)
        progress.print_line(
            f"{self.parameters:,} parameters, vocabulary {vocab} (padded to {padded}), tp {layout.tp} pp {layout.pp} "
            f"vpp {layout.vpp or 1} cp {layout.cp} ep {layout.ep} etp {layout.etp} dp {layout.dp}"
            f"{' sp' if layout.sequence_parallel else ''}, {model.layer_impl} layers"
        )
        progress.print_line(f"weights: {history.weights}")
        if self.trained != self.parameters:
            progress.print_line(f"{self.trained:,} parameters are trained: LoRA adapters on frozen weights")
        for row in self.ignored:
            progress.print_line(f"ignored: {row.flag} ({row.why})")
        if history.first_iteration:
            progress.print_line(f"continues after iteration {history.first_iteration}")
        return progress

    def _loop(self, stepper: Stepper, data: batches.TrainingData, history: History, progress: Progress | None) -> None:
        settings = self.settings
        iterators = self.iterators(data.train, history.iteration * settings.global_batch_size)
        loop_started = time.perf_counter()
        while history.iteration < settings.train_iters:
            stop = self.iterate(stepper, iterators, history, progress)
            if len(history.losses) == _COUNTED:
                self.tensor_memory.stop()
            self._evaluate(stepper, data, history, progress)
            self._save_if_due(stepper, history, progress)
            if stop or self._leaves(history, loop_started):
                break

    def iterate(
        self,
        stepper: Stepper,
        iterators: list[Iterator[dict[str, Any]]],
        history: History,
        progress: Progress | None,
    ) -> bool:
        """Run and report one iteration; True where some rank received a stop request."""
        started, busy = time.perf_counter(), time.process_time()
        trained = stepper.train(iterators, stop=self.interrupt.signal is not None)
        if self.settings.value("check_for_nan_in_loss_and_grad") and trained.loss != trained.loss:
            raise RehearsalError(f"the loss is not a number at iteration {history.iteration + 1}")
        history.losses.append(trained.loss)
        norm = None if trained.skipped else trained.grad_norm
        recorder.record(history.iteration, trained.loss, norm, skipped=trained.skipped)
        history.grad_norms.append(trained.grad_norm)
        history.milliseconds.append((time.perf_counter() - started) * 1e3)
        history.processor_milliseconds.append((time.process_time() - busy) * 1e3)
        history.skipped += trained.skipped
        if progress is not None:
            self._report(stepper, history, trained.grad_norm, progress)
            progress.advance(history.iteration, trained.loss)
        return trained.stop

    def iterators(self, samples: batches.ShuffledSamples, first: int) -> list[Iterator[dict[str, Any]]]:
        """Read micro batches from sample `first` on, once for each model chunk."""
        count = self.settings.layout.vpp or 1
        return [batches.micro_batches(self.settings, samples, first) for _ in range(count)]

    def _report(self, stepper: Stepper, history: History, grad_norm: float, progress: Progress) -> None:
        iteration, interval = history.iteration, self.settings.value("log_interval")
        rate = stepper.optimizer.param_groups[0]["lr"]
        if iteration % self.settings.value("tensorboard_log_interval") == 0:
            progress.scalar("loss", history.losses[-1], iteration)
            progress.scalar("learning-rate", rate, iteration)
            progress.scalar("grad-norm", grad_norm, iteration)
        if iteration % interval and iteration != self.settings.train_iters and len(history.losses) > 1:
            return
        recent = history.milliseconds[-interval:]
        mean = sum(recent) / len(recent)
        progress.step(
            Line(
                iteration=iteration,
                loss=history.losses[-1],
                learning_rate=rate,
                grad_norm=grad_norm,
                milliseconds=mean,
                tokens_per_s=self._tokens() / mean * 1e3,
                skipped=history.skipped,
            )
        )

    def _tokens(self) -> int:
        rows = 1 if self.options.preference is None else 2
        return self.settings.global_batch_size * rows * self.settings.seq_length

    def _evaluate(
        self, stepper: Stepper, data: batches.TrainingData, history: History, progress: Progress | None
    ) -> None:
        if data.valid is None or history.iteration % self.settings.value("eval_interval"):
            return
        iterations = self.settings.value("eval_iters")
        # Evaluations of token files go on through them, as in Megatron-LM; others use the same samples each time.
        before = history.iteration // self.settings.value("eval_interval") - 1
        first = before * iterations * self.settings.global_batch_size if self.options.data.kind == "megatron" else 0
        loss = stepper.evaluate(self.iterators(data.valid, first), iterations)
        history.validation.append((history.iteration, loss))
        if progress is not None:
            progress.print_line(f"validation loss {loss:.6f} after iteration {history.iteration}")
            progress.scalar("validation loss", loss, history.iteration)

    def _save_if_due(self, stepper: Stepper, history: History, progress: Progress | None) -> None:
        interval = self.settings.value("save_interval")
        if self.settings.value("save") and interval and history.iteration % interval == 0:
            self._save(stepper, history, progress)

    def _save(self, stepper: Stepper, history: History, progress: Progress | None) -> None:
        started = time.perf_counter()
        path = checkpoint.save(self.settings, stepper, iteration=history.iteration)
        history.last_checkpoint, history.saved_iteration = str(path), history.iteration
        if progress is not None:
            progress.print_line(f"checkpoint {path} ({time.perf_counter() - started:.1f} s)")

    def _leaves(self, history: History, loop_started: float) -> bool:
        interval, minutes = self.settings.value("exit_interval"), self.settings.value("exit_duration_in_mins")
        if interval and history.iteration % interval == 0:
            return True
        return self._agreed(bool(minutes) and time.perf_counter() - loop_started > minutes * 60) if minutes else False

    def _agreed(self, wish: bool) -> bool:
        """Return rank 0's decision on all ranks."""
        import torch

        decision = [wish]
        torch.distributed.broadcast_object_list(decision, src=0)
        return decision[0]

    def _finish(self, stepper: Stepper, history: History, progress: Progress | None) -> None:
        """Save a final checkpoint if needed, and write result.json and the plot."""
        if self.settings.value("save") and history.saved_iteration != history.iteration and history.losses:
            self._save(stepper, history, progress)
        if progress is None:
            return
        result = self._result(history)
        write_result(self.output_dir, result)
        title = f"{self.what}: loss {result['first_loss']:.3f} to {result['final_loss']:.3f}" if history.losses else ""
        draw_curve(
            self.output_dir,
            history.losses,
            history.validation,
            first=history.first_iteration,
            title=title,
            earlier=history.earlier,
        )
        if history.losses:
            verb = "stopped" if result["interrupted"] else "done"
            progress.print_line(
                f"{verb}: loss {history.losses[0]:.6f} to {history.losses[-1]:.6f} in {len(history.losses)} "
                f"iterations, {duration(result['seconds'])}, {result['tokens_per_s']:,.0f} tokens/s"
            )

    def _result(self, history: History) -> dict[str, Any]:
        steady = history.milliseconds[1:] or history.milliseconds
        mean = sum(steady) / len(steady) if steady else None
        losses = history.losses
        return {
            "what": self.what,
            "device": environment.device_name(),
            "layers": self.layers,
            "iterations": history.iteration,
            "first_iteration": history.first_iteration + 1,
            "first_loss": losses[0] if losses else None,
            "final_loss": losses[-1] if losses else None,
            "losses": losses,
            "grad_norms": history.grad_norms,
            "validation_losses": [list(pair) for pair in history.validation],
            "skipped_iterations": history.skipped,
            "ms_per_iteration": mean,
            "milliseconds": history.milliseconds,
            "processor_milliseconds": history.processor_milliseconds,
            "tokens_per_s": self._tokens() / mean * 1e3 if mean else None,
            "parameters": self.parameters,
            "trained_parameters": self.trained,
            "weights": history.weights,
            "seconds": time.perf_counter() - self.started,
            "peak_memory_bytes": peak_memory(),
            "peak_reserved_bytes": peak_reserved(),
            "peak_tensor_bytes": self.tensor_memory.peak,
            "checkpoint": history.last_checkpoint,
            "interrupted": self.interrupt.signal.name if self.interrupt.signal else None,
            "layout": dataclasses.asdict(self.settings.layout),
            "not_honoured": [dataclasses.asdict(row) for row in self.ignored],
        }


def count_parameters(model: Model, vocab_size: int, *, trained: bool = False) -> int:
    """Count the parameters of the whole model over all ranks, each once, without the vocabulary's padding.

    `trained`: only those that are trained.
    """
    import torch
    from megatron.core import parallel_state

    replica = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    expert_replica = parallel_state.get_expert_data_parallel_rank()
    first_tensor = parallel_state.get_tensor_model_parallel_rank() == 0
    count = 0
    for chunk in model.unwrapped:
        for name, parameter in chunk.named_parameters():
            if trained and not parameter.requires_grad:
                continue
            if name in _VOCABULARY:
                copy = not chunk.pre_process if name == _VOCABULARY[0] else chunk.share_embeddings_and_output_weights
                counted = replica == 0 and first_tensor and not copy
                count += vocab_size * parameter.size(1) * counted
            elif not getattr(parameter, "allreduce", True):  # an expert under expert parallelism
                count += parameter.numel() * (expert_replica == 0)
            else:
                sharded = getattr(parameter, "tensor_model_parallel", False)
                count += parameter.numel() * (replica == 0 and (sharded or first_tensor))
    total = torch.tensor(count, device=torch.cuda.current_device())
    torch.distributed.all_reduce(total)
    return int(total.item())


def what_runs(settings: Settings, model: Model) -> str:
    """Return one line that describes the run."""
    from importlib.metadata import version

    ranks = settings.layout.world_size
    return (
        f"megatron-core {version('megatron-core')} rehearsal on {environment.device_kind()}, {environment.backend()}, "
        f"{ranks} process{'es' if ranks > 1 else ''}"
    )


def peak_memory() -> int:
    """Return this rank's peak memory in bytes: of the device, or of the process on CPU."""
    import resource

    import torch

    if environment.device_kind() == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_reserved() -> int | None:
    """Return the peak of what the device's allocator held, in bytes; None on CPU."""
    import torch

    return int(torch.cuda.max_memory_reserved()) if environment.device_kind() == "cuda" else None

"""Simulates single ranks of a large world, each in one process on torch's fake process group, for one iteration.

Nothing is communicated, so the numbers are meaningless; errors that megatron-core raises at that world size occur here
too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from launcher.rehearse.core import environment
from launcher.rehearse.core.errors import EXIT_OK, EXIT_REFUSED, RehearsalError
from launcher.rehearse.core.options import TrainerOptions
from launcher.rehearse.core.report import write_result
from launcher.rehearse.core.settings import Settings, padded_vocabulary
from launcher.rehearse.core.supported_args import IgnoredArg

_VOCABULARY = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRank:
    """Result of one rank."""

    rank: int
    ok: bool
    seconds: float
    stage: str
    """The last stage reached: parallel state, model, optimizer, iteration or done."""
    error: str | None = None
    parameters: int | None = None
    place: dict[str, int] | None = None

    def line(self) -> str:
        """Return the result as one line."""
        place = " ".join(f"{name}{index}" for name, index in (self.place or {}).items())
        where = f"rank {self.rank}" + (f" ({place})" if place else "")
        if self.ok:
            return f"{where}: built {self.parameters:,} parameters and ran one iteration in {self.seconds:.1f} s"
        return f"{where}: {self.stage}: {self.error}"


def run(settings: Settings, options: TrainerOptions, ignored: Sequence[IgnoredArg]) -> int:
    """Simulate the ranks in the options, one after another, and return the exit code."""
    assert options.fake_world is not None
    world = options.fake_world.world_size
    outside = [rank for rank in options.fake_world.ranks if not 0 <= rank < world]
    if outside:
        raise RehearsalError(*(f"rank {rank} is not in a world of {world}" for rank in outside))
    output = Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    peers_do_as_this_rank()
    environment.import_megatron()
    what = f"megatron-core {version('megatron-core')}, ranks on a fake process group of {world}: no communication"
    print(what, flush=True)
    played = []
    for rank in options.fake_world.ranks:
        played.append(_in_child(settings, options, rank))
        print(("" if played[-1].ok else "error: ") + played[-1].line(), flush=True)
    result = {
        "what": what,
        "world_size": world,
        "ok": all(rank.ok for rank in played),
        "ranks": [dataclasses.asdict(rank) for rank in played],
        "seconds": time.perf_counter() - started,
        "layout": dataclasses.asdict(settings.layout),
        "not_honoured": [dataclasses.asdict(row) for row in ignored],
    }
    write_result(output, result)
    return EXIT_OK if result["ok"] else EXIT_REFUSED


def peers_do_as_this_rank() -> None:
    """Patch collectives to return the shapes and split sizes of a world in which every peer equals this rank.

    The fake process group leaves outputs as they are: expert parallelism would read the number of tokens to exchange
    from uninitialised memory. Must run before megatron-core binds these functions.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    class Done:
        """A finished operation."""

        def wait(self, *_args: Any) -> bool:
            return True

    def all_gather_into_tensor(output: Any, input: Any, *_args: Any, **_kwargs: Any) -> Done:
        output.view(-1, input.numel()).copy_(input.reshape(1, -1).expand(output.numel() // input.numel(), -1))
        return Done()

    def reduce_scatter_tensor(output: Any, input: Any, *_args: Any, **_kwargs: Any) -> Done:
        output.view(-1).copy_(input.reshape(-1)[: output.numel()])
        return Done()

    def all_to_all_single(output: Any, input: Any, *_args: Any, **_kwargs: Any) -> Done:
        output.zero_()
        return Done()

    for function in (all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single):
        for module in (dist, distributed_c10d):
            setattr(module, function.__name__, function)


def _in_child(settings: Settings, options: TrainerOptions, rank: int) -> PlayedRank:
    """Fork after the imports: parallel state is global, so each rank needs its own process."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            json.dump(dataclasses.asdict(_play(settings, options, rank)), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _child, status = os.waitpid(child, 0)
    if not text:
        reason = f"the process ended with status {os.waitstatus_to_exitcode(status)}"
        return PlayedRank(rank=rank, ok=False, seconds=0.0, stage="process", error=reason)
    return PlayedRank(**json.loads(text))


def _play(settings: Settings, options: TrainerOptions, rank: int) -> PlayedRank:
    from launcher.rehearse.core.model import build
    from launcher.rehearse.core.step import build_stepper

    quiet = {**settings.overrides, "check_for_nan_in_loss_and_grad": False}
    settings = dataclasses.replace(settings, overrides=quiet, num_microbatches=sufficient_micro_batches(settings))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(settings.layout.world_size))
    started = time.perf_counter()
    stage, place, parameters = "parallel state", None, None

    def outcome(error: str | None) -> PlayedRank:
        return PlayedRank(
            rank=rank,
            ok=error is None,
            seconds=time.perf_counter() - started,
            stage=stage,
            error=error,
            parameters=parameters,
            place=place,
        )

    try:
        environment.start_fake(settings, rank)
        place = _place()
        stage = "model"
        vocab, padded = padded_vocabulary(settings, _VOCABULARY)
        model = build(
            settings,
            vocab_size=vocab,
            padded_vocab_size=padded,
            layer_impl=options.layer_impl,
            lora=options.lora,
        )
        parameters = sum(parameter.numel() for chunk in model.unwrapped for parameter in chunk.parameters())
        stage = "optimizer"
        stepper = build_stepper(settings, model)
        stage = "iteration"
        stepper.train(_made_up_batches(settings), stop=False)
        stage = "done"
    except Exception as error:
        text = " ".join(str(error).split()) or "no message"
        return outcome(f"{type(error).__name__}: {text[:500]}")
    return outcome(None)


def sufficient_micro_batches(settings: Settings) -> int:
    """Return a smaller number of micro batches with the same pipeline schedule checks as the real one."""
    count = settings.num_microbatches
    group = settings.value("microbatch_group_size_per_vp_stage") or settings.layout.pp
    return count if count <= 2 * group else group + count % group + (group == 1)


def _place() -> dict[str, int]:
    from megatron.core import parallel_state

    return {
        "tp": parallel_state.get_tensor_model_parallel_rank(),
        "pp": parallel_state.get_pipeline_model_parallel_rank(),
        "cp": parallel_state.get_context_parallel_rank(),
        "ep": parallel_state.get_expert_model_parallel_rank(),
        "dp": parallel_state.get_data_parallel_rank(),
    }


def _made_up_batches(settings: Settings) -> list[Any]:
    from launcher.rehearse.core.data.batches import ShuffledSamples, micro_batches
    from launcher.rehearse.core.data.samples import MadeUpSamples

    samples = MadeUpSamples(seq_length=settings.seq_length, vocabulary=_VOCABULARY)
    source = ShuffledSamples(samples, 0, shuffle=False, vocab_size=_VOCABULARY)
    return [micro_batches(settings, source, 0) for _ in range(settings.layout.vpp or 1)]

"""Layout-independent checkpoints in megatron's torch_dist format, written atomically.

`iter_0000010/` is written under a temporary name and renamed; then latest_checkpointed_iteration.txt is updated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launcher.convert.containers.tracker import TRACKER
from launcher.rehearse.core import optimizer_state
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.model import Model
from launcher.rehearse.core.settings import Settings
from launcher.rehearse.core.step import Stepper
from launcher.rehearse.core.stored_names import ADAPTER, StoredNames
from launcher.syntax import is_count

_PARTIAL = ".partial"
_RELEASE = "release"
_VERSION = 3.0
_UNFIT = (AssertionError, KeyError, RuntimeError, ValueError)


def directory_of(root: Path, iteration: int) -> Path:
    """Name the directory of one checkpoint, as Megatron-LM does; 0: released weights."""
    return root / (f"iter_{iteration:07d}" if iteration else _RELEASE)


def latest(root: Path) -> int | None:
    """Read the tracker: the last complete iteration, 0 of released weights; None where there is no checkpoint."""
    tracker = root / TRACKER
    if not tracker.is_file():
        return None
    text = tracker.read_text(encoding="utf-8", errors="replace").strip()
    if text == _RELEASE:
        return 0
    if not is_count(text):
        raise RehearsalError(f"{tracker}: {text!r} is not an iteration")
    return int(text)


def check_save_directory(settings: Settings) -> None:
    """Reject a --save directory that holds anything but the checkpoints that this run continues."""
    save, load = settings.value("save"), settings.value("load")
    if save is None:
        return
    root = Path(save)
    if root.exists() and not root.is_dir():
        raise RehearsalError(f"--save {save}: not a directory")
    entries = [entry for entry in root.iterdir() if not entry.name.endswith(_PARTIAL)] if root.exists() else []
    if entries and latest(root) is None:
        raise RehearsalError(f"--save {save}: not empty, and no checkpoints of a run; works: a new or empty directory")
    if entries and (load is None or Path(load).resolve() != root.resolve()):
        raise RehearsalError(
            f"--save {save}: holds checkpoints of another run (iteration {latest(root)}), nothing is overwritten; "
            f"works: --load {save} to continue it, or another directory"
        )
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK):
        raise RehearsalError(f"--save {save}: {existing} is not writable")


def find(settings: Settings) -> tuple[Path, int, bool] | None:
    """Find the checkpoint to start from: its directory, its iteration, and whether only weights are wanted.

    None where the run starts from scratch; RehearsalError where a given checkpoint does not exist.
    """
    load, pretrained = settings.value("load"), settings.value("pretrained_checkpoint")
    weights_only = bool(settings.value("finetune"))
    root = Path(load) if load else None
    if root is None or (pretrained and latest(root) is None):
        if not pretrained:
            return None
        root, weights_only = Path(pretrained), True
    iteration = settings.value("ckpt_step") or latest(root)
    if iteration is None:
        continues = settings.value("save") and Path(settings.value("save")).resolve() == root.resolve()
        if continues and not settings.value("exit_on_missing_checkpoint"):
            return None  # the first start of a job that always sets --load and --save
        raise RehearsalError(f"--load {root}: no {TRACKER} there; works: a directory that a run saved to")
    found = directory_of(root, iteration)
    if not (found / "metadata.json").is_file():
        raise RehearsalError(
            f"{found}: no torch_dist checkpoint there (metadata.json is missing){_others(root, iteration)}"
        )
    return found, iteration, weights_only


def _others(root: Path, iteration: int) -> str:
    """Return which steps are there, the nearest first, to be added to a message."""
    names = (file.parent.name.removeprefix("iter_") for file in root.glob("iter_*/metadata.json"))
    steps = sorted((int(name) for name in names if name.isdigit()), key=lambda step: abs(step - iteration))
    return f"; works: {' · '.join(f'checkpoint.load_step={step}' for step in steps[:3])}" if steps else ""


def _metadata(settings: Settings) -> dict[str, Any]:
    from megatron.core import parallel_state

    metadata = {
        "singleton_local_shards": False,
        "chained_optim_avoid_prefix": True,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    if settings.value("use_distributed_optimizer"):
        metadata["distrib_optim_sharding_type"] = "fully_reshardable"
        metadata["distrib_optim_fully_reshardable_mem_efficient"] = False
    return metadata


def _model_state(model: Model, metadata: dict[str, Any]) -> dict[str, Any]:
    states = [chunk.sharded_state_dict(metadata=metadata) for chunk in model.unwrapped]
    names = ["model"] if len(states) == 1 else [f"model{index}" for index in range(len(states))]
    return dict(zip(names, states, strict=True))


def _random_state(settings: Settings) -> Any:
    """Return this rank's random state as a ShardedObject shaped like the layout (Megatron-LM checkpointing.py:336)."""
    import numpy
    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    state = {
        "random_rng_state": random.getstate(),
        "np_rng_state": numpy.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.cuda.get_rng_state(),
        "rng_tracker_states": tensor_parallel.get_cuda_rng_tracker().get_states(),
    }
    shape = (settings.layout.pp, settings.layout.tp)
    place = (parallel_state.get_pipeline_model_parallel_rank(), parallel_state.get_tensor_model_parallel_rank())
    replica = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    if settings.layout.ep == 1:
        return ShardedObject("rng_state", [state], shape, place, replica_id=replica)
    replicas = settings.layout.dp * settings.layout.cp
    return ShardedObject("rng_state", [state], (*shape, replicas), (*place, replica), replica_id=0)


def _layout_key(settings: Settings) -> str:
    layout = settings.layout
    return f"tp{layout.tp} pp{layout.pp} vpp{layout.vpp} cp{layout.cp} ep{layout.ep} etp{layout.etp} dp{layout.dp}"


def save(settings: Settings, stepper: Stepper, *, iteration: int) -> Path:
    """Write a complete checkpoint and return its directory; all ranks call this."""
    import torch
    from megatron.core import dist_checkpointing

    root = Path(settings.value("save"))
    final = directory_of(root, iteration)
    partial = final.with_name(final.name + _PARTIAL)
    if torch.distributed.get_rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    torch.distributed.barrier()
    for chunk in stepper.model.chunks:
        if chunk.ddp_config.overlap_param_gather:
            # Otherwise the weights are those before the last step, which the next forward pass would gather
            # (megatron/training/training.py:2192, save_checkpoint_and_time).
            chunk.start_param_sync(force_sync=True)
    metadata = _metadata(settings)
    state: dict[str, Any] = {
        "checkpoint_version": _VERSION,
        "iteration": iteration,
        "consumed_train_samples": iteration * settings.global_batch_size,
        "layout": _layout_key(settings),
        "distributed_optimizer": settings.value("use_distributed_optimizer"),
        **_model_state(stepper.model, metadata),
    }
    if not settings.value("no_save_optim"):
        state["optimizer"] = stepper.optimizer.sharded_state_dict(state, metadata=metadata)
        state["opt_param_scheduler"] = stepper.scheduler.state_dict()
    if not settings.value("no_save_rng"):
        state["rng_state"] = _random_state(settings)
    stored = {name: value for name, value in metadata.items() if name != "dp_cp_group"}
    dist_checkpointing.save(state, str(partial), content_metadata=stored)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        _publish(root, partial, final, iteration)
        _forget_old(settings, root, iteration)
    torch.distributed.barrier()
    return final


def _publish(root: Path, partial: Path, final: Path, iteration: int) -> None:
    """Rename a complete checkpoint to its final name, then update the tracker."""
    if final.exists():
        old = final.with_name(final.name + ".old" + _PARTIAL)
        os.replace(final, old)
        os.replace(partial, final)
        shutil.rmtree(old)
    else:
        os.replace(partial, final)
    tracker = root / (TRACKER + _PARTIAL)
    tracker.write_text(str(iteration), encoding="utf-8")
    os.replace(tracker, root / TRACKER)


def _forget_old(settings: Settings, root: Path, iteration: int) -> None:
    """Remove the checkpoints between two of --save-retain-interval, except the newest."""
    retain = settings.value("save_retain_interval")
    if not retain:
        return
    for path in root.glob("iter_*"):
        number = path.name.removeprefix("iter_")
        if number.isdigit() and int(number) < iteration and int(number) % retain:
            shutil.rmtree(path, ignore_errors=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a run starts from: the iteration to continue after (0: from the first), and its weights in words."""

    iteration: int
    weights: str


def load(settings: Settings, stepper: Stepper) -> Loaded:
    """Load the checkpoint that the arguments name, whichever layout and layers wrote it.

    Only its weights are loaded, and training starts at iteration 1, with --finetune, from --pretrained-checkpoint, or
    where the checkpoint has no optimizer state.
    """
    from megatron.core import dist_checkpointing

    found = find(settings)
    if found is None:
        return Loaded(iteration=0, weights=f"random, seed {settings.value('seed')}")
    path, iteration, weights_only = found
    with _readable_errors(path):
        common = dist_checkpointing.load_common_state_dict(str(path))
        names = StoredNames(str(path))
    has_optimizer = "optimizer" in common
    weights_only = weights_only or not (has_optimizer or settings.value("no_load_optim"))
    with_optimizer = not (weights_only or settings.value("no_load_optim"))
    if with_optimizer:
        _check_optimizer(settings, path, common)
    # Layers by number; `names` makes them one tensor where the checkpoint has them so.
    metadata = _metadata(settings) | {"non_homogeneous_layers": True}
    models = _model_state(stepper.model, metadata)
    state: dict[str, Any] = {name: names.without_absent_objects(model) for name, model in models.items()}
    if weights_only:
        state = {name: names.without_absent(model, ADAPTER) for name, model in state.items()}
    if with_optimizer:
        state["optimizer"] = stepper.optimizer.sharded_state_dict(dict(state), is_loading=True, metadata=metadata)
    same_layout = common.get("layout") == _layout_key(settings)
    if same_layout and not (weights_only or settings.value("no_load_rng") or settings.value("no_save_rng")):
        state["rng_state"] = _random_state(settings)
    described = optimizer_state.describe(state["optimizer"]) if with_optimizer else ()
    with _readable_errors(path):
        names.rename(state)
        notes = names.check_complete(settings.value("num_layers"), mtp=bool(settings.value("mtp_num_layers")))
        loaded = dist_checkpointing.load(state, str(path), strict=settings.value("dist_ckpt_strictness"))
        for name, chunk in zip(models, stepper.model.unwrapped, strict=True):
            chunk.load_state_dict(loaded[name], strict=False)
        if with_optimizer:
            stepper.optimizer.load_state_dict(optimizer_state.fit(loaded["optimizer"], described))
            _load_schedule(stepper, path, common["opt_param_scheduler"])
        else:
            stepper.optimizer.reload_model_params()
    if "rng_state" in loaded:
        _restore_random_state(loaded["rng_state"])
    alone = "" if with_optimizer or has_optimizer else ", which has no optimizer state"
    loaded = "; ".join((f"loaded from {path}{alone}", *notes))
    return Loaded(iteration=0 if weights_only else iteration, weights=loaded)


def load_adapters(settings: Settings, stepper: Stepper, folder: str) -> str:
    """Load adapters that are stored without weights, whichever layout wrote them; return what was loaded, in words.

    All ranks call this; RehearsalError where model and checkpoint have different adapters.
    """
    from megatron.core import dist_checkpointing

    iteration = latest(Path(folder))
    if iteration is None:
        raise RehearsalError(f"lora.load {folder}: no {TRACKER} there; works: a folder of launch convert or PEFT")
    path = directory_of(Path(folder), iteration)
    models = _model_state(stepper.model, _metadata(settings) | {"non_homogeneous_layers": True})
    state: dict[str, Any] = {
        model: {name: entry for name, entry in entries.items() if ADAPTER in name} for model, entries in models.items()
    }
    with _readable_errors(path):
        names = StoredNames(str(path))
        names.rename(state)
        names.check_complete(settings.value("num_layers"), mtp=bool(settings.value("mtp_num_layers")))
        loaded = dist_checkpointing.load(state, str(path), strict=settings.value("dist_ckpt_strictness"))
        for model, chunk in zip(models, stepper.model.unwrapped, strict=True):
            chunk.load_state_dict(loaded[model], strict=False)
        stepper.optimizer.reload_model_params()
    return f"adapters loaded from {path}"


def _load_schedule(stepper: Stepper, path: Path, state: dict[str, Any]) -> None:
    """Resume the learning rate schedule; megatron requires the same one unless a flag selects which applies."""
    try:
        stepper.scheduler.load_state_dict(state)
    except AssertionError as error:
        raise RehearsalError(
            f"{path}: saved with another schedule ({error}); works: the same one, --override-opt_param-scheduler (this "
            "run's counts), or --use-checkpoint-opt_param-scheduler (the checkpoint's counts)"
        ) from error


def _check_optimizer(settings: Settings, path: Path, common: dict[str, Any]) -> None:
    """Reject a checkpoint whose optimizer state this run's optimizer cannot load."""
    from megatron.core import dist_checkpointing

    kind = (dist_checkpointing.load_content_metadata(str(path)) or {}).get("distrib_optim_sharding_type")
    if kind not in (None, "fully_reshardable"):
        raise RehearsalError(
            f"{path}: its distributed optimizer is stored for one layout ({kind}); works: --finetune or "
            "--no-load-optim, or to save with --dist-ckpt-optim-fully-reshardable"
        )
    saved, wanted = common.get("distributed_optimizer"), settings.value("use_distributed_optimizer")
    if saved is not None and saved != wanted:
        add = "with" if saved else "without"
        raise RehearsalError(
            f"{path}: saved {add} --use-distributed-optimizer; works: the same here ({add} it), or --no-load-optim"
        )


def _restore_random_state(states: list[dict[str, Any]]) -> None:
    import numpy
    import torch
    from megatron.core import tensor_parallel

    state = states[0]
    random.setstate(state["random_rng_state"])
    numpy.random.set_state(state["np_rng_state"])
    torch.set_rng_state(state["torch_rng_state"])
    if state["cuda_rng_state"].numel() != torch.cuda.get_rng_state().numel():
        return  # saved on the other kind of device, whose generators have states of another size
    torch.cuda.set_rng_state(state["cuda_rng_state"])
    tensor_parallel.get_cuda_rng_tracker().set_states(state["rng_tracker_states"])


@contextlib.contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    """Raise an error that names the incompatible checkpoint, instead of a traceback from megatron."""
    try:
        yield
    except RehearsalError:
        raise
    except BaseException as error:  # torch's CheckpointException is not a subclass of Exception
        if not isinstance(error, _UNFIT) and "Checkpoint" not in type(error).__name__:
            raise
        lines = str(error).strip().splitlines()
        reason = lines[-1] if lines else "no message"
        raise RehearsalError(
            f"{path}: does not fit this run ({type(error).__name__}: {reason[:300]}); works: the model arguments it "
            "was saved with, or --no-load-optim where only the optimizer differs"
        ) from error

"""Repairs of megatron-core's path without Transformer Engine and apex, applied after `import megatron.core`.

Each is one small function with the upstream place it repairs (megatron-core 0.16.1). With Transformer Engine installed
and a CUDA device present nothing is changed.
"""

from __future__ import annotations

import atexit
import collections
import functools
import os
import pickle
import queue
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch

_applied: list[str] = []


def router_gemm() -> None:
    """Define moe_utils.te_general_gemm, a NameError with --moe-router-dtype fp32 (moe/moe_utils.py:1192)."""
    from megatron.core.transformer.moe import moe_utils

    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None


def dispatcher_split_sizes() -> None:
    """Convert split sizes that already are on the CPU to numpy (moe_utils.py:1078 converts only tensors on a GPU)."""
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    upstream = getattr(moe_utils, "maybe_move_tensor_to_cpu", None)

    def maybe_move_tensor_to_cpu(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        if upstream is not None and torch.is_tensor(tensor) and tensor.is_cuda:
            return upstream(tensor, as_numpy=as_numpy, record_stream=record_stream)
        return tensor.detach().cpu().numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    if hasattr(moe_utils, "maybe_move_tensor_to_cpu"):
        moe_utils.maybe_move_tensor_to_cpu = maybe_move_tensor_to_cpu
        token_dispatcher.maybe_move_tensor_to_cpu = maybe_move_tensor_to_cpu


def latent_attention_without_te() -> None:
    """Mark Transformer Engine as absent (multi_latent_attention.py:62: a mocked import leaves HAVE_TE True)."""
    import megatron.core.transformer.multi_latent_attention as latent

    class NoTransformerEngineLinear:
        """Replaces TELinear in isinstance() and `in` tests; never instantiated."""

    latent.HAVE_TE = False
    latent.TELinear = NoTransformerEngineLinear


class _SumGradient(torch.autograd.Function):
    """The identity whose backward sums over tensor parallel ranks.

    megatron's copy_to_tensor_model_parallel_region would lose the sum: tensor_parallel/mappings.py reduces a contiguous
    copy of a gradient that is not contiguous, and returns the gradient.
    """

    @staticmethod
    def forward(_context: Any, tensor: Any) -> Any:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(_context: Any, gradient: Any) -> Any:
        from megatron.core import parallel_state

        total = gradient.contiguous()
        torch.distributed.all_reduce(total, group=parallel_state.get_tensor_model_parallel_group())
        return total


def latent_attention_gradients() -> None:
    """Make MLA's gradients under tensor parallelism those of one process (multi_latent_attention.py:605).

    Without Transformer Engine the down projection is column parallel and its gathered output's backward is a
    plain split: each rank keeps the rotary key's gradient of its own heads only. And without sequence
    parallelism the gradient of the query norm is complete on each rank, but finalize_model_grads.py:354 sums
    it. Together 3.5e-4 in loss after 20 steps; the second also happens on a GPU.
    """
    import megatron.core.transformer.multi_latent_attention as latent
    from megatron.core.tensor_parallel import mappings
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear

    init = latent.MLASelfAttention.__init__

    @functools.wraps(init)
    def init_with_hook(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        config, projection = self.config, self.linear_kv_down_proj
        if not config.sequence_parallel and hasattr(self, "q_layernorm"):
            for parameter in self.q_layernorm.parameters():
                parameter.average_gradients_across_tp_domain = True
        if config.tensor_model_parallel_size == 1 or not isinstance(projection, ColumnParallelLinear):
            return

        def gather(_module: Any, _inputs: Any, output: tuple[Any, Any]) -> tuple[Any, Any]:
            full = mappings.gather_from_tensor_model_parallel_region(output[0])
            if (
                config.sequence_parallel
            ):  # megatron then gathers the rotary key along the sequence, and that sums its gradient
                return mappings.scatter_to_sequence_parallel_region(full), output[1]
            latent_part, rotary = torch.split(full, [config.kv_lora_rank, config.qk_pos_emb_head_dim], dim=-1)
            return torch.cat([latent_part, _SumGradient.apply(rotary)], dim=-1), output[1]

        projection.register_forward_hook(gather)

    latent.MLASelfAttention.__init__ = init_with_hook


def recompute_without_te() -> None:
    """Recompute without querying Transformer Engine for fp8 (tensor_parallel/random.py:619: False counts as fp8)."""
    from megatron.core.tensor_parallel import random

    recompute = getattr(random, "CheckpointWithoutOutput", None)
    if recompute is None:
        return
    init = recompute.__init__

    @functools.wraps(init)
    def init_without_fp8(self: Any, fp8: Any = False) -> None:
        init(self, fp8)
        self.fp8 = bool(fp8)

    recompute.__init__ = init_without_fp8


def uneven_collectives() -> None:
    """Gather and reduce-scatter parts of different lengths (tensor_parallel/mappings.py:150, 193).

    Gloo requires equal ones; experts under expert tensor parallelism exchange as many tokens as each rank has.
    """
    from megatron.core.tensor_parallel import mappings

    gather_equal, scatter_equal = mappings._gather_along_first_dim, mappings._reduce_scatter_along_first_dim

    @functools.wraps(gather_equal)
    def gather(tensor: Any, group: Any, output_split_sizes: Any = None, *args: Any, **kwargs: Any) -> Any:
        if output_split_sizes is None or group.size() == 1:
            return gather_equal(tensor, group, output_split_sizes, *args, **kwargs)
        lengths = [int(length) for length in output_split_sizes]
        padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
        padded[: tensor.size(0)] = tensor
        parts = [torch.empty_like(padded) for _ in lengths]
        torch.distributed.all_gather(parts, padded, group=group)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    @functools.wraps(scatter_equal)
    def reduce_scatter(tensor: Any, group: Any, input_split_sizes: Any = None, *args: Any, **kwargs: Any) -> Any:
        if input_split_sizes is None or group.size() == 1:
            return scatter_equal(tensor, group, input_split_sizes, *args, **kwargs)
        total = tensor.contiguous().clone()
        torch.distributed.all_reduce(total, group=group)
        return torch.split(total, [int(length) for length in input_split_sizes])[group.rank()].contiguous()

    mappings._gather_along_first_dim, mappings._reduce_scatter_along_first_dim = gather, reduce_scatter


class ResultsQueue:
    """Result queue of megatron's checkpoint writers, without a separate process or thread.

    Entries put by the process that created the queue stay in memory; those of a forked writer go through a file.
    """

    def __init__(self) -> None:
        self.owner, self.entries = os.getpid(), collections.deque[Any]()
        self.folder = os.path.join(tempfile.gettempdir(), f"checkpoint-results-{uuid.uuid4().hex}")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def put(self, entry: Any) -> None:
        """Add an entry."""
        if os.getpid() == self.owner:
            self.entries.append(entry)
            return
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".partial")
        with os.fdopen(handle, "wb") as file:
            pickle.dump(entry, file)
        os.rename(name, name.removesuffix(".partial"))

    def get_nowait(self) -> Any:
        """Take the oldest entry; queue.Empty where there is none."""
        if self.entries:
            return self.entries.popleft()
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        names = [name for name in names if not name.endswith(".partial")]
        if not names:
            raise queue.Empty
        path = os.path.join(self.folder, names[0])
        with open(path, "rb") as file:
            entry = pickle.load(file)
        os.remove(path)
        return entry


def checkpoint_queue_without_process() -> None:
    """Give the checkpoint writer a queue without a process (filesystem_async.py:51).

    Megatron spawns a manager process that imports `__main__` again: 1.8 s a save instead of 0.1 s, without shims under
    runpy, and orphaned when a rank ends abruptly.
    """
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    def get_write_results_queue(*_args: Any, **_kwargs: Any) -> Any:
        if filesystem_async._results_queue is None:
            filesystem_async._results_queue = ResultsQueue()
        return filesystem_async._results_queue

    filesystem_async._get_write_results_queue = get_write_results_queue


def torch_adam_resumes() -> None:
    """Let the distributed optimizer load and save torch's AdamW (optimizer/distrib_optimizer.py:640, 817, 985)."""
    from megatron.core.optimizer import distrib_optimizer

    if getattr(distrib_optimizer, "HAVE_APEX_OR_TE", True):
        return
    optimizer = distrib_optimizer.DistributedOptimizer
    state_dict, load = optimizer.state_dict, optimizer.load_state_dict
    set_states = optimizer._set_main_param_and_optimizer_states

    @functools.wraps(state_dict)
    def state_dict_of_fresh(self: Any) -> Any:
        for group in self.optimizer.param_groups:  # a fresh AdamW has no state yet, but :641 wants one step from all
            for parameter in group["params"]:
                state = self.optimizer.state[parameter]
                state.setdefault("step", torch.tensor(0.0))
                for moment in ("exp_avg", "exp_avg_sq"):
                    if moment not in state:
                        state[moment] = torch.zeros_like(parameter.data)
        return state_dict(self)

    @functools.wraps(set_states)
    def set_states_keeping_step(self: Any, model_param: Any, tensors: dict[str, Any]) -> Any:
        group, order = self.model_param_group_index_map[model_param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        if "step" in state:  # dp_reshardable passes the new step 0
            tensors["step"] = state["step"].clone()
        with torch.no_grad():  # in fp32 the main parameter is a view of the model's leaf
            return set_states(self, model_param, tensors)

    @functools.wraps(load)
    def load_unshared_steps(self: Any, state: Any) -> Any:
        result = load(self, state)
        for (
            entry
        ) in self.optimizer.state.values():  # :825 shares ONE step tensor, and torch's AdamW counts it up in place
            if torch.is_tensor(entry.get("step")):
                entry["step"] = entry["step"].clone()
        return result

    optimizer.state_dict, optimizer.load_state_dict = state_dict_of_fresh, load_unshared_steps
    optimizer._set_main_param_and_optimizer_states = set_states_keeping_step


FIXES: tuple[Callable[[], None], ...] = (
    router_gemm,
    dispatcher_split_sizes,
    latent_attention_without_te,
    latent_attention_gradients,
    recompute_without_te,
    uneven_collectives,
    checkpoint_queue_without_process,
    torch_adam_resumes,
)


def has_transformer_engine() -> bool:
    """Return whether Transformer Engine can be imported and a CUDA device can run it."""
    if not torch.cuda.is_available():
        return False
    try:
        import transformer_engine.pytorch  # noqa: F401
    except ImportError:
        return False
    return True


def apply_fixes(skip: Sequence[str] = ()) -> list[str]:
    """Apply every repair not named in `skip` and return the names applied.

    Does nothing with Transformer Engine, or a second time.
    """
    if _applied or has_transformer_engine():
        return list(_applied)
    for fix in FIXES:
        if fix.__name__ not in skip:
            fix()
            _applied.append(fix.__name__)
    return list(_applied)

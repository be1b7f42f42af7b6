"""Transformer Engine's free functions: rotary embedding, loss, recomputation, random state, offloading, overlap."""

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from launcher.rehearse.cpu.transformer_engine_standin.attention import zigzag


class SplitAlongDim:
    """Splits one tensor along a dimension; used through ``apply`` like the autograd function that it replaces."""

    @staticmethod
    def apply(tensor: Any, dim: int, sizes: list[int], squeeze: bool = False) -> tuple[Any, ...]:
        """Return views of ``tensor`` of the given sizes, with ``dim`` removed where asked."""
        parts = torch.split(tensor, sizes, dim=dim)
        return tuple(part.squeeze(dim) for part in parts) if squeeze else parts


def apply_rotary_pos_emb(
    hidden: Any,
    freqs: Any,
    tensor_format: str = "sbhd",
    interleaved: bool = False,
    fused: bool = False,
    cu_seqlens: Any = None,
    cp_size: int = 1,
    cp_rank: int = 0,
    **_kwargs: Any,
) -> Any:
    """Rotate the first ``freqs.shape[-1]`` channels of ``hidden`` [s, b, heads, dim] or [t, heads, dim] (thd).

    ``freqs`` is [positions, 1, 1, channels]; with thd each sequence of ``cu_seqlens`` (global lengths) starts at
    position 0 and this context-parallel rank holds its zigzag chunks.
    """
    if tensor_format == "thd":
        lengths = torch.diff(cu_seqlens).tolist()
        positions = torch.cat([zigzag([0, length], cp_size, cp_rank) for length in lengths])
        return _rotate(hidden.unsqueeze(1), freqs[positions], interleaved).squeeze(1)
    if tensor_format == "bshd":
        return _rotate(hidden.transpose(0, 1), freqs[: hidden.shape[1]], interleaved).transpose(0, 1)
    return _rotate(hidden, freqs[: hidden.shape[0]], interleaved)


def _rotate(hidden: Any, freqs: Any, interleaved: bool) -> Any:
    channels = freqs.shape[-1]
    rotary, rest = hidden[..., :channels].float(), hidden[..., channels:]
    if interleaved:
        turned = torch.stack((-rotary[..., 1::2], rotary[..., ::2]), dim=-1).flatten(-2)
    else:
        first, second = rotary.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
    rotated = (rotary * freqs.cos().float() + turned * freqs.sin().float()).to(hidden.dtype)
    return torch.cat((rotated, rest), dim=-1)


def parallel_cross_entropy(
    logits: Any,
    labels: Any,
    label_smoothing: float = 0.0,
    reduce_loss: bool = False,
    _group: Any = None,
    ignore_idx: int = -100,
    *_args: Any,
) -> Any:
    """Return the float32 cross entropy of vocabulary-parallel ``logits`` [s, b, vocab/tp], 0 for ignored labels."""
    from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

    loss = vocab_parallel_cross_entropy(logits.float(), labels.clamp_min(0), label_smoothing)
    loss = loss.masked_fill(labels == ignore_idx, 0.0)
    return loss.mean() if reduce_loss else loss


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    distribute_saved_activations: bool = False,
    get_rng_state_tracker: Any = None,
    tp_group: Any = None,
    use_reentrant: bool = True,
    **kwargs: Any,
) -> Any:
    """Recompute ``function`` in the backward pass, with megatron-core's checkpoint and random state."""
    from megatron.core import tensor_parallel

    return tensor_parallel.checkpoint(functools.partial(function, **kwargs), distribute_saved_activations, *args)


def get_cpu_offload_context(*_args: Any, **_kwargs: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the context and the synchronisation of activation offloading: both empty on the CPU."""
    return contextlib.nullcontext(), lambda tensor: tensor


class UserBufferQuantizationMode(enum.Enum):
    """Modes of the user buffers of overlapped tensor-parallel communication."""

    NONE = "none"
    FP8 = "fp8"


def initialize_ub(*_args: Any, **_kwargs: Any) -> None:
    """Set up no user buffers: overlap changes when tensor-parallel communication runs, not what it computes."""


_ALL_STATES: dict[str, Any] = {}


def get_all_rng_states() -> dict[str, Any]:
    """Return the states of every tracker of this process."""
    return _ALL_STATES


class CudaRNGStatesTracker:
    """te.pytorch.distributed.CudaRNGStatesTracker: named random streams, on the CPU's generator."""

    def __init__(self) -> None:
        self.states_: dict[str, Any] = {}
        self.seeds_: set[int] = set()

    def reset(self) -> None:
        """Remove every stream."""
        self.states_, self.seeds_ = {}, set()

    def get_states(self) -> dict[str, Any]:
        """Return the state of every stream."""
        return dict(self.states_)

    def set_states(self, states: dict[str, Any]) -> None:
        """Replace the state of every stream."""
        self.states_ = states

    def add(self, name: str, seed: int) -> None:
        """Start the stream ``name``; raises RuntimeError where the name or the seed is taken."""
        if name in self.states_ or seed in self.seeds_:
            raise RuntimeError(f"random stream {name!r} or its seed {seed} exists already")
        self.seeds_.add(seed)
        self.states_[name] = _ALL_STATES[name] = torch.Generator().manual_seed(seed).get_state()

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng") -> Iterator[None]:
        """Draw random numbers from the stream ``name`` inside the context."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = _ALL_STATES[name] = torch.get_rng_state()
            torch.set_rng_state(outside)

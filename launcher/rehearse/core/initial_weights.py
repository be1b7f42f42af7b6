"""Initial weights that depend on the seed and the parameter's name only, so that every layout starts the same training.

megatron-core draws weights in the order in which a rank builds its modules, so that two layouts start from different
models. Here each full parameter is drawn again from a generator seeded with its global name, and each rank keeps
its slice. The names and slices are those of megatron's sharded_state_dict.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

_INITIALISERS = ("init_method", "output_layer_init_method", "embedding_init_method")


class Recorder:
    """Which initialiser each parameter uses.

    Transformer Engine wraps a tensor that it has initialised in a new parameter (2.12 module/base.py:1307), so that a
    parameter is recognised by its storage, too. Tensors are kept: another one could have the place of one that is gone.
    """

    def __init__(self) -> None:
        self._found: list[tuple[Any, Callable[[Any], Any]]] = []

    def add(self, tensor: Any, initialiser: Callable[[Any], Any]) -> None:
        """Record the initialiser of a parameter, or of the tensor that becomes one."""
        self._found.append((tensor, initialiser))

    def lookup(self) -> Callable[[Any], Callable[[Any], Any] | None]:
        """Return a function from a parameter to its initialiser; None: it has none of the recorded ones."""
        same = {id(tensor): initialiser for tensor, initialiser in self._found}
        stored = {(tensor.device, tensor.data_ptr()): initialiser for tensor, initialiser in self._found}

        def initialiser_of(parameter: Any) -> Callable[[Any], Any] | None:
            return same.get(id(parameter)) or stored.get((parameter.device, parameter.data_ptr()))

        return initialiser_of


def record_initialisers(config: Any) -> Recorder:
    """Wrap the initialisers of a TransformerConfig to record which one each parameter uses."""
    recorder = Recorder()

    def wrap(initialiser: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(initialiser)
        def recording(tensor: Any) -> Any:
            recorder.add(tensor, initialiser)
            return initialiser(tensor)

        return recording

    for name in _INITIALISERS:
        if getattr(config, name, None) is not None:
            setattr(config, name, wrap(getattr(config, name)))
    return recorder


def initialise(model: Any, recorder: Recorder, *, seed: int) -> None:
    """Draw every recorded parameter of a model chunk again, independently of the layout, in place."""
    import torch

    state = torch.get_rng_state()
    with torch.no_grad():
        for shard, initialiser in _recorded_shards(model, recorder):
            trailing = shard.prepend_axis_num
            generator_seed = _seed(seed, shard.key, shard.global_offset[:trailing])
            torch.random.default_generator.manual_seed(generator_seed)
            whole = torch.empty(shard.global_shape[trailing:])
            initialiser(whole)
            window = tuple(
                slice(offset, offset + length)
                for offset, length in zip(shard.global_offset[trailing:], shard.local_shape, strict=True)
            )
            shard.data.copy_(whole[window])
    torch.set_rng_state(state)


def _seed(seed: int, key: str, index: tuple[int, ...]) -> int:
    digest = hashlib.blake2b(f"{seed}/{key}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % (1 << 63)


def _recorded_shards(model: Any, recorder: Recorder) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Yield each shard of a recorded parameter; its data is a view of the parameter."""
    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory

    initialiser_of = recorder.lookup()
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for entry in nested_values(model.sharded_state_dict(metadata={"dp_cp_group": group})):
        if not isinstance(entry, ShardedTensor | ShardedTensorFactory):
            continue
        initialiser = initialiser_of(entry.data)
        if initialiser is None:
            continue
        built = entry.build() if isinstance(entry, ShardedTensorFactory) else entry
        for shard in nested_values(built) if isinstance(built, dict | list) else [built]:
            yield shard, initialiser

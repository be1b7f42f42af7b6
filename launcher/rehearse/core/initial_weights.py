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

Recorder = dict[int, Callable[[Any], Any]]


def record_initialisers(config: Any) -> Recorder:
    """Wrap the initialisers of a TransformerConfig to record which one each parameter uses.

    The keys are `id(parameter)`; valid while the parameter lives.
    """
    recorder: Recorder = {}

    def wrap(initialiser: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(initialiser)
        def recording(tensor: Any) -> Any:
            recorder[id(tensor)] = initialiser
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

    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    for entry in nested_values(model.sharded_state_dict(metadata={"dp_cp_group": group})):
        if not isinstance(entry, ShardedTensor | ShardedTensorFactory) or id(entry.data) not in recorder:
            continue
        built = entry.build() if isinstance(entry, ShardedTensorFactory) else entry
        for shard in nested_values(built) if isinstance(built, dict | list) else [built]:
            yield shard, recorder[id(entry.data)]

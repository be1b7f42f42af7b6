"""A rank of the real megatron-core with a LoRA adapter: loads both checkpoints, adds the factors, saves logits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.convert.core_logits import _load, _pipeline


def main() -> int:
    """Run as a rank: words are CHECKPOINT ADAPTER SCALE TOKENS.npy LOGITS.npy MEGATRON_ARGUMENTS."""
    import numpy
    import torch

    from launcher.rehearse.core import environment
    from launcher.rehearse.core.checks import check
    from launcher.rehearse.core.model import build
    from launcher.rehearse.core.settings import padded_vocabulary

    checkpoint, adapter, scale, tokens_file, logits_file, *argv = sys.argv[1:]
    settings = check(argv, environment.world_size()).settings
    environment.import_megatron()
    environment.start(settings)
    vocab, padded = padded_vocabulary(settings, None)
    model = build(settings, vocab_size=vocab, padded_vocab_size=padded, layer_impl="local")
    _load(model, checkpoint)
    with torch.no_grad():
        changed = _add(model.unwrapped[0], Path(adapter) / "iter_0000001", float(scale))
        logits = _pipeline(model, torch.from_numpy(numpy.load(tokens_file)), settings)
    print("changed", changed)
    assert changed
    if logits is not None and environment.rank() == environment.world_size() - 1:
        numpy.save(logits_file, logits[..., :vocab].numpy())
    torch.distributed.barrier()
    environment.stop()
    return 0


def _add(chunk: Any, folder: Path, scale: float) -> int:
    """Add scale * B @ A to every weight that has factors; a rank takes its own part of what is split."""
    from megatron.core import dist_checkpointing

    found = dist_checkpointing.load_plain_tensors(str(folder))
    changed = 0
    for name, weight in chunk.named_parameters():
        pair = _factors(chunk, found, name)
        if pair is not None:
            a, b = (
                _part(factor, size, axis) for factor, size, axis in zip(pair, weight.shape[::-1], (1, 0), strict=True)
            )
            weight.add_(scale * (b @ a))
            changed += 1
    return changed


def _factors(chunk: Any, found: dict[str, Any], name: str) -> tuple[Any, Any] | None:
    """A and B of a weight, whole: layers and experts may be leading dimensions of what is stored."""
    from megatron.core import parallel_state as state

    if not name.startswith("decoder.layers."):
        return None
    number, _, rest = name.removeprefix("decoder.layers.").partition(".")
    layer = chunk.decoder.layers[int(number)].layer_number - 1
    stem, expert = rest.removesuffix(".weight"), None
    if ".local_experts." in stem:
        head, _, tail = stem.partition(".local_experts.")
        local, _, leaf = tail.partition(".")
        stem = f"{head}.experts.{leaf}"
        own = len(chunk.decoder.layers[int(number)].mlp.experts.local_experts)
        expert = state.get_expert_model_parallel_rank() * own + int(local)
    pair = []
    for end in ("A", "B"):
        one = found.get(f"decoder.layers.{stem}.lora_{end}.default.weight")
        one = found.get(f"decoder.layers.{layer}.{stem}.lora_{end}.default.weight") if one is None else one[layer]
        if one is None:
            return None
        pair.append(one if expert is None else one[expert])
    return pair[0], pair[1]


def _part(factor: Any, size: int, axis: int) -> Any:
    """The part of this tensor-parallel rank, where the weight is split along that side."""
    from megatron.core import parallel_state as state

    whole = factor.shape[axis]
    if whole == size:
        return factor
    return factor.chunk(whole // size, dim=axis)[state.get_tensor_model_parallel_rank()]

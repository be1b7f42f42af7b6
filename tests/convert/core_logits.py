"""A rank of the real megatron-core: builds GPTModel from Megatron arguments, loads a checkpoint, saves logits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from launcher import api
from launcher.mapping.backend import get_backend


def megatron_argv(model: str, *overrides: str, world: int = 1) -> list[str]:
    """The arguments with which plain Megatron-LM would train the model of a Hugging Face folder."""
    job = api.compose(
        [
            f"model.path={model}",
            "backend=megatron_lm",
            "model.pretrained=false",
            "precision.dtype=fp32",
            f"cluster.devices_per_node={world}",
            "batch.seq_length=32",
            "batch.micro_batch_size=2",
            f"batch.global_batch_size={2 * world}",
            "schedule.train_iters=1",
            "optimizer.lr=1e-3",
            *overrides,
        ]
    )
    return get_backend("megatron_lm").argv(api.translate(job))


def main() -> int:
    """Run as a rank: words are CHECKPOINT TOKENS.npy LOGITS.npy MEGATRON_ARGUMENTS."""
    import numpy
    import torch

    from launcher.rehearse.core import environment
    from launcher.rehearse.core.checks import check
    from launcher.rehearse.core.model import build
    from launcher.rehearse.core.settings import padded_vocabulary

    checkpoint, tokens_file, logits_file, *argv = sys.argv[1:]
    settings = check(argv, environment.world_size()).settings
    environment.import_megatron()
    _with_yarn(Path(checkpoint) / "huggingface" / "config.json")
    environment.start(settings)
    vocab, padded = padded_vocabulary(settings, None)
    model = build(settings, vocab_size=vocab, padded_vocab_size=padded, layer_impl="local")
    legacy = Path(checkpoint) / "iter_0000001"
    if any(legacy.glob("mp_rank_*")):
        _load_legacy(model, legacy)
    else:
        _load(model, checkpoint)
    tokens = torch.from_numpy(numpy.load(tokens_file))
    with torch.no_grad():
        logits = _pipeline(model, tokens, settings)
    if logits is not None and environment.rank() == environment.world_size() - 1:
        numpy.save(logits_file, logits[..., :vocab].numpy())
    torch.distributed.barrier()
    environment.stop()
    return 0


def _with_yarn(file: Path) -> None:
    """Give ordinary attention YaRN, which Megatron-LM has no arguments for and megatron-core's GPTModel does."""
    from launcher.rehearse.core import model

    config = json.loads(file.read_text()) if file.is_file() else {}
    yarn = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    if yarn.get("rope_type") != "yarn" or "kv_lora_rank" in config:
        return
    plain = model.transformer_config

    def scaled(settings: Any, **kinds: Any) -> Any:
        built = plain(settings, **kinds)
        built.position_embedding_type = "yarn"
        built.yarn_rotary_scaling_factor = yarn["factor"]
        built.yarn_original_max_position_embeddings = yarn["original_max_position_embeddings"]
        built.yarn_beta_fast, built.yarn_beta_slow = yarn["beta_fast"], yarn["beta_slow"]
        built.yarn_mscale = built.yarn_mscale_all_dim = None
        built.yarn_correction_range_round_to_int = yarn.get("truncate", True)
        return built

    model.transformer_config = scaled


def _load_legacy(model: Any, folder: Path) -> None:
    """As Megatron-LM does: core_v0.16.1 training/checkpointing.py get_checkpoint_name, load_model_state_dict."""
    import torch
    from megatron.core import parallel_state as state

    name = f"mp_rank_{state.get_tensor_model_parallel_rank():02d}"
    if state.get_pipeline_model_parallel_world_size() > 1:
        name += f"_{state.get_pipeline_model_parallel_rank():03d}"
    if state.get_expert_model_parallel_world_size() > 1:
        name += f"_{state.get_expert_model_parallel_rank():03d}"
    loaded = torch.load(folder / name / "model_optim_rng.pt", map_location="cpu", weights_only=False)
    (chunk,) = model.unwrapped
    for parameter in chunk.parameters():
        parameter.data.fill_(float("nan"))
    chunk.load_state_dict(loaded["model"], strict=True)
    chunk.eval()


def _load(model: Any, checkpoint: str) -> None:
    from megatron.core import dist_checkpointing

    from launcher.rehearse.core.checkpoint import directory_of, latest

    folder = directory_of(Path(checkpoint), latest(Path(checkpoint)) or 0)
    metadata = dist_checkpointing.load_content_metadata(str(folder))
    names = ["model"] if len(model.unwrapped) == 1 else [f"model{i}" for i in range(len(model.unwrapped))]
    states = {
        name: chunk.sharded_state_dict(metadata=metadata) for name, chunk in zip(names, model.unwrapped, strict=True)
    }
    for chunk in model.unwrapped:
        for parameter in chunk.parameters():
            parameter.data.fill_(float("nan"))
    loaded = dist_checkpointing.load(states, str(folder), strict="raise_unexpected")
    for name, chunk in zip(names, model.unwrapped, strict=True):
        missing, unexpected = chunk.load_state_dict(loaded[name], strict=False)
        assert not [key for key in (*missing, *unexpected) if not key.endswith("_extra_state")], (missing, unexpected)
        chunk.eval()


def _pipeline(model: Any, tokens: Any, settings: Any) -> Any:
    """Forward through all stages by hand; the last stage returns the gathered logits [batch, sequence, vocabulary].

    With MTP layers there is a dimension before: what each of them predicts, then the model itself.
    """
    import torch
    from megatron.core import parallel_state as state
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region

    (chunk,) = model.unwrapped
    positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    if not state.is_pipeline_first_stage():
        received = torch.empty(tokens.shape[1], tokens.shape[0], model.config.hidden_size)
        torch.distributed.recv(received, state.get_pipeline_model_parallel_prev_rank())
        chunk.set_input_tensor([received])
    heads: list[Any] = []
    if getattr(chunk, "mtp_process", False):
        # The model itself goes through the output layer last, and only where there are labels; the loss is in place.
        chunk.output_layer.register_forward_hook(lambda _module, _inputs, output: heads.append(output[0].clone()))
        output = chunk(tokens, positions, None, labels=tokens.roll(-1, 1))
        output = torch.stack(heads).transpose(1, 2)
    else:
        output = chunk(tokens, positions, None)
    if not state.is_pipeline_last_stage():
        torch.distributed.send(output.contiguous(), state.get_pipeline_model_parallel_next_rank())
        return None
    return gather_from_tensor_model_parallel_region(output)

"""A rank of Megatron-SWIFT: its model, loaded from a checkpoint, computes logits.

Usage: TOKENS.npy LOGITS.npy, then arguments of `megatron export`. Runs from a folder `swift/cli/_megatron`, where the
CPU stand-ins are installed.
"""

import sys

import numpy
import torch
from megatron.core import mpu
from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
from swift.megatron.model import get_mcore_model
from swift.megatron.pipelines.export.export import MegatronExport
from swift.megatron.utils import load_mcore_checkpoint
from swift.pipelines import prepare_model_template

tokens_file, logits_file, *argv = sys.argv[1:]


class Logits(MegatronExport):
    """Loads the model as `megatron export --to_hf` does, and computes instead of exporting."""

    def run(self) -> None:
        self.args.experts_impl = "eager"
        _, template = prepare_model_template(self.args, load_model=False, download_model=True)
        model = get_mcore_model(self.args, template.processor.model_info.config)[0]
        load_mcore_checkpoint(self.args, [model], load_arg="mcore_model")
        _without_kernels()
        # Linear attention in torch, instead of kernels for GPUs.
        model.config.deterministic_mode = True
        model.eval()
        tokens = torch.from_numpy(numpy.load(tokens_file))
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        with torch.no_grad():
            logits = model(input_ids=tokens, position_ids=positions, attention_mask=None)
        if mpu.get_tensor_model_parallel_world_size() > 1:
            logits = gather_from_tensor_model_parallel_region(logits)
        if torch.distributed.get_rank() == 0:
            numpy.save(logits_file, logits.float().numpy())


def _without_kernels() -> None:
    """Skip the rotation of the indexer's queries and keys (megatron-core 0.17.1 dsa.py:30): bf16 on GPUs only.

    It multiplies both with the same orthogonal matrix, so that the scores, their products, stay what they are.
    """
    from megatron.core.transformer.experimental_attention_variant import dsa

    dsa.rotate_activation = lambda values: values


Logits(argv).main()

"""Build megatron-core's GPTModel for ranks of a fake world and print how many parameters each holds (run as a script).

Reads a JSON list of cases on standard input: `config` (TransformerConfig), `model` (GPTModel), `world`, `layout`
(initialize_model_parallel), `ranks`, `vpp`, `impl`; writes a JSON list of lists of numbers.
"""

import json
import sys
from typing import Any


def build(case: dict[str, Any], rank: int) -> int:
    """Return the parameters of one rank."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import gpt_layer_specs as specs
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=case["world"])
    parallel_state.initialize_model_parallel(**case["layout"])
    kind = MLATransformerConfig if case["config"].get("multi_latent_attention") else TransformerConfig
    config = kind(
        **case["config"], use_cpu_initialization=True, perform_initialization=False, pipeline_dtype=torch.bfloat16
    )
    total = 0
    for stage in range(case["vpp"]) if case["vpp"] else [None]:
        mtp = None
        if config.num_moe_experts:
            spec = specs.get_gpt_decoder_block_spec(
                config, use_transformer_engine=False, normalization=config.normalization, vp_stage=stage
            )
        else:
            spec = specs.get_gpt_layer_local_spec(
                normalization=config.normalization,
                qk_layernorm=config.qk_layernorm,
                multi_latent_attention=config.multi_latent_attention,
            )
        if config.mtp_num_layers:
            layers = specs.get_gpt_decoder_layer_specs(
                config, use_transformer_engine=False, normalization=config.normalization, vp_stage=stage
            )
            mtp = specs.get_gpt_mtp_block_spec(config, layers[-1], use_transformer_engine=False, vp_stage=stage)
        model = GPTModel(
            config=config,
            transformer_layer_spec=spec,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
            mtp_block_spec=mtp,
            vp_stage=stage,
            **case["model"],
        )
        total += sum(parameter.numel() for parameter in model.parameters())
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()
    return total


def main() -> None:
    """Count every case of standard input."""
    from launcher.rehearse.core import environment

    environment.import_megatron()
    answers: list[Any] = []
    for case in json.load(sys.stdin):
        try:
            answers.append([build(case, rank) for rank in case["ranks"]])
        except Exception as error:
            import traceback

            answers.append("".join(traceback.format_exception(error))[-1500:])
            import torch

            if torch.distributed.is_initialized():
                from megatron.core import parallel_state

                parallel_state.destroy_model_parallel()
                torch.distributed.destroy_process_group()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

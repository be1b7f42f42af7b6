"""One rank of a child run: gradients of megatron-core's own MoE layer after its own reduction, as one line of JSON.

Arguments: tp, etp, ep, the file of the rendezvous. Not a test module: it runs without pytest. No layer is a stand-in:
MoELayer on the local spec, DistributedDataParallel and finalize_model_grads, on gloo.
"""

import json
import os
import sys
from typing import Any

_EXPERTS, _WIDTH, _INNER, _TOKENS = 4, 16, 32, 8


def main() -> None:
    """Train one step on the same tokens in every layout; print the gradient of each expert's first matrix."""
    tp, etp, ep = map(int, sys.argv[1:4])
    from launcher.rehearse.core.environment import import_megatron

    import_megatron()
    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[4]}", rank=rank, world_size=world)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp, expert_model_parallel_size=ep, expert_tensor_parallel_size=etp
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config, layer = _layer(tp, etp, ep)
    random = torch.Generator().manual_seed(5)
    _fill(layer, random, etp, ep)
    tokens, weights = (torch.randn(_TOKENS, 2, _WIDTH, generator=random) for _ in range(2))
    share = _TOKENS // tp
    part = slice(parallel_state.get_tensor_model_parallel_rank() * share, None)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), layer)
    model.zero_grad_buffer()
    output, _ = model(tokens[part][:share])
    (output * weights[part][:share]).sum().backward()
    finalize_model_grads([model])
    first = parallel_state.get_expert_model_parallel_rank() * (_EXPERTS // ep)
    gradients = {first + i: expert.linear_fc1.weight.main_grad for i, expert in enumerate(layer.experts.local_experts)}
    print(json.dumps({name: gradient.tolist() for name, gradient in gradients.items()}), flush=True)
    torch.distributed.destroy_process_group()


def _layer(tp: int, etp: int, ep: int) -> tuple[Any, Any]:
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.spec_utils import build_module

    config = TransformerConfig(
        num_layers=1,
        hidden_size=_WIDTH,
        num_attention_heads=2,
        ffn_hidden_size=_INNER,
        num_moe_experts=_EXPERTS,
        moe_router_topk=2,
        moe_ffn_hidden_size=_INNER,
        moe_token_dispatcher_type="alltoall",
        moe_router_load_balancing_type="none",
        tensor_model_parallel_size=tp,
        sequence_parallel=tp > 1,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=etp,
        use_cpu_initialization=True,
        add_bias_linear=False,
    )
    spec = get_moe_module_spec(use_te=False, num_experts=_EXPERTS, moe_grouped_gemm=False)
    return config, build_module(spec, config=config, layer_number=1)


def _fill(layer: Any, random: Any, etp: int, ep: int) -> None:
    import torch
    from megatron.core import parallel_state

    shard, first = _INNER // etp, parallel_state.get_expert_model_parallel_rank() * (_EXPERTS // ep)
    start = parallel_state.get_expert_tensor_parallel_rank() * shard
    with torch.no_grad():
        layer.router.weight.copy_(torch.randn(_EXPERTS, _WIDTH, generator=random))
        for number in range(_EXPERTS):
            up = torch.randn(_INNER, _WIDTH, generator=random)
            down = torch.randn(_WIDTH, _INNER, generator=random)
            if first <= number < first + _EXPERTS // ep:
                expert = layer.experts.local_experts[number - first]
                expert.linear_fc1.weight.copy_(up[start : start + shard])
                expert.linear_fc2.weight.copy_(down[:, start : start + shard])


if __name__ == "__main__":
    main()

"""A child process in ms-swift's environment: parses command lines with the real classes, at the job's true world size.

Reads a JSON list of cases on stdin, writes one JSON line for each. Not a test module: it runs without pytest.
"""

import json
import os
import sys
from typing import Any


def main() -> None:
    """Parse every case; `error` is what swift, mcore-bridge or megatron-core said against it."""
    cases = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # swift's own output does not mix with ours
    from backends.megatron.rehearse.cpu import install

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    install("")
    for case in cases:
        print(json.dumps({"name": case["name"], **_judge(case)}), file=out, flush=True)


def _judge(case: dict[str, Any]) -> dict[str, Any]:
    import torch.distributed as dist
    from megatron.core import mpu
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ |= {"WORLD_SIZE": str(case["world_size"]), "LOCAL_WORLD_SIZE": str(case["local_world_size"])}
    dist.init_process_group(backend="fake", rank=0, world_size=case["world_size"], store=FakeStore())
    try:
        return {"error": None, **_parse(case["command"], case["argv"])}
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        mpu.destroy_model_parallel()
        dist.destroy_process_group()


def _parse(command: str, argv: list[str]) -> dict[str, Any]:
    from swift.megatron.arguments import MegatronPretrainArguments, MegatronRLHFArguments, MegatronSftArguments
    from swift.megatron.model.utils import get_mcore_model_config
    from swift.utils.utils import parse_args
    from transformers import AutoConfig

    kinds = {"pt": MegatronPretrainArguments, "sft": MegatronSftArguments, "rlhf": MegatronRLHFArguments}
    args, left = parse_args(kinds[command], argv)
    if left:
        raise ValueError(f"remaining_argv: {left}")
    config = get_mcore_model_config(args, AutoConfig.from_pretrained(args.model_dir))
    names = ("num_layers", "hidden_size", "num_moe_experts", "padded_vocab_size", "moe_layer_freq", "mtp_num_layers")
    names += ("window_size", "moe_aux_loss_coeff")
    return {
        "dtype": str(args.torch_dtype),
        "microbatches": args.num_microbatches,
        "template": args.template_meta.template_type,
        "model": {name: getattr(config, name) for name in names},
    }


if __name__ == "__main__":
    main()

"""A child process in ms-swift's environment: parses command lines with the real classes, at the job's true world size.

Reads a JSON list of cases on stdin, writes one JSON line for each; with the word `values`, also what the classes change
of the arguments. Not a test module: it runs without pytest.
"""

import copy
import enum
import json
import os
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

# Types of numbers as the arguments name them: those of the optimizer's states, then the others.
_SHORT = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
_STATES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


def main() -> None:
    """Parse every case; `error` is the error of swift, mcore-bridge or megatron-core."""
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
        with mock.patch.dict(os.environ, case.get("env", {})):
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
    before: dict[str, Any] = {}
    with mock.patch.object(kinds[command], "__post_init__", _recording(kinds[command].__post_init__, before)):
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
        **({"changed": _changed(before, args, config)} if "values" in sys.argv[1:] else {}),
    }


def _recording(initialise: Callable[[Any], None], before: dict[str, Any]) -> Callable[[Any], None]:
    """Return `__post_init__` that first keeps the fields as the parser left them."""

    def recording(args: Any) -> None:
        before.update(copy.deepcopy(vars(args)))
        initialise(args)

    return recording


def _changed(before: dict[str, Any], args: Any, config: Any) -> dict[str, list[Any]]:
    """Return the parser's value and the last one, by field, where they differ and both are plain data.

    The last one is that of the model's configuration where it has a field of that name.
    """
    found: dict[str, list[Any]] = {}
    for name, value in before.items():
        last = getattr(config, name) if hasattr(config, name) else getattr(args, name, None)
        try:
            values = [_plain(value), _short(last) if name in _STATES else _plain(last)]
        except TypeError:
            continue
        if values[0] != values[1]:
            found[name] = values
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if str(value) in _SHORT:
        return str(value).removeprefix("torch.")
    raise TypeError(type(value))


def _short(dtype: Any) -> str:
    return _SHORT[str(dtype)]


if __name__ == "__main__":
    main()

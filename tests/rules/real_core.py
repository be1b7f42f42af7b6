"""A child process with megatron-core: its own configuration classes judge keyword arguments.

Reads a JSON list of cases on stdin, writes one JSON line for each. Not a test module: it runs without pytest.
"""

import json
import os
import sys
import warnings
from typing import Any


def main() -> None:
    """Judge every case; `null` or the error."""
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for case in json.load(sys.stdin):
        print(json.dumps(_judge(case)), file=out, flush=True)


def _judge(case: dict[str, Any]) -> str | None:
    import torch
    import torch.nn.functional as functional
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[case.pop("dtype")]
    kind = MLATransformerConfig if case.pop("latent") else TransformerConfig
    try:
        kind(
            **case,
            activation_func=functional.silu,
            gated_linear_unit=True,
            add_bias_linear=False,
            params_dtype=dtype,
            pipeline_dtype=dtype,
            fp16=dtype == torch.float16,
            bf16=dtype == torch.bfloat16,
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    main()

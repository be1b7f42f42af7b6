"""The logits of a model with a PEFT adapter, as transformers and PEFT compute them."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Words are MODEL ADAPTER TOKENS.npy LOGITS.npy."""
    import numpy
    import torch
    import transformers

    model, adapter, tokens, logits = sys.argv[1:]
    kinds = {"dtype": torch.float32, "attn_implementation": "eager"}
    base = transformers.AutoModelForCausalLM.from_pretrained(model, **kinds)
    adapted = import_module("peft").PeftModel.from_pretrained(base, adapter).eval()
    with torch.no_grad():
        numpy.save(logits, adapted(torch.from_numpy(numpy.load(tokens))).logits.numpy())


if __name__ == "__main__":
    main()

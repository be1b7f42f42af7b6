"""Runs MindSpeed-LLM's first weight converter (convert_ckpt.py) on CPU: it knows Mixtral, convert_ckpt_v2.py does not.

It walks the modules of transformers 4, where each expert is one; a tree of the same names stands in for them.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any


def _modules(folder: str, **_options: Any) -> Any:
    import torch
    from safetensors.torch import load_file

    root = torch.nn.Module()
    for name, value in load_file(Path(folder) / "model.safetensors").items():
        *path, last = name.split(".")
        at = root
        for part in path:
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
                at.get_submodule(part).register_parameter("bias", None)
            at = at.get_submodule(part)
        at.register_parameter(last, torch.nn.Parameter(value, requires_grad=False))
    return root


def main() -> None:
    """Put the stand-ins in place and run the converter with the words of the command line."""
    from backends.mindspeed.rehearse.cpu import install

    checkout = os.environ["MINDSPEED_LLM_PATH"]
    install(f"{checkout}/pretrain_gpt.py")
    sys.path.insert(0, checkout)
    import torch
    import transformers
    from mindspeed_llm.tasks.utils import version_utils

    version_utils.verify_transformers_version = lambda **_: None
    torch.nn.Module.__getitem__ = lambda self, number: self.get_submodule(str(number))
    transformers.AutoModelForCausalLM.from_pretrained = staticmethod(_modules)
    sys.argv = ["convert_ckpt.py", *sys.argv[1:]]
    runpy.run_path(f"{checkout}/convert_ckpt.py", run_name="__main__")


if __name__ == "__main__":
    main()

"""Tiny models in FP8 with blockwise scales, whole or with something wrong about the scales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from launcher.convert.fp8 import quantised_block
from tests.convert.helpers import arrays_of, write

SCALE = "_scale_inv"
CONFIG = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def quantised_arrays(folder: Path) -> dict[str, Any]:
    """The tensors of a float32 model, its projections in FP8, the other matrices and vectors in bf16."""
    found: dict[str, Any] = {}
    for name, array in arrays_of(folder).items():
        if "_proj" in name and array.ndim == 2:
            found[name], found[name + SCALE] = quantised_block(array)
        elif name.endswith("e_score_correction_bias"):
            found[name] = array
        else:
            found[name] = (array.view("<u4") >> 16).astype("<u2")
    return found


def write_fp8(folder: Path, model: Path, arrays: dict[str, Any] | None = None, **stated: Any) -> Path:
    """Write such a model; `stated` replaces keys of quantization_config."""
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"] = {**CONFIG, **stated}
    return write(folder, quantised_arrays(model) if arrays is None else arrays, config)


def halved(scale: Any) -> Any:
    """Scales of another shape."""
    return np.concatenate([scale, scale], axis=0)

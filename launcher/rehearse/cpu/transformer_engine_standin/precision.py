"""Low-precision recipes and contexts of Transformer Engine: accepted, and computed in the parameters' dtype."""

import contextlib
import enum
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch


class Unsupported:
    """A class that the stand-in does not implement; building it raises NotImplementedError and names the feature."""

    feature = "this feature"

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        refuse(self.feature)


def refuse(feature: str) -> Any:
    """Raise NotImplementedError for a feature of Transformer Engine that the CPU rehearsal does not implement."""
    raise NotImplementedError(
        f"the CPU rehearsal's stand-in for Transformer Engine has no {feature}: "
        "switch it off for the rehearsal, or rehearse on a machine with a GPU"
    )


def no_fp8_parameters(*_args: Any, **_kwargs: Any) -> Any:
    """Reject parameters that are stored in fp8 (fp8_param_gather)."""
    return refuse("parameters stored in fp8 (fp8_param_gather)")


class Format(enum.Enum):
    """The number formats of a recipe, by Transformer Engine's names."""

    E4M3 = "e4m3"
    E5M2 = "e5m2"
    E2M1 = "e2m1"
    HYBRID = "hybrid"


class Recipe:
    """A low-precision recipe: its arguments are only kept as attributes."""

    def __init__(self, *_args: Any, **kwargs: Any) -> None:
        vars(self).update(kwargs)

    def delayed(self) -> bool:
        """Return whether this is delayed scaling."""
        return isinstance(self, DelayedScaling)

    def mxfp8(self) -> bool:
        """Return whether this is MXFP8 block scaling."""
        return isinstance(self, MXFP8BlockScaling)

    def float8_block_scaling(self) -> bool:
        """Return whether this is fp8 block scaling."""
        return isinstance(self, Float8BlockScaling)


class DelayedScaling(Recipe):
    """Recipe "delayed"."""


class Float8CurrentScaling(Recipe):
    """Recipe "tensorwise"."""


class Float8BlockScaling(Recipe):
    """Recipe "blockwise"."""


class MXFP8BlockScaling(Recipe):
    """Recipe "mxfp8"."""


class NVFP4BlockScaling(Recipe):
    """Recipe "nvfp4"."""


RECIPES = (DelayedScaling, Float8CurrentScaling, Float8BlockScaling, MXFP8BlockScaling, NVFP4BlockScaling)


class QuantizedTensor(torch.Tensor):
    """The class of upstream's isinstance() checks; no tensor of a CPU rehearsal is an instance."""


class FP8GlobalStateManager:
    """Reports that no low-precision region is active."""

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        """Return False: matrix products run in the parameters' dtype."""
        return False

    @classmethod
    def is_fp8_calibration(cls) -> bool:
        """Return False."""
        return False

    @classmethod
    def get_fp8_recipe(cls) -> None:
        """Return None."""

    @classmethod
    def reset(cls) -> None:
        """Do nothing: there is no state."""


_warned: list[str] = []


@contextlib.contextmanager
def fp8_autocast(enabled: bool = False, *_args: Any, **_kwargs: Any) -> Iterator[None]:
    """Open an fp8 region, which is computed in the parameters' dtype with one warning."""
    if enabled and not _warned and os.environ.get("RANK", "0") == "0":
        _warned.append("fp8")
        sys.stderr.write(
            "rehearsal: warning: fp8/fp4 arithmetic is not imitated: products run in the parameters' own type\n"
        )
    yield


@contextlib.contextmanager
def fp8_model_init(enabled: bool = False, *_args: Any, **_kwargs: Any) -> Iterator[None]:
    """Open a region in which parameters would be created in fp8; rejected when enabled."""
    if enabled:
        no_fp8_parameters()
    yield


class Fp8Padding(torch.nn.Module):
    """Padding of expert inputs to a multiple of 16 or 32, which only fp8 kernels need: the identity here."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        super().__init__()

    def forward(self, tokens: Any, splits: list[int]) -> tuple[Any, list[int]]:
        """Return the tokens and the tokens per expert as they are."""
        return tokens, splits


class Fp8Unpadding(torch.nn.Module):
    """The inverse of Fp8Padding: the identity here."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        super().__init__()

    def forward(self, tokens: Any, _splits: list[int]) -> Any:
        """Return the tokens as they are."""
        return tokens

"""Number formats of matrix products: which one a job multiplies in, and the machine's figures for it."""

from launcher.job.hardware import Hardware
from launcher.job.precision import Precision
from launcher.job.quantisation import RECIPES, Recipe
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """One number format of matrix products.

    Attributes:
        name: prefix of its fields in `hardware` (`fp8_blockwise_tflops`).
        title: as data sheets and Transformer Engine write it.
        needs: hardware that multiplies in it.
        settings: the values of `precision` that choose it, where a job must choose a smaller format than BF16.
        kept_bytes: bytes of an element with its share of the scales, as a product's input keeps it until the backward;
            None: those of an activation.
        recipe: how tensors are quantised; None: they are not.
    """

    name: str
    title: str
    needs: str = ""
    settings: tuple[tuple[str, str | None], ...] = ()
    kept_bytes: float | None = None
    recipe: Recipe | None = None

    @property
    def peak(self) -> str:
        """Name of the field of `hardware` that holds its peak."""
        return f"{self.name}_tflops"


def _fp8(name: str, title: str, needs: str, recipe: str) -> NumberFormat:
    # precision.fp8_format itself is left as it is: any of its values goes with each recipe.
    return NumberFormat(
        name=name,
        title=title,
        needs=needs,
        settings=(("precision.fp8_recipe", recipe),),
        kept_bytes=KEPT[recipe],
        recipe=RECIPES[recipe],
    )


# Bytes of an element with its scales. Source: Transformer Engine 2.20 (d0067d0) docs/features/low_precision_training/
# (one scale a tensor, in fp32; blocks of 128 with fp32 scales; of 32 with 8 bits).
KEPT = {"delayed": 1.0, "tensorwise": 1.0, "blockwise": 1.0 + 4 / 128, "mxfp8": 1.0 + 1 / 32}
BF16 = NumberFormat(name="bf16", title="BF16")
FP32 = NumberFormat(name="fp32", title="FP32")
# Needs: Transformer Engine pytorch/quantization.py (_compute_fp8_support, _compute_fp8_block_scaling_support,
# _compute_mxfp8_support, _compute_nvfp4_support); Primus-Turbo pytorch/core/low_precision.py (gfx942: FP8; gfx950:
# MXFP8 too); the formats of Ascend 950 as Huawei announced them (earlier ones have no FP8).
_EIGHT = "NVIDIA Ada, Hopper or Blackwell, AMD CDNA 3 or 4, or Ascend 950"
TENSORWISE = _fp8("fp8", "FP8 (one scale a tensor)", _EIGHT, "tensorwise")
DELAYED = _fp8("fp8", "FP8 (one scale a tensor)", _EIGHT, "delayed")
BLOCKWISE = _fp8(
    "fp8_blockwise",
    "FP8 (one scale a block)",
    "NVIDIA Hopper or Blackwell, AMD CDNA 3 or 4, or Ascend 950",
    "blockwise",
)
MXFP8 = _fp8("mxfp8", "MXFP8", "NVIDIA Blackwell, AMD CDNA 4 or Ascend 950", "mxfp8")
NVFP4 = NumberFormat(
    name="nvfp4",
    title="NVFP4",
    needs="NVIDIA Blackwell",
    settings=(("precision.fp4_format", "e2m1"),),
    kept_bytes=0.5625,  # 4 bits, and 8 bits of scale for 16 elements
    recipe=RECIPES["nvfp4"],
)
_RECIPES = {None: DELAYED, "delayed": DELAYED, "tensorwise": TENSORWISE, "blockwise": BLOCKWISE, "mxfp8": MXFP8}
# From the nearest: other FP8 formats before none.
_NEAREST = {
    DELAYED: (BLOCKWISE, MXFP8),
    TENSORWISE: (BLOCKWISE, MXFP8),
    BLOCKWISE: (MXFP8, TENSORWISE),
    MXFP8: (BLOCKWISE, TENSORWISE),
    NVFP4: (MXFP8, BLOCKWISE, TENSORWISE),
}


def format_of(precision: Precision) -> NumberFormat:
    """Return the number format of a job's matrix products (those of its linear layers)."""
    if precision.fp4_format is not None:
        return NVFP4
    if precision.fp8_format is not None:
        return _RECIPES.get(precision.fp8_recipe, DELAYED)
    return FP32 if precision.dtype == "fp32" else BF16


def copies_of(hardware: Hardware, products: NumberFormat) -> int:
    """Return the copies of a quantised tensor that products need: by row, and by column where that is another layout.

    GPUs with MXFP8 multiply by either (Blackwell; Transformer Engine d0067d0 pytorch/utils.py,
    is_non_tn_fp8_gemm_supported); Hopper and Ada need a transposed copy.
    """
    either_order = hardware.device == "cuda" and hardware.mxfp8_tflops is not None
    by_block = products.recipe is None or products.recipe.by_block
    return 1 if either_order and not by_block else 2


def lacks(hardware: Hardware, wanted: NumberFormat) -> bool:
    """Return whether a machine with a name and a BF16 peak has none for a smaller format."""
    known = hardware.name is not None and hardware.bf16_tflops is not None
    return known and bool(wanted.settings) and getattr(hardware, wanted.peak) is None


def nearest(hardware: Hardware, wanted: NumberFormat) -> tuple[tuple[str, str | None], ...]:
    """Return the values of `precision` that choose the nearest format that the machine has."""
    off: tuple[tuple[str, str | None], ...] = (("precision.fp4_format", None),) if wanted is NVFP4 else ()
    for other in _NEAREST[wanted]:
        if getattr(hardware, other.peak) is not None:
            chosen: tuple[tuple[str, str | None], ...] = (("precision.fp8_format", "hybrid"),) if off else ()
            return (*off, *chosen, *other.settings)
    return off or (("precision.fp8_format", None),)

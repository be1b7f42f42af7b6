"""Which quantisations are kernels of their own, by recipe and by the module that multiplies.

Written down from the sources of Transformer Engine (TE) and megatron-core (mcore), not from runs. TE's lines are those
of 2.9, the version of NeMo's container 25.11; 2.7 to 2.18 (containers 25.09 to 26.08, Megatron-Bridge
docs/releases/software-versions.md) do the same but for what `LATER` names. Paths are below transformer_engine/pytorch.

Which module multiplies where (mcore 0.16.1 models/gpt/gpt_layer_specs.py:119-144 and 489-496, moe_module_specs.py:42,
experimental_attention_variant_module_specs.py:68, models/mamba/mamba_layer_specs.py:45): LayerNormLinear takes the
query, key and value of attention, the up projections of latent attention and of dense networks, the first products of
delta nets and Mamba; GroupedLinear the experts; Linear all others. No module of mcore is TE's LayerNormMLP, which alone
fuses an activation function with quantisation (csrc/extensions/bias.cpp:158-166): mcore's own activations write 16 bits
(fusions/fused_bias_swiglu.py). The output layer and the router are no modules of TE.
"""

from collections.abc import Mapping
from typing import Literal

from launcher.records import dataclass

Module = Literal["LayerNormLinear", "Linear", "GroupedLinear"]
Places = Literal["never", "with a transposed copy", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Casts:
    """What one module does to the tensors of a product, in one recipe.

    Attributes:
        input_reads: times that kernels of their own read the 16-bit input; 0: the norm before it writes the format.
        input_reads_cudnn: the same with NVTE_NORM_FWD_USE_CUDNN=1, by which norms are cuDNN's.
        gradient_reads: times that kernels of their own read the 16-bit gradient of the output.
        bias_fused: the kernel that quantises that gradient also sums it up for the bias.
        together: where one kernel quantises the tokens of all experts, not one for each.
        source: where each is written.
    """

    input_reads: int
    input_reads_cudnn: int
    gradient_reads: int
    bias_fused: bool
    together: Places = "always"
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recipe:
    """One recipe of TE. Compared by identity: estimates look them up often.

    Attributes:
        name: value of `precision.fp8_recipe`, or nvfp4.
        by_block: copies by row and by column differ, so that both are made; otherwise a machine that multiplies by
            column needs one, and only the copy by row is gathered (distributed.py:920-937).
        weight_reads: times that a weight is read to be quantised, once a step (module/layernorm_linear.py:288, mcore
            extensions/transformer_engine.py:671, is_first_microbatch).
        reordered: where the copy by column is written again after it was gathered.
        maximum_reduced: the maximum of a tensor that is gathered is reduced over its group before it is quantised.
        keeps_original: mcore lets the products of attention's output and of shared experts keep their 16-bit input,
            which another operation keeps too, and quantise it by row in forward and by column in backward
            (transformer/attention.py:365-379, moe/shared_experts.py:64-86; since 0.14; TE module/linear.py:225).
        modules: by name of the module.
        source: where `reordered`, `maximum_reduced` and `weight_reads` are written.
    """

    name: str
    by_block: bool
    weight_reads: int
    reordered: Places
    maximum_reduced: bool
    keeps_original: bool
    modules: Mapping[Module, Casts]
    source: str

    def happens(self, where: Places, copies: int) -> bool:
        """Return whether something happens on a machine that needs so many copies."""
        return where == "always" or (where == "with a transposed copy" and copies > 1)


_GRADIENT = "module/base.py:1190-1237"
_SPLIT = "module/grouped_linear.py:127, 306-323; csrc/extensions/cast.cpp:103-150"
_NORM = "module/layernorm_linear.py:198-219; csrc/extensions/normalization.cpp"

RECIPES: Mapping[str, Recipe] = {
    "delayed": Recipe(
        name="delayed",
        by_block=False,
        weight_reads=1,
        reordered="with a transposed copy",
        maximum_reduced=False,
        keeps_original=False,
        source="distributed.py:975-982 (backward: tensor/storage/float8_tensor_storage.py:219); csrc/quantizer.cpp:286",
        modules={
            # The norm's kernel writes the copy by row; another reads that and transposes it.
            "LayerNormLinear": Casts(
                input_reads=0,
                input_reads_cudnn=0,
                gradient_reads=1,
                bias_fused=True,
                source=f"{_NORM}:332; common/normalization/rmsnorm/rmsnorm_api.cpp:96; {_GRADIENT}",
            ),
            "Linear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=True,
                source=f"module/linear.py:225; csrc/quantizer.cpp:276; csrc/extensions/bias.cpp:59-68; {_GRADIENT}",
            ),
            "GroupedLinear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=True,
                together="with a transposed copy",
                source=f"{_SPLIT} (nvte_multi_cast_transpose where both copies are made)",
            ),
        },
    ),
    "tensorwise": Recipe(
        name="tensorwise",
        by_block=False,
        weight_reads=2,
        reordered="with a transposed copy",
        maximum_reduced=True,
        keeps_original=True,
        source="distributed.py:975-982; module/linear.py:1649-1673; csrc/quantizer.cpp:497-535 (maximum, then cast)",
        modules={
            # The norm's kernel writes 16 bits and finds the maximum, cuDNN's does not.
            "LayerNormLinear": Casts(
                input_reads=1,
                input_reads_cudnn=2,
                gradient_reads=2,
                bias_fused=False,
                source=f"{_NORM}:340-344, 410-412; {_GRADIENT}",
            ),
            "Linear": Casts(
                input_reads=2,
                input_reads_cudnn=2,
                gradient_reads=2,
                bias_fused=False,
                source=f"module/linear.py:225; csrc/quantizer.cpp:497-535; csrc/extensions/bias.cpp:75; {_GRADIENT}",
            ),
            "GroupedLinear": Casts(
                input_reads=2,
                input_reads_cudnn=2,
                gradient_reads=2,
                bias_fused=False,
                together="never",
                source=f"{_SPLIT} (quantised one by one)",
            ),
        },
    ),
    "blockwise": Recipe(
        name="blockwise",
        by_block=True,
        weight_reads=1,
        reordered="always",
        maximum_reduced=False,
        keeps_original=True,
        source="distributed.py:1018-1028; csrc/quantizer.cpp:805-820",
        modules={
            "LayerNormLinear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=False,
                source=f"{_NORM}:331, 406 (UNFUSED); {_GRADIENT}",
            ),
            "Linear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=False,
                source=f"module/linear.py:225; csrc/quantizer.cpp:805-820; module/base.py:1231; {_GRADIENT}",
            ),
            "GroupedLinear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=False,
                together="never",
                source=f"{_SPLIT} (allocated together, quantised one by one)",
            ),
        },
    ),
    "mxfp8": Recipe(
        name="mxfp8",
        by_block=True,
        weight_reads=1,
        reordered="never",
        maximum_reduced=False,
        keeps_original=True,
        source="distributed.py:1445 (both copies are gathered as they are); csrc/quantizer.cpp:1091-1101",
        modules={
            # Only cuDNN's norms write MXFP8, both copies at once.
            "LayerNormLinear": Casts(
                input_reads=1,
                input_reads_cudnn=0,
                gradient_reads=1,
                bias_fused=True,
                source=f"{_NORM}:334-339, 406; {_GRADIENT}",
            ),
            "Linear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=True,
                source=f"module/linear.py:225; csrc/quantizer.cpp:1091; csrc/extensions/bias.cpp:69-72; {_GRADIENT}",
            ),
            "GroupedLinear": Casts(
                input_reads=1,
                input_reads_cudnn=1,
                gradient_reads=1,
                bias_fused=True,
                together="never",
                source=f"{_SPLIT} (allocated together, quantised one by one)",
            ),
        },
    ),
    "nvfp4": Recipe(
        name="nvfp4",
        by_block=True,
        weight_reads=2,
        reordered="always",
        maximum_reduced=True,
        keeps_original=True,
        source="distributed.py:1206-1240; csrc/quantizer.cpp:1438-1638; module/linear.py:1675",
        modules={
            # One kernel finds the maxima before and after the Hadamard transform, one writes both copies (`LATER`).
            "LayerNormLinear": Casts(
                input_reads=2,
                input_reads_cudnn=2,
                gradient_reads=2,
                bias_fused=False,
                source=f"{_NORM}:345-350, 406 (UNFUSED with the transform); {_GRADIENT}",
            ),
            "Linear": Casts(
                input_reads=2,
                input_reads_cudnn=2,
                gradient_reads=2,
                bias_fused=False,
                source=f"module/linear.py:225; csrc/quantizer.cpp:1438-1638; module/base.py:1231; {_GRADIENT}",
            ),
            "GroupedLinear": Casts(
                input_reads=2,
                input_reads_cudnn=2,
                gradient_reads=2,
                bias_fused=False,
                source="2.12 csrc/extensions/cast.cpp:867-890 (nvte_group_hadamard_transform_…)",
            ),
        },
    ),
}
LATER: tuple[str, ...] = (
    "NVFP4's copies by row and by column are two kernels up to 2.12 (a third read), one since 2.14 "
    "(csrc/quantizer.cpp:2375): counted as since 2.14",
    "NVFP4 of experts is one kernel for all of them since 2.12, before one for each",
    "gathered blockwise copies are transposed on Hopper alone up to 2.8 (distributed.py:1023-1034)",
)
"""Where versions 2.7 to 2.18 differ from 2.9, and which of them is counted."""

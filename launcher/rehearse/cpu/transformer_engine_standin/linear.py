"""Transformer Engine's linear layers: tensor and sequence parallel through megatron-core's collectives."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from launcher.rehearse.cpu.transformer_engine_standin.norm import normalise, on_cpu
from launcher.rehearse.cpu.transformer_engine_standin.precision import DelayedScaling


class TransformerEngineBaseModule(torch.nn.Module):
    """The fields that megatron-core reads from every Transformer Engine module, and its empty ``_extra_state``."""

    def _set_parallel(
        self, *, tp_group: Any, tp_size: int, sequence_parallel: bool = False, parallel_mode: str | None = None
    ) -> None:
        self.fp8_meta = {"fp8_checkpoint": False, "recipe": DelayedScaling()}
        self.fp8 = self.fp8_calibration = self.save_original_input = False
        self.set_tensor_parallel_group(tp_group)
        self.tp_size = tp_size if tp_group is None else torch.distributed.get_world_size(tp_group)
        self.sequence_parallel = sequence_parallel
        self.parallel_mode = parallel_mode

    def set_tensor_parallel_group(self, tp_group: Any) -> None:
        """Set the group whose ranks share this layer."""
        self.tp_group = tp_group

    def init_fp8_metadata(self, num_gemms: int = 1) -> None:
        """Do nothing: there are no fp8 statistics."""

    def get_extra_state(self) -> Any:
        """Return Transformer Engine's empty extra state, so that checkpoints have its key."""
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, _state: Any) -> None:
        """Ignore the extra state: it holds fp8 statistics only."""

    def backward_dw(self) -> None:
        """Do nothing: the weight gradient is never delayed here, autograd has computed it."""

    def _linear_parameter(self, shape: tuple[int, int], build: "_Build") -> Any:
        """Make and initialise one weight as Transformer Engine does: in the tracker's fork, tagged as tensor parallel.

        It tags every weight, even one that is not sharded (module/linear.py, reset_parameters): the gradient norm
        depends on it.
        """
        weight = torch.nn.Parameter(torch.empty(*shape, dtype=build.dtype, device=build.device))
        if build.init_method is not None and weight.device.type != "meta":
            with build.fork(), torch.no_grad():
                build.init_method(weight)
        tag_tensor_parallel(weight, dim=1 if self.parallel_mode == "row" else 0)
        return weight

    def _bias_parameter(self, size: int, build: "_Build") -> Any:
        bias = torch.nn.Parameter(torch.zeros(size, dtype=build.dtype, device=build.device))
        if self.parallel_mode == "column":
            tag_tensor_parallel(bias, dim=0)
        elif self.parallel_mode == "row":
            bias.sequence_parallel = self.sequence_parallel
        return bias


class _Build:
    """Settings for creating the parameters of one module."""

    def __init__(self, dtype: Any, device: Any, init_method: Any, tracker: Callable[[], Any] | None, name: Any) -> None:
        self.dtype, self.device = dtype or torch.get_default_dtype(), on_cpu(device)
        self.init_method, self.tracker, self.tracker_name = init_method, tracker, name

    def fork(self) -> Any:
        """Return the context in which weights draw their random numbers."""
        if self.tracker is None:
            return contextlib.nullcontext()
        return self.tracker().fork(self.tracker_name) if self.tracker_name else self.tracker().fork()


def tag_tensor_parallel(parameter: Any, *, dim: int) -> None:
    """Set the attributes by which megatron-core identifies a tensor-parallel parameter."""
    parameter.tensor_model_parallel = True
    parameter.partition_dim = dim
    parameter.partition_stride = 1


class Linear(TransformerEngineBaseModule):
    """te.pytorch.Linear: ``weight`` [out, in] and ``bias``; column or row parallel, or neither."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Callable[[], Any] | None = None,
        init_method: Callable[[Any], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: Any = None,
        parallel_mode: str | None = None,
        device: Any = None,
        rng_tracker_name: str | None = None,
        **_kwargs: Any,
    ) -> None:
        super().__init__()
        self._set_parallel(
            tp_group=tp_group, tp_size=tp_size, sequence_parallel=sequence_parallel, parallel_mode=parallel_mode
        )
        if parallel_mode == "column":
            out_features //= self.tp_size
        elif parallel_mode == "row":
            in_features //= self.tp_size
        self.in_features, self.out_features = in_features, out_features
        self.use_bias, self.return_bias, self.apply_bias = bias, return_bias, bias and not return_bias
        build = _Build(params_dtype, device, init_method, get_rng_state_tracker, rng_tracker_name)
        self.weight = self._linear_parameter((out_features, in_features), build)
        # Without a bias Transformer Engine keeps an empty tensor, which is not a parameter.
        self.bias = self._bias_parameter(out_features, build) if bias else torch.empty(0, dtype=build.dtype)

    def gather_input(self, hidden: Any) -> Any:
        """Gather or copy the input of a column-parallel layer to every rank; its backward reduces the gradient."""
        if self.parallel_mode != "column" or self.tp_size == 1:
            return hidden
        from megatron.core.tensor_parallel import mappings

        if self.sequence_parallel:
            return mappings.gather_from_sequence_parallel_region(hidden, True, self.tp_group)
        return mappings.copy_to_tensor_model_parallel_region(hidden, **group_argument(mappings, self.tp_group))

    def reduce_output(self, output: Any) -> Any:
        """Sum the output of a row-parallel layer over its ranks; sequence parallelism keeps this rank's part only."""
        if self.parallel_mode != "row" or self.tp_size == 1:
            return output
        from megatron.core.tensor_parallel import mappings

        group = group_argument(mappings, self.tp_group)
        if self.sequence_parallel:
            return mappings.reduce_scatter_to_sequence_parallel_region(output, **group)
        return mappings.reduce_from_tensor_model_parallel_region(output, **group)

    def forward(self, hidden: Any, is_first_microbatch: bool | None = None, **_kwargs: Any) -> Any:
        """Return the product, or (product, bias) where the caller adds the bias itself."""
        output = self.reduce_output(F.linear(self.gather_input(hidden), self.weight))
        if self.apply_bias:
            output = output + self.bias
        return (output, self.bias) if self.return_bias else output


def group_argument(mappings: Any, group: Any) -> dict[str, Any]:
    """Return ``group`` as a keyword where this megatron-core's mappings take one (those of 0.12 do not)."""
    code = mappings.copy_to_tensor_model_parallel_region.__code__
    return {"group": group} if "group" in code.co_varnames else {}


class LayerNormLinear(Linear):
    """te.pytorch.LayerNormLinear: a norm (``layer_norm_weight``, ``layer_norm_bias``) and a Linear behind it."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        normalization: str = "LayerNorm",
        zero_centered_gamma: bool = False,
        return_layernorm_output: bool = False,
        return_layernorm_output_gathered: bool = False,
        params_dtype: Any = None,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_features, out_features, params_dtype=params_dtype, device=device, **kwargs)
        self.eps, self.normalization, self.zero_centered_gamma = eps, normalization, zero_centered_gamma
        self.return_layernorm_output = return_layernorm_output
        self.return_layernorm_output_gathered = return_layernorm_output_gathered
        kind = {"dtype": params_dtype or torch.get_default_dtype(), "device": on_cpu(device)}
        self.layer_norm_weight = torch.nn.Parameter(
            torch.full((in_features,), 0.0 if zero_centered_gamma else 1.0, **kind)
        )
        self.layer_norm_weight.sequence_parallel = self.sequence_parallel
        self.layer_norm_bias = None
        if normalization != "RMSNorm":
            self.layer_norm_bias = torch.nn.Parameter(torch.zeros(in_features, **kind))
            self.layer_norm_bias.sequence_parallel = self.sequence_parallel

    def forward(self, hidden: Any, is_first_microbatch: bool | None = None, **kwargs: Any) -> Any:
        """Return what Linear returns for the normed input, and the normed input itself where asked for."""
        normed = normalise(
            hidden,
            self.normalization,
            self.layer_norm_weight,
            self.layer_norm_bias,
            self.eps,
            self.zero_centered_gamma,
        )
        output = super().forward(normed, is_first_microbatch)
        if not self.return_layernorm_output:
            return output
        if self.return_layernorm_output_gathered and self.sequence_parallel:
            normed = self.gather_input(normed)
        return (*output, normed) if isinstance(output, tuple) else (output, normed)


class GroupedLinear(TransformerEngineBaseModule):
    """te.pytorch.GroupedLinear: one ``weight<i>`` (and ``bias<i>``) for each of this rank's ``num_gemms`` experts."""

    def __init__(
        self,
        num_gemms: int,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Callable[[], Any] | None = None,
        rng_tracker_name: str | None = None,
        init_method: Callable[[Any], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: Any = None,
        parallel_mode: str | None = None,
        device: Any = None,
        **_kwargs: Any,
    ) -> None:
        super().__init__()
        self._set_parallel(
            tp_group=tp_group, tp_size=tp_size, sequence_parallel=sequence_parallel, parallel_mode=parallel_mode
        )
        if parallel_mode == "column":
            out_features //= self.tp_size
        elif parallel_mode == "row":
            in_features //= self.tp_size
        self.num_gemms, self.in_features, self.out_features = num_gemms, in_features, out_features
        self.use_bias, self.return_bias, self.apply_bias = bias, return_bias, bias and not return_bias
        build = _Build(params_dtype, device, init_method, get_rng_state_tracker, rng_tracker_name)
        for index in range(num_gemms):
            self.register_parameter(f"weight{index}", self._linear_parameter((out_features, in_features), build))
            if bias:
                self.register_parameter(f"bias{index}", self._bias_parameter(out_features, build))

    def forward(
        self, tokens: Any, m_splits: Sequence[int] | Any, is_first_microbatch: bool | None = None, **_kwargs: Any
    ) -> Any:
        """Multiply each expert's slice of ``tokens`` [sum(m_splits), in] by its weight."""
        splits = [int(size) for size in m_splits]
        products = [
            F.linear(part, getattr(self, f"weight{index}"), getattr(self, f"bias{index}") if self.apply_bias else None)
            for index, part in enumerate(torch.split(tokens, splits, dim=0))
        ]
        output = torch.cat(products, dim=0)
        if self.return_bias:
            return output, [getattr(self, f"bias{index}") for index in range(self.num_gemms)]
        return output

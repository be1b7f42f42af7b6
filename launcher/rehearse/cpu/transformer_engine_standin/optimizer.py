"""Transformer Engine's optimizer and multi-tensor functions, with the state layout that checkpoints use."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

_MOMENTS = ("exp_avg", "exp_avg_sq")


class FusedAdam(torch.optim.Optimizer):
    """te.pytorch.optimizers.FusedAdam: Adam(W) with one step count per group and states in the requested dtypes.

    With ``master_weights`` a parameter that is not float32 is trained through its state ``master_param``; with
    ``use_decoupled_grad`` gradients come from ``parameter.decoupled_grad``. Scaled (fp8) states are rejected.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        master_weights: bool = False,
        use_decoupled_grad: bool = False,
        store_param_remainders: bool = False,
        exp_avg_dtype: Any = torch.float32,
        exp_avg_sq_dtype: Any = torch.float32,
        master_weight_dtype: Any = torch.float32,
        **_kwargs: Any,
    ) -> None:
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)
        self.adam_w_mode, self.master_weights, self.use_decoupled_grad = adam_w_mode, master_weights, use_decoupled_grad
        self.dtypes = {
            "exp_avg": exp_avg_dtype,
            "exp_avg_sq": exp_avg_sq_dtype,
            "master_param": master_weight_dtype,
        }
        for name, dtype in self.dtypes.items():
            if dtype not in (torch.float32, torch.float16, torch.bfloat16):
                from launcher.rehearse.cpu.transformer_engine_standin.precision import refuse

                refuse(f"optimizer state {name} in {dtype}")

    def initialize_state(self, parameter: Any, store_param_remainders: bool = False) -> None:
        """Make the states of one parameter that do not exist yet."""
        state = self.state[parameter]
        for name in _MOMENTS:
            if name not in state:
                state[name] = torch.zeros_like(parameter, dtype=self.dtypes[name])
        if self.master_weights and "master_param" not in state:
            state["master_param"] = parameter.detach().clone().to(self.dtypes["master_param"])

    def set_scaled_state(self, parameter: Any, name: str, value: Any) -> None:
        """Set one state from a checkpoint (no scale exists in the types that are allowed here)."""
        self.initialize_state(parameter)
        self.state[parameter][name].copy_(value)

    def get_unscaled_state(self, parameter: Any, name: str) -> Any:
        """Return one state in float32."""
        return self.state[parameter][name].float()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, grad_scaler: Any = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if not group["params"]:
                continue
            group["step"] = group.get("step", 0) + 1
            for parameter in group["params"]:
                gradient = parameter.decoupled_grad if self.use_decoupled_grad else parameter.grad
                if gradient is not None:
                    self._update(parameter, gradient.float(), group)
        return loss

    def _update(self, parameter: Any, gradient: Any, group: dict[str, Any]) -> None:
        self.initialize_state(parameter)
        state, decay = self.state[parameter], group["weight_decay"]
        weight = state["master_param"].float() if self.master_weights else parameter
        if decay and not self.adam_w_mode:
            gradient = gradient + decay * weight
        moments = []
        for name, beta, sample in zip(_MOMENTS, group["betas"], (gradient, gradient * gradient), strict=True):
            moment = state[name].float().mul_(beta).add_(sample, alpha=1 - beta)
            state[name].copy_(moment)
            moments.append(moment / (1 - beta ** group["step"]) if group["bias_correction"] else moment)
        update = moments[0] / (moments[1].sqrt() + group["eps"])
        if decay and self.adam_w_mode:
            update = update + decay * weight
        if self.master_weights:
            state["master_param"].copy_(weight.add(update, alpha=-group["lr"]))
            parameter.copy_(state["master_param"])
        else:
            parameter.add_(update.to(parameter.dtype), alpha=-group["lr"])


def multi_tensor_applier(operation: Callable[..., Any], noop_flag: Any, tensor_lists: Any, *args: Any) -> Any:
    """Apply a multi-tensor operation to lists of tensors."""
    return operation(0, noop_flag, tensor_lists, *args)


@torch.no_grad()
def multi_tensor_scale(_chunk: int, _noop_flag: Any, tensor_lists: Any, scale: float) -> None:
    """Write ``scale`` times each tensor of the first list into the second."""
    for source, target in zip(*tensor_lists, strict=True):
        target.copy_(source * scale if scale != 1.0 else source)


def multi_tensor_l2norm(
    _chunk: int, _noop_flag: Any, tensor_lists: Any, per_tensor: bool = False, *_args: Any
) -> tuple[Any, Any]:
    """Return the norm of all tensors together [1], and of each one where asked."""
    norms = torch.stack([tensor.float().norm() for tensor in tensor_lists[0]])
    return norms.norm().reshape(1), norms if per_tensor else None

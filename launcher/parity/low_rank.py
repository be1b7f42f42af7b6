"""LoRA written out for the reference: y + scale * B(A x), with one A for the modules that a training stack fuses.

PEFT gives each of them an A of its own: another training, with more parameters. Source of the formula:
arXiv:2106.09685, section 4.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.convert.lora.adapter import read_config
from launcher.convert.lora.logical import A, B
from launcher.job import Job
from launcher.parity.adapter import adapter_beside, layers_of, read, scale_of, write


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """What the reference trains instead of the weights.

    Attributes:
        adapter: folder with the factors of the start, in PEFT's format.
        groups: modules that share their A.
    """

    adapter: str
    groups: Sequence[Sequence[str]]

    @classmethod
    def of(cls, job: Job, model: Path) -> "LowRank | None":
        """Return the adapter of a job, written beside the shared model; None: the job trains the weights."""
        if job.lora.rank is None:
            return None
        return cls(adapter=str(adapter_beside(model)), groups=layers_of(job, model))


def add_factors(model: Any, options: LowRank) -> Mapping[str, Any]:
    """Freeze a model of transformers and add factors to its linear layers; return the parameters by PEFT's names."""
    import torch

    model.requires_grad_(False)
    tensors, scale = read(Path(options.adapter)), scale_of(Path(options.adapter))
    modules = dict(model.named_modules())
    found: dict[str, Any] = {}
    for parts in options.groups:
        a = torch.nn.Parameter(tensors[parts[0] + A].float())
        for part in parts:
            b = torch.nn.Parameter(tensors[part + B].float())
            _add(torch, modules[part], a, b, scale)
            found[part + A], found[part + B] = a, b
    return found


def _add(torch: Any, module: Any, a: Any, b: Any, scale: float) -> None:
    linear = torch.nn.functional.linear
    module.factor_a, module.factor_b = a, b

    def add(_module: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        return output + scale * linear(linear(inputs[0], a), b)

    module.register_forward_hook(add)


def save_factors(parameters: Mapping[str, Any], options: LowRank, out: Path) -> None:
    """Write the trained factors in PEFT's format."""
    factors = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    write(out, factors, read_config(Path(options.adapter)))

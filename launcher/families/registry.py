"""All model families, found by their files in `architectures`; each file is read when its family is asked for."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Final

from launcher.families import architectures
from launcher.families.record import Family
from launcher.families.weights import Weights
from launcher.job.model_types import MODEL_TYPES


@cache
def _family(model_type: str) -> Family:
    family = import_module(f"{architectures.__name__}.{model_type}").FAMILY
    assert isinstance(family, Family)
    assert family.model_type == model_type
    return family


class _Families(Mapping[str, Family]):
    def __getitem__(self, model_type: str) -> Family:
        if model_type not in MODEL_TYPES:
            raise KeyError(model_type)
        return _family(model_type)

    def __iter__(self) -> Iterator[str]:
        return iter(MODEL_TYPES)

    def __len__(self) -> int:
        return len(MODEL_TYPES)


FAMILIES: Final[Mapping[str, Family]] = _Families()


def weights_of(model_type: str | None) -> Weights | None:
    """Return the parameters of a family's checkpoints; None for an unknown family, or if they cannot be converted."""
    family = FAMILIES.get(model_type or "")
    return None if family is None else family.weights


@cache
def weights() -> Mapping[str, Weights]:
    """Return the parameters of the families whose checkpoints can be converted."""
    return {name: family.weights for name, family in FAMILIES.items() if family.weights is not None}

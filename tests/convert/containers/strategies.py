"""Tensors and structures for the property tests of containers."""

from __future__ import annotations

from hypothesis import strategies as st

from launcher.convert.containers.dtypes import MXFP4, SIZES
from launcher.convert.containers.records import Dtype, TensorSpec, namespace

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 7), max_size=4).map(tuple)
# MXFP4 is two stored tensors of one logical one.
DTYPES = st.sampled_from(sorted(SIZES.keys() - {MXFP4}))


@st.composite
def tensors(draw: st.DrawFn, dtypes: st.SearchStrategy[str] = DTYPES) -> list[TensorSpec]:
    names = draw(st.lists(NAMES, unique=True, max_size=8))
    return [TensorSpec(name=name, shape=draw(SHAPES), dtype=draw(dtypes)) for name in names]


SCALARS = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(max_size=9)
VALUES = st.recursive(
    SCALARS | st.binary(max_size=20) | DTYPES.map(lambda name: Dtype(name=name)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=9) | st.integers(0, 9), inner, max_size=4)
        | st.dictionaries(st.text("abcdefgh", min_size=1), inner, max_size=4).map(lambda table: namespace(**table))
    ),
    max_leaves=12,
)

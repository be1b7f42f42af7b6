"""Rows of options that hold the value of one field: ms-swift's own, and Megatron-LM's in ms-swift's spelling."""

from collections.abc import Callable, Mapping
from functools import cache

from backends.megatron.mapping.factories import may_be_moe
from backends.megatron.versions import find_option
from backends.megatron_lm.mapping.table import rows as megatron_rows
from launcher.job import Job
from launcher.mapping.inherit import holding, renamed
from launcher.mapping.rows import Row

# Arguments whose rows in Megatron-LM compute something that holds here, too.
_AS_COMPUTED = ("muon-momentum", "moe-layer-recompute")
_ADAM = tuple(f"optimizer.adam_{name}" for name in ("beta1", "beta2", "eps"))


def option(path: str, name: str, version: str, *, inverted: bool = False, note: str = "") -> tuple[Row, ...]:
    """Return the row of a field and the option that holds its value; empty if this version has no such option.

    Args:
        name: the option in any version; a later name is looked up.
        inverted: under `name`, the option holds the opposite of the field.
    """
    found = find_option(name, version)
    if found is None:
        return ()
    argument, opposite = found
    return (holding(path, argument, inverted=inverted != opposite, when=_condition(path), note=note),)


def respelled(row: Row, version: str) -> Row | None:
    """Return a row of Megatron-LM in ms-swift's spelling; None if this version has no such option."""
    names = {flag: flag.replace("-", "_") for flag in row.flags}
    if row.flags and row.flags[0] in _AS_COMPUTED and find_option(names[row.flags[0]], version) is not None:
        return renamed(row, _spelling())
    if row.codec is None:
        return None
    name = names[row.flags[0]]
    return next(iter(option(row.fields[0], name, version, inverted=row.codec == "inverted")), None)


@cache
def megatron_name(path: str) -> str:
    """Return Megatron-LM's (first) argument of a field, in ms-swift's spelling."""
    return next(row.flags[0] for row in megatron_rows() if row.flags and row.fields[:1] == (path,)).replace("-", "_")


@cache
def _spelling() -> Mapping[str, str]:
    return {flag: flag.replace("-", "_") for row in megatron_rows() for flag in row.flags}


def _condition(path: str) -> Callable[[Job], bool] | None:
    if path in _ADAM:
        return lambda job: job.optimizer.type in ("adam", "muon")
    return may_be_moe(path) if path.startswith("moe.") else None

"""Checks a command line of the trainer without heavy imports; used by planners and by every rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from launcher.rehearse.core.arguments import parse
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.options import Device
from launcher.rehearse.core.settings import Settings, resolve
from launcher.rehearse.core.supported_args import IgnoredArg, judge


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A command line that can be trained."""

    settings: Settings
    ignored: tuple[IgnoredArg, ...]
    """Given arguments without effect here; none of them changes training."""


def check(argv: Sequence[str], world_size: int, device: Device | None = None) -> Judged:
    """Check Megatron-LM arguments for a world of `world_size` ranks.

    With `device` cuda, FP8 is supported: whether Transformer Engine is installed is found when the model is built.

    UsageError for arguments that do not exist or have a wrong value; RehearsalError with every argument that changes
    training and is not supported, or else with everything that cannot work.
    """
    arguments = parse(argv)
    ignored = judge(arguments, device)
    refused = [row.refusal() for row in ignored if row.changes_training]
    if refused:
        raise RehearsalError(*refused)
    return Judged(settings=resolve(arguments, world_size), ignored=ignored)

"""Row factory and sources of what ms-swift's argument classes set, in their order."""

from collections.abc import Mapping

from backends.megatron.rules.terms import FOUR
from launcher.rules.registry import Rule, Setting

ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
BASE = "ms-swift 4.6.0 megatron/arguments/megatron_base_args.py"
UTILS = "ms-swift 4.6.0 megatron/model/utils.py"
BRIDGE = "mcore-bridge 1.6.5 config/model_config.py"
CORE = "megatron-core 0.16.1 transformer/transformer_config.py"


def sets(
    id: str,
    when: str,
    values: Mapping[str, Setting],
    doc: str,
    source: str,
    *,
    reads: str = "",
    phase: str = "",
    unread: tuple[str, ...] = (),
    since: str = FOUR,
    until: str | None = None,
    reports_written: bool = True,
) -> Rule:
    """Return a row that sets arguments; its finding is made of their values and `doc`."""
    return Rule(
        id=id,
        when=when,
        sets=values,
        unread=unread,
        doc=doc,
        source=source,
        severity="change",
        flags=tuple(values),
        reads=reads,
        phase=phase,
        since=since,
        until=until,
        reports_written=reports_written,
    )

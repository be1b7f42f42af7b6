"""Row factories of the tables of effective values, and the names of keys in them."""

from functools import partial

from backends.mindformers.mapping.support import MODEL
from launcher.job import Value
from launcher.rules import table
from launcher.rules.registry import Rule, RuleContext, Setting, Values

MCORE = "use_legacy=False"
KIND = f"{MODEL}model_type"


sets = partial(table.sets, reports_written=False)
"""Return a row of keys that the trainer sets to what they mean; no finding."""


def fills(id: str, when: str, values: Values, doc: str, source: str, reads: str) -> Rule:
    """Return a row of defaults that depend on other keys."""
    return Rule(id=id, when=when, fills=values, doc=doc, source=source, severity="change", reads=reads)


def unless(key: str, default: Value) -> Setting:
    """Return the setting of a key whose written default means the same as its absence."""
    return lambda context: None if context.values.get(key) == default else context.values.get(key)


def unless_zero(key: str) -> Setting:
    """Return the setting of a key whose 0 means the same as its absence."""
    return lambda context: context.values.get(key) or None


def key_of(context: RuleContext, name: str) -> Value:
    """Return the value of a key of the model section as it is written or filled in."""
    return context.values.get(f"{MODEL}{name}")

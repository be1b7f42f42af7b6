"""Checks values of native arguments against the bounds of fields: sizes that are 0 or negative."""

from collections.abc import Iterator

from launcher.job import field_at
from launcher.rules.registry import RuleContext, Violation, rule

# Sizes used as divisors. In other fields 0 or -1 may mean "never" or "none" to a backend, or has its own rule.
_SECTIONS = ("parallel", "batch", "cluster")
_MODEL = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")


def refused_sizes(context: RuleContext) -> dict[str, tuple[str, str]]:
    """Return the sizes that must not be 0 or negative: canonical path to the argument that sets it, and the reason."""
    found = {}
    for path, (flag, why) in context.beyond.items():
        section, _, name = path.partition(".")
        low = field_at(path).meta.minimum
        if low is not None and low >= 1 and (section in _SECTIONS or (section == "model" and name in _MODEL)):
            found[path] = (flag, why)
    return found


@rule("ARG-BOUND", source="arithmetic: sizes divide one another; each backend divides by them")
def sizes_are_positive(context: RuleContext) -> Iterator[Violation]:
    """A native argument that is a size of the layout, the batch or the model must not be 0 or negative."""
    for path, (flag, why) in refused_sizes(context).items():
        is_layout = path.startswith("parallel.") and not context.as_written
        works = (f"backend.args.{context.key(flag)}={field_at(path).meta.minimum:g}",) if is_layout else ()
        yield Violation(message=f"{flag}: {why} ({path})", fields=(path,), flags=(flag,), works=works)

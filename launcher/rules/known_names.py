"""Rules about names that a backend looks up in a list after its parser accepted any text."""

from collections.abc import Iterator, Mapping
from typing import Unpack

from launcher.catalogue.versions import in_range
from launcher.job import fields
from launcher.nearest import nearest
from launcher.rules.registry import Range, Rule, RuleContext
from launcher.rules.table import RuleOptions, checked

Names = Mapping[str, Range | Mapping[str, Range]]
"""Each name, with the first and last version that takes it; by backend, where a rule is of several."""
ALWAYS: Range = (None, None)
# Names that a message lists; of more it says how many there are.
_MOST_SHOWN = 60
# Names of linear layers in Hugging Face models, and those of Megatron-core.
MEGATRON_NAMES = {
    "q_proj": "linear_qkv",
    "k_proj": "linear_qkv",
    "v_proj": "linear_qkv",
    "o_proj": "linear_proj",
    "gate_proj": "linear_fc1",
    "up_proj": "linear_fc1",
    "down_proj": "linear_fc2",
}


def named(*names: str, versions: Range | Mapping[str, Range] = ALWAYS) -> Names:
    """Return names that the same versions take."""
    return dict.fromkeys(names, versions)


def known_names(
    id: str,
    flag: str | tuple[str, ...],
    names: Names,
    doc: str,
    source: str,
    *,
    shown: str = "",
    separator: str = "",
    any_case: bool = False,
    extended_by: tuple[str, ...] = (),
    when: str = "",
    then: str = "",
    **options: Unpack[RuleOptions],
) -> Rule:
    """Return an error: where an argument has a name that this version of the backend does not know.

    Args:
        id: stable name of the rule.
        flag: argument with one name or a list of them; several, if all are looked up in the same list.
        names: what the backend looks them up in.
        doc: what is named, one sentence.
        source: where the backend looks them up.
        shown: what messages call the argument; empty: its own name, without sections.
        separator: what joins names within one text.
        any_case: upper and lower case are the same.
        extended_by: arguments with which a user adds names; the rule is silent where one is written.
        when: conditions under which the backend looks them up.
        then: conditions under which it does not, all the same.
        options: further values of the rule.
    """
    flags = (flag,) if isinstance(flag, str) else flag

    def given_names(context: RuleContext, each: str) -> Iterator[str]:
        # A switch in the place of a name has its own meaning, or the wrong type.
        for value in (str(value) for value in context.items(each) if not isinstance(value, bool)):
            for name in value.split(separator) if separator else (value,):
                yield name.lower() if any_case else name

    def unknown(context: RuleContext) -> str:
        if any(context.flag(each) for each in extended_by):
            return ""
        known = tuple(name for name, versions in names.items() if _takes(versions, context))
        wrong = {each: [name for name in given_names(context, each) if name not in known] for each in flags}
        found = [f"{shown or each.rpartition('.')[2]} {', '.join(given)}" for each, given in wrong.items() if given]
        if not found:
            return ""
        first = next(given[0] for given in wrong.values() if given)
        near = nearest(first, known, limit=1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        if len(known) > _MOST_SHOWN:
            return f"{', '.join(found)}{guess}: none of the {len(known)} names that this version registers"
        return f"{', '.join(found)}{guess}: supported are {', '.join(known)}"

    def near(context: RuleContext) -> tuple[str, ...]:
        known = tuple(name for name, versions in names.items() if _takes(versions, context))
        wrong = [(each, name) for each in flags for name in given_names(context, each) if name not in known]
        if len(wrong) != 1 or separator or len(context.items(wrong[0][0])) != 1:
            return ()
        flag, name = wrong[0]
        of_flag = context.fields_by_flag.get(flag)
        paths = options.get("fields") or ((of_flag,) if of_flag else ())
        # A name that another backend knows is no typing error: what is near is something else.
        is_known = any(path in fields() and name in (fields()[path].meta.choices or ()) for path in paths)
        return () if is_known else tuple(f"{paths[0]}={each}" for each in nearest(name, known, limit=1) if paths)

    scope: RuleOptions = {"works": near, **options, "flags": flags, "reads": " ".join((*flags, *extended_by))}
    return checked(id, unknown, doc, source, when=when, then=then, **scope)


def _takes(versions: Range | Mapping[str, Range], context: RuleContext) -> bool:
    if isinstance(versions, Mapping):
        found = versions.get(context.backend or "")
        return found is not None and in_range(context.version or "", *found)
    return in_range(context.version or "", *versions)


def without_layers(flag: str, context: RuleContext) -> str:
    """Return the message where all target modules have Hugging Face's names, which no layer of Megatron-core has."""
    names = [str(name) for name in context.items(flag)]
    if not names or not all(name in MEGATRON_NAMES for name in names):
        return ""
    wanted = dict.fromkeys(MEGATRON_NAMES[name] for name in names)
    return f"{flag} {', '.join(names)}: no layer has such a name; Megatron-core's are {', '.join(wanted)}"

"""Searches everything that can be explained: by name, part of a name, synonym, and meaning.

Used by `launch explain`, `launch list` and the web planner. Importing it is cheap; a search with backends loads their
newest catalogues.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from launcher.catalogue.catalogue import plain as plain_name
from launcher.cli.synonyms import ALIASES, WORDS
from launcher.job import fields
from launcher.mapping.backend import Backend
from launcher.mapping.renames import renames_of
from launcher.mapping.rows import active_rows
from launcher.nearest import plain
from launcher.records import dataclass

# Lower is better.
_EXACT, _LEAF, _ALIAS, _SYNONYM, _PART, _NATIVE, _MEANING = range(7)
_SHORTEST_PART = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Something that a search found.

    Attributes:
        name: what `launch explain` takes.
        kind: field, argument, rule or variable.
        text: its meaning, in one line.
        why: how the query led to it.
        rank: lower is nearer; hits of one rank keep the order of the schema.
    """

    name: str
    kind: str
    text: str
    why: str
    rank: int


def search_names(query: str, backends: Sequence[Backend] = (), *, limit: int = 20) -> list[Hit]:
    """Return what a query may mean, nearest first; empty: nothing.

    Args:
        query: a word or name in any spelling (`max_epochs`, `--max-epochs`, "long context").
        backends: their arguments are searched, too; the first one first.
    """
    wanted, words = _key(query), query.strip().lstrip("-+").lower().replace("-", " ").replace("_", " ").split()
    if not wanted:
        return []
    best: dict[str, Hit] = {}
    for hit in _hits(wanted, words, backends):
        known = best.get(hit.name)
        if known is None or hit.rank < known.rank:
            best[hit.name] = hit
    return sorted(best.values(), key=lambda hit: hit.rank)[:limit]


def alias_of(name: str) -> tuple[str, ...]:
    """Return the fields that another tool's name stands for; empty: none."""
    return _aliases().get(_key(name), ())


def _hits(wanted: str, words: Sequence[str], backends: Sequence[Backend]) -> Iterator[Hit]:
    yield from _of_fields(wanted, words)
    yield from _of_arguments(wanted, backends)
    yield from _of_rules(wanted, words)


def _of_fields(wanted: str, words: Sequence[str]) -> Iterator[Hit]:
    known = fields()

    def hit(path: str, why: str, rank: int) -> Hit:
        return Hit(name=path, kind="field", text=known[path].meta.doc, why=why, rank=rank)

    for path in _aliases().get(wanted, ()):
        yield hit(path, "the name that other tools have for it", _ALIAS)
    for path in _synonyms().get(wanted, ()):
        yield hit(path, "another word for it", _SYNONYM)
    for path, info in known.items():
        key, leaf = _key(path), _key(path.rpartition(".")[2])
        if key == wanted:
            yield hit(path, "name", _EXACT)
        elif leaf == wanted:
            yield hit(path, "name", _LEAF)
        elif len(wanted) >= _SHORTEST_PART and wanted in key:
            yield hit(path, "part of its name", _PART)
        elif len(wanted) >= _SHORTEST_PART and _has_words(words, info.meta.doc):
            yield hit(path, "in its meaning", _MEANING)


def _of_arguments(wanted: str, backends: Sequence[Backend]) -> Iterator[Hit]:
    """Yield fields that native arguments are read into, and arguments without a field."""
    known = fields()
    for backend in backends:
        version = backend.version(None)
        table, catalogue = backend.table(version), backend.catalogue(version)
        rows = {flag: row for row in active_rows(table, version) for flag in row.flags}
        # An earlier version's name leads to what it is called now.
        newer = {str(row.get("new")) for old, row in renames_of(backend.name).items() if _key(old) == wanted}
        for argument in catalogue.arguments:
            key = _key(argument.name)
            exact = wanted in (key, _key(argument.name.rpartition(".")[2]), *map(_key, argument.aliases))
            exact = exact or (bool(newer) and plain_name(argument.name) in newer)
            if not exact and (len(wanted) < _SHORTEST_PART or wanted not in key):
                continue
            title = f"{backend.title}'s {argument.name}"
            row = rows.get(argument.name)
            paths = [path for path in row.fields if path in known] if row is not None else []
            for path in paths[:1]:
                yield Hit(
                    name=path, kind="field", text=known[path].meta.doc, why=title, rank=_ALIAS if exact else _NATIVE
                )
            if not paths:
                text = argument.help.split("\n")[0] or f"argument of {backend.title}"
                yield Hit(name=argument.name, kind="argument", text=text, why=title, rank=_ALIAS if exact else _NATIVE)


def _of_rules(wanted: str, words: Sequence[str]) -> Iterator[Hit]:
    """Yield rules that are loaded, by a part of their id or by their meaning."""
    from launcher.rules.diagnostics import DIAGNOSTICS
    from launcher.rules.registry import RULES

    if len(wanted) < _SHORTEST_PART:
        return
    texts = {**{id_: rule.doc for id_, rule in RULES.items()}, **{id_: each.doc for id_, each in DIAGNOSTICS.items()}}
    for id_, doc in texts.items():
        if wanted in _key(id_):
            yield Hit(name=id_, kind="rule", text=" ".join(doc.split()), why="part of its name", rank=_PART)
        elif _has_words(words, doc):
            yield Hit(name=id_, kind="rule", text=" ".join(doc.split()), why="in its meaning", rank=_MEANING)


def _has_words(wanted: Sequence[str], text: str) -> bool:
    """Return whether a text has every word of a query, as whole words or their beginning."""
    words = [word.strip(".,;:()[]'`") for word in text.lower().replace("-", " ").replace("_", " ").split()]
    return all(any(word.startswith(part) for word in words) for part in wanted)


def _key(name: str) -> str:
    return plain(name.strip().lstrip("-+").partition("=")[0])


@cache
def _aliases() -> dict[str, tuple[str, ...]]:
    return {_key(name): tuple(paths.split()) for name, paths in ALIASES.items()}


@cache
def _synonyms() -> dict[str, tuple[str, ...]]:
    return {_key(word): tuple(paths.split()) for words, paths in WORDS.items() for word in words.split()}

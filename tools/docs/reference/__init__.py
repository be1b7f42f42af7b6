"""Pages of the reference, made from the program: fields, arguments, rules, verbs, models, recipes, examples.

They are not in version control: `python -m tools.docs.site` writes them into the sources of the site.
"""

from collections.abc import Callable, Mapping

from tools.docs.reference import arguments, examples, fields, glossary, models, recipes, rules, verbs

PAGES: tuple[Callable[[], Mapping[str, str]], ...] = (
    fields.pages,
    arguments.pages,
    rules.pages,
    verbs.pages,
    glossary.pages,
    models.pages,
    recipes.pages,
    examples.pages,
)


def pages() -> dict[str, str]:
    """Return the text of every page of the reference by its path below docs/reference."""
    return {path: text for made in PAGES for path, text in made().items()}

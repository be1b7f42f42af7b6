"""Explicit pipeline layouts: the contents of each chunk, and the error for layers that cannot be split."""

from launcher.budgets import BUDGETS, BeyondBudget, written_out


class CannotSplit(ValueError):
    """The layers cannot be spread over the stages; `fields` names what to change."""

    def __init__(self, message: str, fields: tuple[str, ...]) -> None:
        super().__init__(message)
        self.fields = fields


MOST_LAYERS = BUDGETS["layers"].limit


def parse_layout(text: str) -> list[str]:
    """Return the chunks of a layout such as `Et*3|(tt|)*29,m|L` as strings of E, t, m and L.

    Raises:
        CannotSplit: a letter is unknown, or repetitions exceed the layer limit.
    """
    try:
        text = written_out(text)
    except BeyondBudget as error:
        raise CannotSplit(f"parallel.layout has {error.message}", ("parallel.layout",)) from None
    wrong = sorted(set(text) - set("EtmL|"))
    if wrong:
        raise CannotSplit(f"{''.join(wrong)!r} is not a part of a layout: E, t, m, L, |, (…)*n", ("parallel.layout",))
    return text.split("|")

"""Objects that show themselves as HTML in notebooks."""

from importlib import import_module

# By name: what draws an object knows the packages of all of them, and none of those may depend on it.
_DRAWS = "launcher.report.html"


class Shown:
    """An object with a table for notebooks (IPython's `_repr_html_`); it is drawn only where a notebook asks for it."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the object as one HTML element: escaped, without secrets, for light and dark, without other files."""
        text: str = import_module(_DRAWS).as_html(self)
        return text

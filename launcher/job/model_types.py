"""Names of the known model families: those of the files that describe them, which are read only when needed."""

from pathlib import Path
from typing import Final

_ARCHITECTURES = Path(__file__).resolve().parent.parent / "families" / "architectures"
MODEL_TYPES: Final = tuple(sorted(path.stem for path in _ARCHITECTURES.glob("[a-z]*.py")))

"""Sources of the site: the repository's Markdown where it stands, so that links are the same, and the reference."""

import shutil
import subprocess
from pathlib import Path

from tools.docs import reference
from tools.docs.reference import conversions

ROOT = Path(__file__).resolve().parents[3]
_LINKED = ("launcher/importing/shell/README.md", "launcher/convert/containers/README.md")


def write_sources(folder: Path) -> None:
    """Write every page of the site below this folder, with its path in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if is_page(name) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    convert = folder / "docs" / "convert.md"
    convert.write_text(conversions.filled(convert.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in reference.pages().items():
        page = folder / "docs" / "reference" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def is_page(name: str) -> bool:
    """Return whether a file of the repository belongs to the site's sources."""
    return name.startswith("docs/") or name in _LINKED or "/" not in name

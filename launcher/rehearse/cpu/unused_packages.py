"""Empty packages that a backend requires at import and whose functions a rehearsal of text does not call."""

import atexit
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def install(versions: Mapping[str, str], modules: tuple[str, ...] = ()) -> None:
    """Put an empty package on sys.path for each that is not installed, with its version for importlib.metadata.

    Args:
        versions: by name of the package.
        modules: modules of each package that are imported, too.
    """
    missing = [name for name in versions if find_spec(name) is None]
    if not missing:
        return
    folder = Path(tempfile.mkdtemp(prefix="launch-unused-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in missing:
        (folder / name).mkdir()
        for module in ("__init__", *modules):
            (folder / name / f"{module}.py").touch()
        facts = folder / f"{name}-{versions[name]}.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {versions[name]}\n")
    sys.path.append(str(folder))

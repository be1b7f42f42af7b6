"""Builds the documentation site from docs/ and the generated reference.

    python -m tools.docs.site [-o FOLDER] [--language en|zh]

Every warning is an error: a link to a page or heading that does not exist, a page that no table of contents names.
The pages need no server: open FOLDER/index.html.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.docs.site.sources import ROOT, write_sources

LANGUAGES = ("en", "zh")
START = """<!doctype html><meta charset="utf-8"><title>Launch</title>
<script>location.replace((navigator.language || "en").startsWith("zh") ? "{zh}" : "{en}")</script>
<p><a href="{en}">English</a> · <a href="{zh}">中文</a></p>
"""


def build(sources: Path, out: Path, language: str) -> int:
    """Build one language; return Sphinx's exit code."""
    words = ["-q", "-W", "--keep-going", "-E", "-c", str(ROOT / "docs"), "-d", f"{sources}/.doctrees-{language}"]
    return int(build_main([*words, "-t", language, str(sources), str(out)]))


def main() -> int:
    """Build the site; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "build" / "site", help="default: build/site")
    parser.add_argument("--language", choices=LANGUAGES, action="append", help="default: both")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        write_sources(Path(folder))
        languages = options.language or LANGUAGES
        with multiprocessing.get_context("fork").Pool(len(languages)) as pool:
            codes = pool.starmap(build, [(Path(folder), options.out / name, name) for name in languages])
    if any(codes):
        return max(codes)
    starts = {"en": "en/docs/index.html", "zh": "zh/docs/zh/index.html"}
    (options.out / "index.html").write_text(START.format(**starts), encoding="utf-8")
    print(f"{options.out}/index.html, {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

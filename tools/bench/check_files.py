"""CPU time of `launch check FOLDER --format sarif` on 500 files, as a pull request's check runs it.

    python -m tools.bench.check_files --facts DIR [--files 500]

DIR holds corpus_*.jsonl (see tools.bench.corpus): real command lines of the backends' examples are written as bash
scripts, MindFormers' files as YAML; every recipe is added, and one file in ten holds no training. Goal: 500 files in
20 s of CPU. Exit code 1 if it is missed.
"""

import argparse
import itertools
import json
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.bench.corpus import CORPORA

GOAL_S, GOAL_FILES = 20.0, 500
_OTHER = 10  # one file in so many holds no training
_RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def script(record: Mapping[str, Any]) -> str:
    """Return a record of the corpus as a bash script, an option a line."""
    exports = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in (record.get("env") or {}).items())
    words = [*(record.get("command") or "").split()]
    if record.get("entry"):
        launcher = record.get("launcher") or {}
        options = [word for key, value in (launcher.get("opts") or {}).items() for word in (f"--{key}", str(value))]
        words = [*str(launcher.get("cmd", "torchrun")).split(), *options, record["entry"]]
    args = " \\\n  ".join(shlex.quote(str(word)) for word in record["argv"])
    return f"#!/bin/bash\nset -e\n{exports}{shlex.join(words)} \\\n  {args}\n"


def files(facts: Path) -> Iterator[tuple[str, str]]:
    """Yield suffix and content of files, those of the backends in turn."""
    corpora = [(facts / name).read_text(encoding="utf-8").splitlines() for name in CORPORA]
    for line in filter(None, itertools.chain.from_iterable(itertools.zip_longest(*corpora))):
        record = json.loads(line)
        if "argv" in record:
            yield ".sh", script(record)
        else:
            yield ".yaml", json.dumps(record["yaml"], indent=1)
    for path in sorted(_RECIPES.glob("*.yaml")):
        yield ".yaml", path.read_text(encoding="utf-8")


def write(folder: Path, facts: Path, count: int) -> int:
    """Write the files to a folder and return their number."""
    source = itertools.cycle(files(facts))
    for number in range(count):
        if number % _OTHER == 0:
            folder.joinpath(f"{number:04}.sh").write_text("#!/bin/bash\npip install torch\nmake -j && make install\n")
            continue
        suffix, content = next(source)
        folder.joinpath(f"{number:04}{suffix}").write_text(content, encoding="utf-8")
    return count


def main() -> int:
    """Print the time and the counts; return 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR")
    parser.add_argument("--files", type=int, default=GOAL_FILES, metavar="N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        count = write(Path(name), options.facts, options.files)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "launcher", "check", name, "--format", "sarif"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        print(done.stderr)
        return 1
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = len(json.loads(done.stdout)["runs"][0]["results"])
    print(f"{count} files, {found} findings: {seconds:.1f} s of CPU, {after.ru_maxrss / 1024:.0f} MiB")
    print(done.stderr.strip())
    goal = GOAL_S * count / GOAL_FILES
    print(f"goal: {goal:.0f} s")
    return 0 if seconds <= goal else 1


if __name__ == "__main__":
    raise SystemExit(main())

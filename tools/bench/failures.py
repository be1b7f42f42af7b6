"""Measures how often the reason of a failure is right, on failure texts of public issues.

Usage: python -m tools.bench.failures [SET …] [--show]
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from tests.observe.corpus import SETS, failure_of, texts, verdict


def measure(name: str, *, show: bool) -> Counter[str]:
    """Return the number of verdicts on one set."""
    found: Counter[str] = Counter()
    for text in texts(name):
        with tempfile.TemporaryDirectory() as folder:
            failure = failure_of(text, Path(folder) / "run")
        word = verdict(text, failure)
        found[word] += 1
        found["silent"] += text.reasons == ("",)
        if show and word != "right":
            said = f"{failure.reason or '-'} (rank {failure.rank}): {failure.message[:150]}"
            print(f"{word:7}{text.name}: {'|'.join(text.reasons) or '-'} expected, said {said}")
    return found


def main() -> None:
    """Print one line for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument("--show", action="store_true", help="show those that are not right")
    options = parser.parse_args()
    for name in options.sets or SETS:
        found = measure(name, show=options.show)
        total = found["right"] + found["missed"] + found["wrong"]
        print(
            f"{name:10} {total:3} texts ({found['silent']} without a reason): {found['right'] / total:.1%} right, "
            f"{found['missed']} missed, {found['wrong']} wrong"
        )


if __name__ == "__main__":
    main()

"""Drawn conditions and scripts: what is decided without running them is what bash itself decides."""

import shutil
import subprocess

import pytest

from launcher.importing.evaluate import run_script
from launcher.importing.shell.placeholders import is_open, shown
from launcher.importing.shell.state import State
from tests.importing.drawn_bash import SETTINGS, Draw
from tests.importing.test_same_as_bash import by_bash
from tests.sampling import fuzz_seed, trials
from tests.waiting import STUCK_SECONDS

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
# bash reads one condition a line, and evaluates each in a shell of its own: an error of one ends no other.
_EACH = 'while IFS= read -r each; do ( eval "if $each; then echo 1; else echo 0; fi" 2>&1 | tail -1 ); done'


def _commands(script: str) -> list[tuple[str, ...]] | None:
    """Return the words of a script's commands; None where some are left open."""
    state = State(script="x.sh")
    run_script(script, state, None)
    assert state.problems == [], script
    said = any("cannot be" in str(warning) and "absent" not in str(warning) for warning in state.warnings)
    words = [command.words for command in state.commands]
    return None if said or any(is_open(word) for each in words for word in each) else words


def test_conditions_are_decided_as_bash_does() -> None:
    draw = Draw(fuzz_seed())
    conditions = list(dict.fromkeys(draw.condition() for _ in range(trials(1600))))
    ran = subprocess.run(
        ["bash", "-c", SETTINGS + _EACH],
        input="\n".join(conditions) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=STUCK_SECONDS,
    )
    verdicts = ran.stdout.splitlines()
    assert len(verdicts) == len(conditions)
    found = {each: _commands(f"{SETTINGS}if {each}; then R=1; else R=0; fi\nrun $R") for each in conditions}
    wrong = {
        each: (verdict, words)
        for (each, words), verdict in zip(found.items(), verdicts, strict=True)
        if words is not None and verdict in ("0", "1") and words != [("run", verdict)]
    }
    assert wrong == {}
    assert sum(words is not None for words in found.values()) > 0.7 * len(found)


def test_words_of_drawn_scripts_are_those_of_bash() -> None:
    draw, wrong, decided = Draw(fuzz_seed()), {}, 0
    for _ in range(trials(240)):
        script = draw.script()
        words = _commands(script)
        if words is None:
            continue
        decided += 1
        found = ["|".join(map(shown, each)) for each in words]
        if found != (theirs := by_bash(script)):
            wrong[script] = (found, theirs)
    assert wrong == {}
    assert decided > 0.7 * trials(240)

"""Completion in the real shells, typed into a terminal: what TAB makes of a line."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pytest

SHELLS = ("bash", "zsh", "fish")
# A name that is a command wherever a shell does not quote it.
COMMAND_NAME = "cmd$(touch ran)`touch ran`;touch ran&'\"!x.yaml"
# Writes the line that is being edited to a file, and clears it.
KEY = "\x18\x02"
START = {
    "bash": r"""bind -x '"\C-x\C-b": printf %s "$READLINE_LINE" > "$LINE"; READLINE_LINE='
bind 'set bell-style none'
bind 'set show-all-if-ambiguous on'
bind 'set completion-query-items 0'
bind 'set page-completions off'
bind 'set enable-bracketed-paste off'
eval "$(launch completion bash)"
PS1='ready> '
""",
    "zsh": r"""autoload -U compinit; compinit -u -D
save-line() { print -rn -- "$BUFFER" > "$LINE"; BUFFER= }
zle -N save-line; bindkey '^X^B' save-line
setopt no_beep; LISTMAX=10000
eval "$(launch completion zsh)"
PS1='ready> '
""",
    "fish": r"""launch completion fish | source
function fish_greeting; end
function fish_prompt; printf 'ready> '; end
function save_line; commandline > $LINE; commandline ''; end
bind \cx\cb save_line
""",
}
COMMAND = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}


@dataclass
class Terminal:
    """A shell in a terminal."""

    shell: str
    process: "pexpect.spawn[str]"
    line: Path
    folder: Path

    def typed(self, text: str, tabs: int = 1) -> str:
        """Return the line that TAB makes of a text."""
        self.line.unlink(missing_ok=True)
        self.process.send(text)
        time.sleep(0.2)
        for _ in range(tabs):
            self.process.send("\t")
            time.sleep(0.3)
        self.process.send(KEY)
        deadline = time.monotonic() + 60
        while not (self.line.exists() and (self.line.read_text() or not text)):
            assert time.monotonic() < deadline, f"{self.shell} does not answer: {self.process.before}"
            time.sleep(0.1)
        time.sleep(0.1)
        return self.line.read_text().rstrip("\n")


@pytest.fixture(scope="module", params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (apt-get install {shell})")
    folder = tmp_path_factory.mktemp(shell)
    (folder / "home" / "my models").mkdir(parents=True)
    (folder / "data(1) [x]").mkdir()
    (folder / "own recipe.yaml").write_text("batch: {seq_length: 8}\n")
    (folder / "state" / "runs").mkdir(parents=True)
    (folder / COMMAND_NAME).write_text("batch: {seq_length: 8}\n")
    (folder / "state" / "runs" / COMMAND_NAME.replace(".yaml", ".json")).write_text("{}")
    for name in ("qwen3_8b-1", "tiny_moe-12"):
        (folder / "state" / "runs" / f"{name}.json").write_text("{}")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTEST"))},
        "HOME": str(folder / "home"),
        "LAUNCH_HOME": str(folder / "state"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "LINE": str(folder / "line"),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }
    process = pexpect.spawn(
        COMMAND[shell][0],
        COMMAND[shell][1:],
        env=environment,
        cwd=str(folder),
        encoding="utf-8",
        timeout=120,
        dimensions=(50, 200),
    )
    start = folder / "start"
    start.write_text(START[shell])
    process.sendline(f". {start}" if shell != "fish" else f"source {start}")
    process.expect("ready> ")
    if shell != "fish":
        process.sendline("echo be''gun")
    else:
        process.sendline("echo be''gun")
    process.expect("begun")
    yield Terminal(shell=shell, process=process, line=folder / "line", folder=folder)
    process.close(force=True)


CASES = {
    "a verb": ("launch dry-r", "launch dry-run "),
    "an option": ("launch dry-run --config-d", "launch dry-run --config-dir "),
    "a choice of an option": ("launch dry-run --format she", "launch dry-run --format shell "),
    "a group and its fields": ("launch dry-run hardw", "launch dry-run hardware"),
    "a strategy": ("launch dry-run +strat", "launch dry-run +strategy="),
    "hardware": ("launch dry-run hardware=h100", "launch dry-run hardware=h100_80g "),
    "a group that is added": ("launch dry-run +recip", "launch dry-run +recipe="),
    "a recipe": ("launch dry-run +recipe=qwen3_8b_gk", "launch dry-run +recipe=qwen3_8b_gkd "),
    "a recipe without a verb": ("launch +recipe=qwen3_8b_gk", "launch +recipe=qwen3_8b_gkd "),
    "a backend": ("launch check backend=mindf", "launch check backend=mindformers "),
    "a section": ("launch check paral", "launch check parallel."),
    "a field": ("launch check parallel.sequence_par", "launch check parallel.sequence_parallel="),
    "a truth value": ("launch check parallel.sequence_parallel=t", "launch check parallel.sequence_parallel=true "),
    "a choice": ("launch check parallel.cp_algorithm=uly", "launch check parallel.cp_algorithm=ulysses "),
    "a field after ++": ("launch check ++parallel.sequence_par", "launch check ++parallel.sequence_parallel="),
    "a field after +": ("launch check +parallel.sequence_par", "launch check +parallel.sequence_parallel="),
    "a version": ("launch args megatron --backend-version 3.12", "launch args megatron --backend-version 3.12.6 "),
    "a native argument": (
        "launch check backend=megatron backend.args.advantage_est",
        "launch check backend=megatron backend.args.advantage_estimator=",
    ),
    "a choice of a native argument": (
        "launch check backend=megatron backend.args.advantage_estimator=rl",
        "launch check backend=megatron backend.args.advantage_estimator=rloo ",
    ),
    "a run": ("launch logs tin", "launch logs tiny_moe-12 "),
    "a list": ("launch list hardw", "launch list hardware "),
    "after another command": ("true && launch list hardw", "true && launch list hardware "),
}


@pytest.mark.slow
@pytest.mark.sample(keep=12)
@pytest.mark.parametrize("case", CASES)
def test_tab_completes(terminal: Terminal, case: str) -> None:
    text, expected = CASES[case]
    found = terminal.typed(text)
    # A shell may leave the blank after a whole word to the next key.
    assert found.rstrip() == expected.rstrip()
    if expected.endswith(("=", ".")):
        assert found == expected, "no blank may stand after a key"


# In a terminal each shell quotes in its own way; all of them must be the same words.
QUOTED = {
    "a blank in a path": ("launch check model.path=~/my", ["model.path=~/my models/"]),
    "a word in double quotes": ('launch check "model.path=./data', ["model.path=./data(1) [x]/"]),
    "a word in single quotes": ("launch check 'model.path=./data", ["model.path=./data(1) [x]/"]),
    "brackets": ("launch check model.path=./data", ["model.path=./data(1) [x]/"]),
    "a value in a list": ("launch check 'rules.disable=[MOE-TP-S", ["rules.disable=[MOE-TP-SP"]),
    "a job file with a blank": ("launch check +job=own", ["+job=own recipe.yaml"]),
    "a command in a file name": ("launch check cmd", [COMMAND_NAME]),
    "a command in a recipe's name": ("launch check +recipe=cmd", [f"+recipe={COMMAND_NAME}"]),
    "a command in the id of a run": ("launch logs cmd", [COMMAND_NAME[:-5]]),
    "a file of an option": ("launch dry-run --config-dir ./data", ["--config-dir", "./data(1) [x]/"]),
}


@pytest.mark.slow
@pytest.mark.sample(keep=6)
@pytest.mark.parametrize("case", QUOTED)
def test_tab_quotes_what_the_shell_would_split(terminal: Terminal, case: str) -> None:
    text, expected = QUOTED[case]
    found = terminal.typed(text)
    words = said(terminal, found)
    assert not (terminal.folder / "ran").exists()
    assert words[-len(expected) :] == [each.replace("~/", f"{terminal.folder}/home/") for each in expected] or (
        words[-len(expected) :] == expected
    )


def said(terminal: Terminal, line: str) -> list[str]:
    """Return the words that the shell makes of a line; a quote that is still open is closed."""
    rest = line.partition("launch ")[2].rstrip()
    options = {"fish": ["--no-config"], "zsh": ["-f"], "bash": ["--norc"]}[terminal.shell]
    for end in ("", '"', "'"):
        done = subprocess.run(
            [terminal.shell, *options, "-c", f"printf '%s\\n' {rest}{end}"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(terminal.folder / "home")},
            cwd=terminal.folder,
        )
        if done.returncode == 0 and done.stdout:
            return done.stdout.splitlines()
    raise AssertionError(f"{terminal.shell} cannot read {rest!r}: {done.stderr}")


@pytest.mark.slow
def test_several_candidates_are_listed_with_their_meaning(terminal: Terminal) -> None:
    terminal.process.send("launch check parallel.tp_2d\t")
    time.sleep(0.3)
    if terminal.shell == "bash":
        terminal.process.expect("parallel.tp_2d_y=")  # bash shows no descriptions
    else:
        terminal.process.send("\t")
        terminal.process.expect("first dimension")
    terminal.process.send(KEY)
    time.sleep(0.5)

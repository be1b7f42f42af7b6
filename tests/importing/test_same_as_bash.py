"""Idioms of scripts, one by one: the words that a program gets are those that bash itself gives it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.importing.evaluate import run_script
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State
from launcher.importing.shell.xargs import command_lines
from tests.waiting import STUCK_SECONDS

IDIOMS = Path(__file__).with_name("idioms.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n%%\n")
# `run` prints its words, whatever becomes of the output around it.
_RUN = 'run() { printf run; printf "|%s" "$@"; printf "\\036"; } >&9\nexec 9>&1 >/dev/null\n'
_ENOUGH = 250


def by_bash(script: str) -> list[str]:
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", _RUN + script], capture_output=True, text=True, env=env, timeout=STUCK_SECONDS, check=False
    )
    return done.stdout.split("\036")[:-1]


def by_import(script: str) -> list[str]:
    state = State(script="x.sh")
    run_script(script, state, None)
    assert state.problems == [], script
    return [
        "|".join(shown(arg) for arg in (*command.words, *[""][: len(command.words) == 1])) for command in state.commands
    ]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("part", range(10))
def test_words_are_those_of_bash(part: int) -> None:
    scripts = IDIOMS[part::10]
    assert len(scripts) * 10 > _ENOUGH
    wrong = {script: (by_import(script), by_bash(script)) for script in scripts if by_import(script) != by_bash(script)}
    assert wrong == {}


# Twenty functions that all call each other.
_CALLING = "".join(f"f{at}() {{ {'; '.join(f'f{other}' for other in range(20))}; A{at}=1; }}\n" for at in range(20))

# What bash does with these depends on the machine: they are left open, and said so; name: (script, words)
OPEN = {
    "an item of a variable that is read from a file": ("while read -r l; do A=$l; done < hosts; run $A", ["run|$A"]),
    "what a program of the machine prints": ("X=$(which p || echo p); run $X", ["run|$(which p || echo p)"]),
    "a branch that the machine chooses": (
        "V=$(case $(uname -m) in a) echo 3;; *) echo 4;; esac); run $V",
        ["run|$(case $(uname -m) in a) echo 3;; *) echo 4;; esac)"],
    ),
    "a function that runs a program": ("f() { nproc; echo 1; }; run $(f)", ["run|$(f)"]),
    "a list of unknown length": ("mapfile -t A < hosts; B=($(ls)); run ${#A[@]} ${#B[@]}", ["run|${#A[@]}|${#B[@]}"]),
    "a transformed value": ("X=a; run ${X@Q}", ["run|${X@Q}"]),
    "a number of a variable that is not set": ("declare -i A=N*2; run $A $((N*2))", ["run|$((N*2))|$((N*2))"]),
    "what a loop over unknown items sets": (
        "A=1; B=1; N=1; L=(x)\ng() { A=2; }\n"
        "for i in $Q; do\ng; read -r B <<< x; ((N++)); mapfile -t L <<< y\ndone\nrun $A $B $N $L",
        ["run|$A|$B|$N|$L"],
    ),
    "what functions that call each other set": (f"{_CALLING}for i in $Q; do\nf0\ndone\nrun $A3", ["run|$A3"]),
    "an element at an unknown index": ("A=(1); A[N+1]=x; run ${A[@]}", ["run|${A[@]}"]),
    "what a function sets by reference in a loop over unknown items": (
        'L=(1); add() { local -n R=$1; R+=("$2"); }\nfor i in $Q; do add L $i; done\nrun ${L[@]}',
        ["run|$L"],
    ),
    "a home": ("run ~/x", ["run|${HOME}/x"]),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_the_machine_decides_stays_open(name: str) -> None:
    script, args = OPEN[name]
    assert by_import(script) == args


def test_how_many_loops_a_variable_means_is_asked_for() -> None:
    state = State(script="x.sh")
    run_script("for i in 1; do\n  break $N\ndone\nrun", state, None)
    assert state.problems[0].message == "break $N: the number of loops is unknown"
    assert state.problems[0].where == "x.sh:2"


def test_a_script_that_is_sourced_if_it_is_there_is_not_left_out_silently(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("N=8\n")
    state = State(script="x.sh")
    run_script("[ -f env.sh ] && source env.sh\n[ -f none.sh ] && source none.sh\nrun", state, tmp_path)
    assert [(note.where, note.message.partition(" ")[0]) for note in state.warnings] == [("x.sh:1", "`[")]


def test_a_reference_to_a_variable_that_is_not_known_is_refused() -> None:
    state = State(script="x.sh")
    run_script("f() { local -n R=$(date); R+=(a); }\nf\nrun", state, None)
    assert str(state.problems[0].message) == "R=$(date) refers to a variable whose name is not known: $(date)"
    assert state.problems[0].where == "x.sh:1"


# name: (script, words, what a warning says)
GUARDED = {
    "an else that ends the script for want of a value": (
        "if [[ $HOSTNAME =~ ^a ]]; then N=1; elif [[ $HOSTNAME =~ ^b ]]; then N=2; else exit 1; fi\nrun",
        "HOSTNAME must be set",
    ),
    "a case that knows no empty argument": ('M=$1\ncase "$M" in 7b) L=1 ;; *) exit 1 ;; esac\nrun', "$1 must be set"),
    "a variable that holds an argument": ('M=$1\nif [ "$M" = 7b ]; then L=1; else exit 1; fi\nrun', "$1 must be set"),
    "a default of nothing, as set -u wants": ('if [[ -z "${DATA:-}" ]]; then exit 1; fi\nrun', "$DATA must be set"),
    "a default that ends the script": ('[ "${DATA:-none}" = none ] && exit 1\nrun', "$DATA must be set"),
    "whether it is set at all": ("[[ -n ${DATA+x} ]] || exit 1\nrun", "$DATA must be set"),
    "an argument without a value": ('[ -z "${1:-}" ] && exit 1\nrun', "$1 must be set"),
    "the program test": ('if test -z "$DATA"; then exit 1; fi\nrun', "$DATA must be set"),
    "one of several": ('if [[ -z "${A:-}" && -z "${B:-}" ]]; then exit 1; fi\nrun', "$A or $B must be set"),
    "all of several": ('if [ -z "${A:-}" -o -z "$B" ]; then exit 1; fi\nrun', "$A and $B must be set"),
    "a message that names a file of Python": (
        'if [ -z "$KEY" ]; then echo "map KEY in train.py"; exit 1; fi\nrun',
        "$KEY must be set",
    ),
    "a message on standard error that names a program": (
        'if [ -z "$KEY" ]; then\n  echo "map KEY: torchrun train.py" >&2\n  exit 1\nfi\nrun',
        "$KEY must be set",
    ),
    "a file without which the script ends": ("if [ -f x ]; then A=1; else exit 1; fi\nrun", "taken as true"),
}


_ABSENT = "since files are taken as absent"
# name: (script, words, what the warning says); bash gives these words where the files are absent (see idioms.txt)
ABSENT = {
    "and": (
        "X=1; [ -d /x ] && X=2; run $X",
        "1",
        f"`[ -d /x ]` cannot be decided without running it: taken as false, {_ABSENT}",
    ),
    "or": (
        "[ -d /x ] || X=2; run $X",
        "2",
        f"`[ -d /x ]` cannot be decided without running it: taken as false, {_ABSENT}",
    ),
    "negated": ("if [ ! -f /x ]; then X=2; else X=1; fi; run $X", "2", f"taken as true, {_ABSENT}"),
    "in $( )": ("run $([ -d /x ] && echo 1 || echo 2)", "2", f"taken as false, {_ABSENT}"),
    "in a function in $( )": (
        "f() { if [ -d /x ]; then echo a; else echo b; fi; }; run $(f)",
        "b",
        f"taken as false, {_ABSENT}",
    ),
    "an item that is passed over": (
        "X=1; for d in /x; do [ -d $d ] || continue; X=2; done; run $X",
        "1",
        f"taken as false, {_ABSENT}",
    ),
    "a function that fails": (
        "f() { [ -d /x ] || { X=3; exit 1; }; X=2; }; f; run $X",
        "2",
        "taken as true, since the script would end otherwise",
    ),
    "a loop that waits": (
        "X=1; while [ ! -f /x ]; do X=2; sleep 1; done; run $X",
        "1",
        "taken as false, since the loop would not end otherwise",
    ),
}


@pytest.mark.parametrize("name", ABSENT)
def test_files_are_absent_and_a_warning_says_so(name: str) -> None:
    script, word, reported = ABSENT[name]
    state = State(script="x.sh")
    run_script(script, state, None)
    assert [list(command.words) for command in state.commands] == [["run", word]]
    assert [note.where for note in state.warnings] == ["x.sh:1"]
    assert reported in state.warnings[0].message


@pytest.mark.parametrize("name", GUARDED)
def test_guards_are_passed_with_a_warning(name: str) -> None:
    script, reported = GUARDED[name]
    state = State(script="x.sh")
    run_script(script, state, None)
    assert [list(command.words) for command in state.commands] == [["run"]]
    assert reported in "\n".join(str(note) for note in state.warnings)


def test_a_guard_of_a_known_value_ends_the_script() -> None:
    state = State(script="x.sh")
    run_script('M=9b\ncase "$M" in 7b) L=1 ;; *) exit 1 ;; esac\nrun', state, None)
    assert state.commands == []


GIVEN = "a 'b c'\nd \"e\"\n f g\n"
XARGS = ("echo", "echo x", "-n 2 echo x", "-n1 echo", "-I {} echo x {} y", "-L 1 echo x", "-d \\n echo", "-r echo")


@pytest.mark.skipif(shutil.which("xargs") is None, reason="needs xargs")
@pytest.mark.parametrize("options", XARGS)
def test_xargs_starts_what_it_starts_on_a_machine(options: str) -> None:
    words = ["xargs", *options.split()]
    started = [" ".join(line[line.index("echo") + 1 :]) for line in command_lines(words, GIVEN) or ()]
    real = subprocess.run(words, input=GIVEN, capture_output=True, text=True, timeout=STUCK_SECONDS, check=True)
    assert started == real.stdout.removesuffix("\n").split("\n")


def test_what_xargs_adds_is_a_part_of_the_command() -> None:
    assert by_import("A=(--lr '1 2'); printf '%s\\n' \"${A[@]}\" | xargs run x") == ["run|x|--lr|1|2"]


def test_words_that_xargs_adds_and_nobody_knows_are_refused() -> None:
    state = State(script="x.sh")
    run_script("cat args.txt | xargs torchrun pretrain_gpt.py --lr 1", state, None)
    assert [(note.where, note.message) for note in state.problems] == [
        ("x.sh:1", "the words that xargs adds are not known without running it")
    ]


def test_a_script_that_a_shell_reads_from_a_pipe_is_followed() -> None:
    assert by_import('A=1; echo "run $A" | bash; cat <<E | grep -v x | sh\nrun $A 2\nrun x\nE') == ["run|1", "run|1|2"]


def test_what_a_condition_takes_as_empty_has_its_line() -> None:
    state = State(script="x.sh")
    run_script('\n\nif [ "$A" = 1 ]; then B=1; fi\n[ -d "$HOME/x" ] || C=1\nrun', state, None)
    assert state.assumed == {"A": "x.sh:3"}


LOOPS = {
    "prepared before": "for f in $(ls /data); do python prepare.py $f; done\ntorchrun pretrain_gpt.py --lr 1",
    "converted after": "torchrun pretrain_gpt.py --lr 1\nwhile read d; do python convert.py $d; done < <(find out)",
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_unknown_items_beside_the_training_is_no_reason_to_refuse_it(name: str) -> None:
    state = State(script="x.sh")
    run_script(LOOPS[name], state, None)
    assert state.problems == []
    assert ["torchrun", "pretrain_gpt.py", "--lr", "1"] in [list(each.words) for each in state.commands]
    assert [note.message.partition(":")[0] for note in state.warnings] == ["this loop is read once"]


def test_a_loop_over_unknown_items_that_trains_is_refused() -> None:
    state = State(script="x.sh")
    run_script("for n in $(cat hosts); do torchrun pretrain_gpt.py --seed $n; done", state, None)
    assert [note.where for note in state.problems] == ["x.sh:1"]

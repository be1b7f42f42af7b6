"""Bash features one by one: a small script, and the words that its training command gets, written by hand."""

from pathlib import Path

import pytest

from launcher.importing.evaluate import notes, run_script
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State

# name: (script, words of every command it starts)
ARGS = {
    "plain": ("run a b", ["run a b"]),
    "single quotes": ("run 'a  b' '$X' 'c\\d'", ["run|a  b|$X|c\\d"]),
    "double quotes": ('X=1; run "a  $X" "\\$X" "\\"q\\""', ['run|a  1|$X|"q"']),
    "ansi quotes": ("run $'a\\tb\\x41'", ["run|a\tbA"]),
    "glued quotes": ("X=v; run a'b'\"c\"$X", ["run abcv"]),
    "empty word kept": ("run '' \"\"", ["run||"]),
    "empty expansion vanishes": ("X=; run a $X b", ["run a b"]),
    "escaped blank": ("run a\\ b", ["run|a b"]),
    "word splitting": ('X="a  b"; run $X "$X"', ["run|a|b|a  b"]),
    "argument string": ('A="\n  --lr 1 \\\n  --tp 2\n"\nrun $A', ["run --lr 1 --tp 2"]),
    "string of strings": ('A="--x 1"; B="--y 2"; C="$A $B"; run $C', ["run --x 1 --y 2"]),
    "append to string": ('A="--x 1"; A+=" --y 2"; run $A', ["run --x 1 --y 2"]),
    "continuations": ("run \\\n  a \\\n  b", ["run a b"]),
    "continuation into nothing": ("run a \\\n\nnext b", ["run a", "next b"]),
    "continuation at the end": ("run a \\", ["run a"]),
    "continuation before comment": ("run a \\\n# rest\nnext", ["run a", "next"]),
    "comments": ("# head\nrun a # tail\n# run b", ["run a"]),
    "array": ('A=(--x 1 "b c")\nrun "${A[@]}"', ["run|--x|1|b c"]),
    "array without quotes": ('A=(--x "b c")\nrun ${A[@]}', ["run|--x|b|c"]),
    "array with comments": ("A=(\n --x 1 # one\n # --y 2\n --z\n)\nrun ${A[@]}", ["run --x 1 --z"]),
    "array append": ("A=(1); A+=(2 3); run ${A[*]}", ["run 1 2 3"]),
    "array of arrays": ('A=(1 2); B=("${A[@]}" 3); run "${B[@]}"', ["run 1 2 3"]),
    "empty array vanishes": ('A=(); run a "${A[@]}" b', ["run a b"]),
    "array joined": ('A=(1 2); run "${A[*]}"', ["run|1 2"]),
    "array item and length": ("A=(x y z); run ${A[1]} ${#A[@]} ${A[-1]}", ["run y 3 z"]),
    "array slice": ('A=(a b c d); run "${A[@]:1:2}"', ["run b c"]),
    "array item assigned": ("A=(x); A[2]=z; run ${A[2]}", ["run z"]),
    "associative array": ("declare -A M=([a]=1 [b]=2); k=b; run ${M[$k]} ${M[a]}", ["run 2 1"]),
    "prefix and array": ('A=(1 2); run "x${A[@]}y"', ["run x1 2y"]),
    "default": ("run ${X:-d} ${X-d} ${Y:-a b}", ["run d d a b"]),
    "default of empty": ("X=; run ${X:-d} a${X-d}", ["run d a"]),
    "nested default": ("B=2; run ${X:-${B}} ${X:-${Y:-3}}", ["run 2 3"]),
    "default assigned": ("run ${X:=4}; run $X", ["run 4", "run 4"]),
    "alternate": ("X=1; run a${X:+set} b${Y:+set}", ["run aset b"]),
    "length": ("X=abc; run ${#X}", ["run 3"]),
    "prefix removed": (
        "X=a/b/c.tar.gz; run ${X##*/} ${X#*/} ${X%.*} ${X%%.*}",
        ["run c.tar.gz b/c.tar.gz a/b/c.tar a/b/c"],
    ),
    "replacement": ("X=a-b-c; run ${X/-/_} ${X//-/_} ${X//-}", ["run a_b-c a_b_c abc"]),
    "escaped sign replaced": (r"X=a/b*c; run ${X//\//_} ${X/\*/+} ${X%\*c}", ["run a_b*c a/b+c a/b"]),
    "slash taken away": (r'X=a/b/c; run "${X//\/}" ${X/\/b\//-}', ["run abc a-c"]),
    "slash replaced by something else": (r"X=a/b; N=_; run ${X//\//$N}", ["run a_b"]),
    "substring": ("X=abcdef; run ${X:1:3} ${X:2} ${X: -2}", ["run bcd cdef ef"]),
    "case": ("X=Ab; run ${X^^} ${X,,} ${X,}", ["run AB ab ab"]),
    "indirection": ("N=X; X=7; run ${!N}", ["run 7"]),
    "arithmetic": (
        "A=8; B=2; run $((A*B)) $(( ($A+B) / 3 )) $((2**10)) $((A>B?1:0)) $((7%4)) $((-7/2))",
        ["run 16 3 1024 1 3 -3"],
    ),
    "arithmetic assigns": ("((i=3)); ((i++)); let j=i*2; run $i $j", ["run 4 8"]),
    "old arithmetic": ("run $[2+3] `expr 4 + 5`", ["run 5 9"]),
    "world size": ("GPUS=8\nNODES=4\nWORLD=$(($GPUS*$NODES))\nrun $WORLD", ["run 32"]),
    "dirname": ('DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nrun $DIR/x', ["run scripts/x"]),
    "echo and basename": ("X=$(echo a-b); run $X $(basename /p/q.sh .sh) `echo z`", ["run a-b q z"]),
    "seq and bc": ('run $(seq 1 3) $(echo "2*3" | bc) $(echo "scale=2; 1/4" | bc)', ["run 1 2 3 6 0.25"]),
    "braces": ("run {1..4} x{a,b}", ["run 1 2 3 4 xa xb"]),
    "assignment before command": ("A=1 B='x y' run $A", ["run $A"]),
    "redirections": ("run a > log 2>&1 < /dev/null", ["run a"]),
    "pipe": ("run a 2>&1 | tee log.txt", ["run a"]),
    "background": ("run a & run b &\nwait", ["run a", "run b"]),
    "a watch in the background": ("w() { while true; do nvidia-smi; sleep 9; done; }\nw &\nrun a", ["run a"]),
    "a watch without a name": ("while :; do date; sleep 9; done > log &\nrun a", ["run a"]),
    "a watch that calls another": ("w() { while true; do v; done; }; v() { date; }; ( w ) & run a", ["run a"]),
    "and or": ("true && run a; false || run b; false && run c; true || run d", ["run a", "run b"]),
    "negation": ("if ! false; then run a; fi", ["run a"]),
    "if of unset": ('if [ -z "$MODE" ]; then MODE=x; fi; run $MODE', ["run x"]),
    "if elif else": ("T=b; if [ $T = a ]; then run 1; elif [[ $T == b ]]; then run 2; else run 3; fi", ["run 2"]),
    "numbers compared": ("N=4; if [ $N -gt 2 ] && (( N < 8 )); then run big; fi", ["run big"]),
    "patterns compared": ("M=qwen3_8b; [[ $M == qwen* ]] && run q; [[ $M =~ ^llama ]] || run n", ["run q", "run n"]),
    "files are not looked at": ("if [ -f /etc/passwd ]; then run a; else run b; fi", ["run b"]),
    "case statement": ("S=8b; case $S in 4b|8b) run small;; *) run big;; esac", ["run small"]),
    "case default": ("S=70b; case $S in 4b) run small;; *) run big;; esac", ["run big"]),
    "for": ("for x in 1 2; do run $x; done", ["run 1", "run 2"]),
    "for over array": ('A=(p q); for x in "${A[@]}"; do run $x; done', ["run p", "run q"]),
    "c-style for": ("for ((i=0;i<3;i++)); do run $i; done", ["run 0", "run 1", "run 2"]),
    "while": ("i=0; while [ $i -lt 2 ]; do run $i; i=$((i+1)); done", ["run 0", "run 1"]),
    "until": ("i=0; until (( i == 2 )); do run $i; ((i++)); done", ["run 0", "run 1"]),
    "break and continue": (
        "for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; run $i; done",
        ["run 1", "run 3"],
    ),
    "options of the script": ('while [[ $# -gt 0 ]]; do shift; done; run "$@" a', ["run a"]),
    "function": ("f() { local x=$1; run $x $2; }\nf a b", ["run a b"]),
    "function keyword": ("function g { run $#; }\ng 1 2 3", ["run 3"]),
    "function not called": ("f() { run never; }; run once", ["run once"]),
    "function returns": ("f() { return; run never; }; f; run after", ["run after"]),
    "exit ends": ("run a; exit 0; run b", ["run a"]),
    "subshell": ("X=1; (X=2; run $X); run $X", ["run 2", "run 1"]),
    "eval": ('C="run --x $((1+1))"; eval $C', ["run --x 2"]),
    "eval of quotes": ("C='run \"a b\"'; eval $C", ["run|a b"]),
    "bash -c": ('X=3; srun -N 2 bash -c "run $X"', ["run 3"]),
    "heredoc sourced": ("cat > env.sh <<EOF\nX=5\nEOF\nsource env.sh\nrun $X", ["run 5"]),
    "set arguments": ("set -- a b; run $1 $2 $#", ["run a b 2"]),
    "unset": ("X=1; unset X; run ${X:-gone}", ["run gone"]),
    "readonly and local": ("readonly A=1; run $A", ["run 1"]),
    "open variable": ("run --data $DATA", ["run --data $DATA"]),
    "open inside": ("run ${ROOT}/data", ["run ${ROOT}/data"]),
    "open carried on": ('P=$ROOT/x; Q="$P/y"; run $Q', ["run $ROOT/x/y"]),
    "open output": ("T=$(date +%F); run log-$T", ["run|log-$(date +%F)"]),
    "set in every shell": ("run $HOME/x ${USER}", ["run ${HOME}/x ${USER}"]),
    "blank to fill in": ("run --data <your_path>", ["run --data <your_path>"]),
    "unicode": ("run --system 你好", ["run --system 你好"]),
}


def commands(script: str, **variables: str) -> State:
    """Return the state after a script that lies in `scripts/`."""
    state = State(script="scripts/x.sh", variables=dict(variables), fixed=frozenset(variables))
    run_script(script, state, None)
    return state


@pytest.mark.parametrize("name", ARGS)
def test_words(name: str) -> None:
    script, expected = ARGS[name]
    found = [[shown(arg) for arg in command.words] for command in commands(script).commands]
    assert found == [line.split("|") if "|" in line else line.split(" ") for line in expected]


def test_environment_of_a_command() -> None:
    state = commands("export A=1\nB=2\nC=3 run x\nexport D=$HOME/d\nexport A=4\nrun y")
    assert dict(state.commands[0].env) == {"A": "1", "C": "3"}
    assert {key: shown(value) for key, value in state.commands[1].env.items()} == {"A": "4", "D": "${HOME}/d"}


def test_given_variables_win_over_assignments() -> None:
    state = commands("N=1\nrun $N $M", N="8", M="x")
    assert list(state.commands[0].words) == ["run", "8", "x"]


def test_sourced_files_are_read_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export TP=4\n")
    state = State(script=str(tmp_path / "x.sh"))
    run_script("source ./env.sh\nsource missing.sh\nrun $TP", state, tmp_path)
    assert list(state.commands[0].words) == ["run", "4"]
    assert "missing.sh cannot be read" in str(state.warnings[0])


REFUSED = {
    "unclosed double quote": ('A=1\nB="x\nrun\n', 'x.sh:2: the " quote opened here is never closed'),
    "unclosed single quote": ("run a\nrun 'b\n", "x.sh:2: the ' quote opened here is never closed"),
    "no end of if": ("run\nif true; then\nrun\n", "x.sh:"),
    "text bomb": (
        "A=0123456789012345678901234567890123456789\nfor i in {1..40}; do A=$A$A; done\n",
        "expand to more than",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    script, message = REFUSED[name]
    with pytest.raises(ImportRefused, match=message.replace(".", r"\.")):
        commands(script)


PROBLEMS = {
    "loop over output": ("for f in $(ls); do torchrun $f; done", "x.sh:1: this loop cannot be resolved"),
    "loop without end": ("while true; do i=$((i+1)); done; torchrun x.py", "does not end statically"),
    "condition of a loop": ("echo\nwhile read x; do python $x.py; done < f", "x.sh:2: this loop cannot be resolved"),
    "eval of output": ("run a\neval $(cat cmd)", "x.sh:2: eval of '\\$\\(cat cmd\\)' cannot be resolved"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_cannot_be_resolved_statically(name: str) -> None:
    import re

    script, message = PROBLEMS[name]
    state = commands(script)
    assert any(re.search(message, str(note)) for note in notes(state.problems)), state.problems


def test_a_loop_that_starts_no_training_only_makes_its_variables_open() -> None:
    state = commands("for f in $(ls); do LAST=$f; done; run --x $LAST")
    assert not state.problems
    assert shown(state.commands[0].words[-1]) == "$LAST"


def test_undecided_condition_is_reported() -> None:
    state = commands("if [ -f x ]; then TP=8; fi\nrun $TP")
    assert "taken as false" in str(state.warnings[0])
    assert "x.sh:1" in str(state.warnings[0])


def test_a_blank_stays_one_word_in_the_text_of_another_shell(tmp_path: Path) -> None:
    """Scripts hand such texts on: `CMD="python ${DIR}/pretrain_gpt.py …"; srun sh -c "${CMD}"`."""
    script = tmp_path / "x.sh"
    script.write_text(
        'export DIR=<path to megatron>\nCMD="python -u ${DIR}/pretrain_gpt.py --num-layers 2"\nsrun sh -c "${CMD}"\n'
    )
    imported = read_file(script, ImportOptions())[0]
    assert imported.program == "pretrain_gpt.py"
    assert imported.job.model.num_hidden_layers == 2
    assert imported.job.backend.env["DIR"] == "<path to megatron>"


def test_a_quoted_blank_stays_one_word_there_as_well() -> None:
    state = commands(
        'D="<PATH TO DATA>"\nA="--data 0.2 $D 0.8 $D --save <OUTPUT DIRECTORY> "\nsrun sh -c "run $A --lr 1"'
    )
    blanks = ["<PATH TO DATA>", "0.8", "<PATH TO DATA>", "--save", "<OUTPUT DIRECTORY>"]
    assert [shown(word) for word in state.commands[0].words] == ["run", "--data", "0.2", *blanks, "--lr", "1"]


def test_redirections_in_the_text_of_another_shell_are_no_blanks() -> None:
    state = commands('srun sh -c "run a <in >out b <in c >>out"')
    assert list(state.commands[0].words) == ["run", "a", "b", "c"]

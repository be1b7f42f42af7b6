"""What other projects' launch scripts do that the backends' examples do not: each case is one habit, in a few lines."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.api import Imported, ImportRefused, import_file
from launcher.importing.notes import Note
from launcher.importing.shell.evaluate import run_script
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State
from launcher.importing.versions import elsewhere
from launcher.translate.backend import get_backend

# name: (script, words of every command it starts)
WORDS = {
    "variables alone on continued lines": (
        'A="--x 1"\nB="--y 2"\nALL=" \\\n  go \\\n  $A \\\n  ${B} \\\n  --z \\\n  "\nrun $ALL',
        ["run|go|--x|1|--y|2|--z"],
    ),
    "unknown output alone on a continued line": ('run "a \\\n$(date) \\\nb"', ["run|a $(date) b"]),
    "eval of a command with unknown parts": (
        'c="run --port $(shuf -n1) $NODES"; eval $c',
        ["run|--port|$(shuf -n1)|$NODES"],
    ),
    "eval of what prepares the shell": (
        'eval "$(conda shell.bash hook)"\neval "$(/opt/c/bin/conda hook)"\nrun',
        ["run"],
    ),
    "flags of bash before its text": ("A=1; srun -l bash -x -c 'run '$A", ["run|1"]),
    "a job script on standard input": ("N=2\nsbatch <<EOF\n#SBATCH -N $N\nrun \\$X $N\nEOF", ["run|$X|2"]),
    "a wrapped job": ('sbatch -N 2 --wrap="run a b"', ["run|a|b"]),
    "a guard for a variable": ('if [ -z "$DATA" ]; then echo no; exit 1; fi\nrun $DATA', ["run|$DATA"]),
    "a guard in one line": ("[[ -z ${DATA} ]] && exit 2\nrun", ["run"]),
    "a guard for arguments": ("usage() { echo how; exit 1; }\nif [ $# -lt 2 ]; then usage; fi\nrun $1", ["run|$1"]),
    "an offset with a dollar sign": ("for a in k=vw; do n=1; run ${a:$n+1}; done", ["run|vw"]),
    "a blank of several words": (
        "D=<Specify path and file prefix>_doc\nrun --d $D --t <your path>/t",
        ["run|--d|<Specify path and file prefix>_doc|--t|<your path>/t"],
    ),
}


def state_of(script: str, folder: Path | None = None, variables: Mapping[str, str] | None = None) -> State:
    state = State(script="x.sh", variables=dict(variables or {}), fixed=frozenset(variables or {}))
    return run_script(script, state, folder)


def words_of(state: State) -> list[str]:
    return ["|".join(shown(word) for word in each.words) for each in state.commands]


@pytest.mark.parametrize("name", WORDS)
def test_words(name: str) -> None:
    script, wanted = WORDS[name]
    state = state_of(script)
    assert state.problems == []
    assert words_of(state) == wanted


def test_a_guard_is_told_with_the_variable_to_set() -> None:
    (note,) = state_of('[ -z "$DATA" ] && exit 1\nrun').warnings
    assert "DATA must be set" in note.message
    assert note.works == ("--set DATA=VALUE",)


def test_a_guard_holds_where_the_variable_is_given() -> None:
    assert words_of(state_of('if [ "$MODE" != "sft" ]; then exit 1; fi\nrun', variables={"MODE": "rl"})) == []


def test_positional_arguments_can_be_given() -> None:
    script = 'if [ $# -lt 2 ]; then exit 1; fi\nTP=$1\nshift\nrun $TP "$@"'
    assert words_of(state_of(script, variables={"1": "4", "2": "x"}))[0].startswith("run|4")


def test_a_script_that_another_runs_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text('run --tp ${1:-1} --mbs $MBS --own "$LOCAL"\n')
    outer = "LOCAL=1\nexport MBS=2\nPORT=1 nohup bash ./inner.sh 8 > log 2>&1 &\necho done"
    state = state_of(outer, tmp_path)
    assert words_of(state) == ["run|--tp|8|--mbs|2|--own|$LOCAL"]  # only what is exported crosses over
    assert state.commands[0].env == {"MBS": "2", "PORT": "1"}


TRAINING = "torchrun --nproc_per_node 8 {} --num-layers 4 --hidden-size 64 --lr 1e-4 {}\n"


def imported(tmp_path: Path, text: str, backend: str | None = None) -> Imported:
    path = tmp_path / "x.sh"
    path.write_text(text)
    return import_file(path, backend=backend)


def notes_of(tmp_path: Path, text: str) -> tuple[Note, ...]:
    with pytest.raises(ImportRefused) as refused:
        imported(tmp_path, text)
    return refused.value.notes


def test_an_entry_point_of_another_name_is_read_as_the_backend_that_is_named(tmp_path: Path) -> None:
    text = "\n" + TRAINING.format("../mine/pretrain_mine.py", "")
    (note,) = notes_of(tmp_path, text)
    assert "pretrain_mine.py" in note.message
    assert note.where.endswith(":2")
    assert "--backend megatron_lm" in note.works
    job = imported(tmp_path, text, backend="megatron_lm").job
    assert (job.model.num_hidden_layers, job.cluster.devices_per_node) == (4, 8)


def test_launcher_options_that_nothing_sets_are_passed_over(tmp_path: Path) -> None:
    text = "python -m torch.distributed.launch $DISTRIBUTED pretrain_gpt.py --num-layers 4 --hidden-size 64\n"
    assert imported(tmp_path, text).job.model.hidden_size == 64


def test_a_training_under_coverage_is_found(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 2 -m coverage run --source=x pretrain_gpt.py --num-layers 4\n"
    assert imported(tmp_path, text).job.cluster.devices_per_node == 2


def test_a_script_that_ends_before_its_training_says_where(tmp_path: Path) -> None:
    (note,) = notes_of(tmp_path, "A=1\nif [ $A = 1 ]; then\n  exit 3\nfi\n" + TRAINING.format("pretrain_gpt.py", ""))
    assert "exits at line 3" in note.message


def test_options_of_forks_and_of_other_releases_are_told_apart(tmp_path: Path) -> None:
    text = TRAINING.format("pretrain_gpt.py", "\\\n --deepspeed \\\n --data-impl mmap \\\n --no-such-option 1")
    told = {note.where.rpartition(":")[2]: note.message for note in notes_of(tmp_path, text)}
    assert "argument of Megatron-DeepSpeed" in told["2"]
    assert "until 23.06" in told["3"]
    assert told["4"].startswith("--no-such-option is not an argument of Megatron-LM")


def test_a_renamed_option_of_an_old_release_is_carried_over() -> None:
    backend = get_backend("megatron_lm")
    known = elsewhere("layernorm-epsilon", backend, "0.16.1")
    assert (known.name, "until 23.06" in known.message) == ("norm-epsilon", True)
    assert elsewhere("override-lr-scheduler", backend, "0.16.1").name == "override-opt_param-scheduler"


def test_an_old_parser_alone_does_not_make_a_script_one_for_ascend(tmp_path: Path) -> None:
    """Options that older Megatron had, and a fork brought back, say nothing of the devices."""
    text = "export NCCL_DEBUG=INFO\n" + TRAINING.format("pretrain_gpt.py", "--embed-layernorm --deepspeed --bf16")
    assert all("MindSpeed" not in note.message.split(":")[0] for note in notes_of(tmp_path, text))

"""Arguments that a script reads from itself (here-documents, files that it writes), and those that nobody can read."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.importing.evaluate import run_script
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State
from tests.waiting import STUCK_SECONDS

CASES = Path(__file__).with_name("read_back.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n%%\n")
_RUN = 'run() { printf run; printf "|%s" "$@"; printf "\\036"; } >&9\nexec 9>&1 >/dev/null\n'
_SHAPE = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --lr 1e-4"


def words_of(script: str) -> list[str]:
    state = State(script="x.sh")
    run_script(script, state, None)
    assert state.problems == [], script
    return ["|".join(shown(arg) for arg in command.words) for command in state.commands]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("script", CASES)
def test_what_a_script_reads_from_itself_is_what_bash_reads(script: str, tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", _RUN + script],
        capture_output=True,
        text=True,
        env=env,
        timeout=STUCK_SECONDS,
        check=False,
        cwd=tmp_path,
    )
    assert words_of(script) == done.stdout.split("\036")[:-1]


def test_a_file_that_something_else_writes_again_is_not_known() -> None:
    script = "echo a > f\npython gen.py > f\nrun $(cat f)"
    assert words_of(script)[-1] == "run|$(cat f)"


def test_known_words_beside_a_variable_that_is_not_set_are_changed_and_kept() -> None:
    assert words_of('X="$U --a"; run ${X//--a/--b}') == ["run|$U|--b"]


def imported(tmp_path: Path, text: str, **wanted: object) -> Imported:
    (tmp_path / "x.sh").write_text(text)
    return read_file(tmp_path / "x.sh", ImportOptions(**wanted))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["$(python gen.py) --bf16", "--bf16 `cat a.txt`", "$(< a.txt)", "--save /x $(gen)"])
def test_output_of_a_command_in_place_of_arguments_is_refused(tmp_path: Path, where: str) -> None:
    script = f"set -x\ntorchrun --nproc_per_node 8 pretrain_gpt.py {_SHAPE} {where}\n"
    with pytest.raises(ImportRefused) as refused:
        imported(tmp_path, script)
    note = refused.value.notes[0]
    assert "may be any number of arguments, unknown without running it" in note.message
    assert note.where.endswith("x.sh:2")
    assert note.works
    assert refused.value.partial
    assert imported(tmp_path, script, partial=True).job.model.num_hidden_layers == 2


def test_output_of_a_command_as_a_value_is_kept(tmp_path: Path) -> None:
    run = f"torchrun --master-addr $(hostname -i) pretrain_gpt.py {_SHAPE} --save $DIR/$(date +%F) --load $(newest)\n"
    job = imported(tmp_path, run).job
    assert (job.checkpoint.save, job.checkpoint.load) == ("$DIR/$(date +%F)", "$(newest)")


def test_a_training_whose_output_goes_to_a_file_is_found(tmp_path: Path) -> None:
    run = f"bash <<EOF > log\ntorchrun pretrain_gpt.py {_SHAPE}\nEOF\n"
    assert imported(tmp_path, run).job.model.num_hidden_layers == 2


def test_places_are_lines_of_the_script(tmp_path: Path) -> None:
    run = f'set -x\nexport WANDB_API_KEY=abcdef1234\n\nsrun bash -c "torchrun pretrain_gpt.py {_SHAPE}"\n'
    found = imported(tmp_path, run)
    assert found.where.endswith("x.sh:4")
    assert [note.where.rpartition(":")[2] for note in found.warnings if "is a secret" in note.message] == ["2"]


def test_a_program_of_another_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused) as refused:
        imported(tmp_path, f"torchrun pretrain_gpt.py {_SHAPE}\n", backend="mindformers")
    note = refused.value.notes[0]
    assert "pretrain_gpt.py is a program of Megatron-LM and MindSpeed-LLM, not of MindFormers" in note.message
    assert {"--backend megatron_lm", "--to mindformers"} <= set(note.works)

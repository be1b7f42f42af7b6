"""What other projects' launch scripts do that the backends' examples do not: each case is one habit, in a few lines."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.api import Imported, ImportRefused, import_file
from launcher.importing.evaluate import run_script
from launcher.importing.notes import Note
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State
from launcher.mapping.backend import get_backend
from launcher.mapping.renames import find_renamed

# name: (script, words of every command it starts)
ARGS = {
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
    "a name ends before the letters that follow": (
        "N=$NHOSTS; D=$ROOT; run x-${N}node ${D}_ckpt $D/x",
        ["run|x-${NHOSTS}node|${ROOT}_ckpt|$ROOT/x"],
    ),
    "a number of which a part is unknown": (
        "N=$NHOSTS; TP=2; G=$((${N} * 8)); run $(($G / ($TP * 4)))",
        ["run|$(($(($NHOSTS * 8)) / (2 * 4)))"],
    ),
    "flags of bash before its text": ("A=1; srun -l bash -x -c 'run '$A", ["run|1"]),
    "a job script on standard input": ("N=2\nsbatch <<EOF\n#SBATCH -N $N\nrun \\$X $N\nEOF", ["run|$X|2"]),
    "a wrapped job": ('sbatch -N 2 --wrap="run a b"', ["run|a|b"]),
    "a guard for a variable": ('if [ -z "$DATA" ]; then echo no; exit 1; fi\nrun $DATA', ["run|$DATA"]),
    "a guard in one line": ("[[ -z ${DATA} ]] && exit 2\nrun", ["run"]),
    "a guard for arguments": ("usage() { echo how; exit 1; }\nif [ $# -lt 2 ]; then usage; fi\nrun $1", ["run|$1"]),
    "an offset with a dollar sign": ("for a in k=vw; do n=1; run ${a:$n+1}; done", ["run|vw"]),
    "a variable without braces within a path": (
        "R=/data\nN=run\nOUT=${R}/$N/ckpt_$1\ngo ${R}/x${N}/$N/t${N} --save $OUT -l${R}_$N/y",
        ["go|/data/xrun/run/trun|--save|/data/run/ckpt_${1}|-l/data_run/y"],
    ),
    "arithmetic in a default": (
        'T=100 B=8\n: "${N:=$(( (${T} + ${B} - 1) / ${B} ))}"\nM=${M:-$((T * 2))}\ngo $N $M ${K:-$((Q / 2))}',
        ["go|13|200|$((Q / 2))"],
    ),
    "an offset that is a variable": ('K=RESUME_LR\nP=RESUME_\nL=${#P}\ngo "${K:$L}" "${K:$L:1}"', ["go|LR|L"]),
    "a default for what an argument left empty": (
        'LR=$2\nVP=${10}\ngo --lr ${LR:-1e-4} ${VP:+--vp "$VP"} ${HOME:-none}',
        ["go|--lr|1e-4|${HOME}"],
    ),
    "options of a script that nobody gives": (
        'while getopts ":dn:" o; do case $o in d) D=1 ;; n) N=$OPTARG ;; esac; done\nshift $((OPTIND - 1))\ngo ${N:-4}',
        ["go|4"],
    ),
    "options of a function": (
        'f() { local OPTIND=1; while getopts "dn:" o; do case $o in d) D=1 ;; n) N=$OPTARG ;; esac; done; go $D $N; }\n'
        "f -dn 3\nf -n5 -d",
        ["go|1|3", "go|1|5"],
    ),
    "a new folder beside those that exist": ("O=/out\nwhile [ -d $O ]; do O=/out_$((i++)); done\ngo $O", ["go|/out"]),
    "a training that is started again for ever": ("while true; do torchrun t.py; sleep 9; done", ["torchrun|t.py"]),
    "a condition on what a variable holds": (
        'A="--x --sim"\nif echo "$A" | grep -q -- "--sim"; then N=1; fi\n'
        "if ! echo $A | grep -qiE '^(x|y)$'; then M=2; fi\ngo $N $M",
        ["go|1|2"],
    ),
    "counted devices": (
        "export CUDA_VISIBLE_DEVICES=0,1,2,3\nN=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)\n"
        "go $N $(echo $CUDA_VISIBLE_DEVICES | awk -F, '{print NF}') $(echo a,b | cut -d, -f2)",
        ["go|4|4|b"],
    ),
    "a command that is tidied before it runs": (
        "C=\"\nA=1\ngo\n  --d   $D/x\n\"\nC=$(echo \"$C\" | tr '\\n' ' ' | sed -e 's/  */ /g')\neval \"$C\"",
        ["go|--d|$D/x"],
    ),
    "parts of a name": (
        "M=Qwen2-7B-chat\ngo $(echo $M | grep -oE '[0-9]+B') $(echo $M | sed 's/-.*//') $(echo $M | tr A-Z a-z)",
        ["go|7B|Qwen2|qwen2-7b-chat"],
    ),
    "an argument that must be given": ('D=$1\ngo "${D:?give a folder}" ${2:?and a name}', ["go|$1|$2"]),
    "an open value before text that is read again": (
        'D=$1\nP="${D}data/$N"\nP=${P}_x\neval "go --d $P"\nbash -c "go ${Q}_2"\nssh h "go $P"',
        ["go|--d|${1}data/${N}_x", "go|${Q}_2", "go|${1}data/${N}_x"],
    ),
    "what was copied from a terminal": (
        "root@4f2a:/workspace# export A=1\n(swift) me@gpu-3:~/x$ go $A\n$ go 2 # done\n",
        ["go|1", "go|2"],
    ),
    "a program in an environment of conda": (
        "conda run -n x --no-capture-output go 1",
        ["conda|run|-n|x|--no-capture-output|go|1"],
    ),
    "a guard for an argument with an empty default": (
        'H="${1:-${H:-}}"\nif [ -z "$H" ]; then echo usage; exit 1; fi\ngo --host $H',
        ["go|--host|$H"],
    ),
    "a blank of several words": (
        "D=<Specify path and file prefix>_doc\nrun --d $D --t <your path>/t",
        ["run|--d|<Specify path and file prefix>_doc|--t|<your path>/t"],
    ),
}


def state_of(script: str, folder: Path | None = None, variables: Mapping[str, str] | None = None) -> State:
    state = State(script="x.sh", variables=dict(variables or {}), fixed=frozenset(variables or {}))
    return run_script(script, state, folder)


def words_of(state: State) -> list[str]:
    return ["|".join(shown(arg) for arg in each.words) for each in state.commands]


@pytest.mark.parametrize("name", ARGS)
def test_words(name: str) -> None:
    script, wanted = ARGS[name]
    state = state_of(script)
    assert state.problems == []
    assert words_of(state) == wanted


def test_a_guard_is_reported_with_the_variable_to_set() -> None:
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


def test_a_script_is_found_from_the_root_of_its_project(tmp_path: Path) -> None:
    for folder in ("scripts/a", "jobs/b"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "scripts/a/run.sh").write_text("go 1\n")
    (tmp_path / "sizes.sh").write_text("LAYERS=4\n")
    assert words_of(state_of("cd /srv/project\nsh scripts/a/run.sh", tmp_path / "jobs/b")) == ["go|1"]
    assert words_of(state_of("source sizes.sh\ngo $LAYERS", tmp_path / "jobs/b")) == ["go|4"]


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


def test_a_script_that_ends_without_its_arguments_names_them(tmp_path: Path) -> None:
    script = 'D=""; for A in $*; do D=${A#*=}; done\nif [[ $D == "" ]]; then\n  exit 1\nfi\n' + TRAINING.format(
        "pretrain_gpt.py", ""
    )
    (note,) = notes_of(tmp_path, script)
    assert "it reads arguments of its own" in note.message
    assert note.works == ("--set 1=ARGUMENT --set 2=ARGUMENT …",)
    path = tmp_path / "x.sh"
    assert import_file(path, variables={"1": "--data=/x"}).program == "pretrain_gpt.py"


DIRECTIVES = {
    "PBS": ("#PBS -l select=4:ngpus=8\n#PBS -q gpu # queue", "PBS (qsub): -l select=4:ngpus=8, -q gpu: dropped"),
    "Grid Engine": ("#$ -l rt_AF=8\n#$ -cwd", "Grid Engine (qsub): -l rt_AF=8, -cwd: dropped"),
    "LSF": ("#BSUB -nnodes 4", "LSF (bsub): -nnodes 4: dropped"),
    "PJM": ('#PJM -L "node=4"', '-L "node=4": dropped'),
}


@pytest.mark.parametrize("case", DIRECTIVES)
def test_directives_of_other_schedulers_are_reported(tmp_path: Path, case: str) -> None:
    header, message = DIRECTIVES[case]
    training = TRAINING.format("pretrain_gpt.py", "")
    found = imported(tmp_path, f"#!/bin/bash\n{header}\n\n{training}#PBS -l select=9\n")
    (note,) = [each for each in found.warnings if "no executor of launch" in each.message]
    assert message in note.message
    assert note.where == f"{tmp_path}/x.sh:2"
    assert not [
        each for each in imported(tmp_path, f"#$ HOME is set\n{training}").warnings if "no executor" in each.message
    ]


PAI = "torchrun --nproc_per_node 8 pretrain_qwen.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --lr 1e-4"


def test_a_script_of_a_fork_is_known_by_its_own_options(tmp_path: Path) -> None:
    """Pai-Megatron-Patch trains by scripts of its own that take Megatron-LM's arguments, and some besides."""
    script = tmp_path / "run.sh"
    script.write_text(f"{PAI} --patch-tokenizer-type Qwen3Tokenizer --train-mode pretrain\n")
    with pytest.raises(ImportRefused) as refused:
        read_file(script, ImportOptions())
    (note,) = refused.value.notes
    assert ["is an argument of Pai-Megatron-Patch" in each for each in note.details] == [True, True]
    found = read_file(script, ImportOptions(partial=True))[0]
    assert (found.backend, found.program, found.job.model.hidden_size) == ("megatron_lm", "pretrain_qwen.py", 64)
    remark = "pretrain_qwen.py of Pai-Megatron-Patch is read as pretrain_gpt.py, which is what the job starts"
    assert remark in [each.message for each in found.warnings]


def test_a_script_that_nothing_is_known_of_needs_a_backend(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{PAI}\n")
    with pytest.raises(ImportRefused, match="not a known entry point"):
        read_file(script, ImportOptions())
    found = read_file(script, ImportOptions(backend="mindspeed"))[0]
    assert "pretrain_qwen.py is read as pretrain_gpt.py, which is what the job starts" in [
        each.message for each in found.warnings
    ]


def test_options_of_forks_and_of_other_releases_are_distinguished(tmp_path: Path) -> None:
    text = TRAINING.format("pretrain_gpt.py", "\\\n --deepspeed \\\n --data-impl lazy \\\n --no-such-option 1")
    (note,) = notes_of(tmp_path, text)
    assert note.message.startswith("3 options are not arguments of Megatron-LM")
    deepspeed, old, unknown = note.details
    assert (deepspeed.startswith("--deepspeed "), "argument of Megatron-DeepSpeed" in deepspeed) == (True, True)
    assert ("sh:3)" in old, "until 23.06" in old) == (True, True)
    assert unknown.startswith("--no-such-option 1 ")
    assert [each.partition(" ")[0] for each in note.works] == ["--source", "--partial:"]


def test_an_option_of_an_optional_package_is_not_newer_than_its_release(tmp_path: Path) -> None:
    # pretrain_gpt.py adds megatron/post_training/arguments.py where nvidia-modelopt is installed.
    (note,) = notes_of(tmp_path, TRAINING.format("pretrain_gpt.py", "--export-force-local-attention"))
    assert "came with core_v0.12.0, in a parser that only some programs add" in note.message
    assert any(each.startswith("--source DIR") for each in note.works)


def test_a_renamed_option_of_an_old_release_is_carried_over() -> None:
    backend = get_backend("megatron_lm")
    known = find_renamed("layernorm-epsilon", backend, "0.16.1")
    assert (known.name, "until 23.06" in known.message) == ("norm-epsilon", True)
    assert find_renamed("override-lr-scheduler", backend, "0.16.1").name == "override-opt_param-scheduler"


def test_an_old_parser_alone_does_not_make_a_script_one_for_ascend(tmp_path: Path) -> None:
    """Options that older Megatron had, and a fork brought back, say nothing of the devices."""
    text = "export NCCL_DEBUG=INFO\n" + TRAINING.format("pretrain_gpt.py", "--embed-layernorm --deepspeed --bf16")
    assert all("MindSpeed" not in note.message.split(":")[0] for note in notes_of(tmp_path, text))


def test_what_both_parsers_have_does_not_make_a_script_one_for_ascend(tmp_path: Path) -> None:
    """MindSpeed-LLM declares some of Megatron's arguments again: they do not identify it."""
    args = "--use-mcore-models --tokenizer-type GPTSentencePieceTokenizer --transformer-impl local --bf16 --no-such 1"
    (note,) = notes_of(tmp_path, TRAINING.format("pretrain_gpt.py", f"{args} --log-batch-size-to-tensorboard"))
    assert note.message.startswith("--no-such is not an argument of Megatron-LM")


def test_an_option_of_an_old_release_that_says_the_default_is_left_out(tmp_path: Path) -> None:
    args = "--data-impl mmap --no-query-key-layer-scaling --log-batch-size-to-tensorboard --DDP-impl local"
    found = imported(tmp_path, TRAINING.format("pretrain_gpt.py", args))
    reported = " ".join(note.message for note in found.warnings)
    assert all(f"{arg} is not an argument" in reported for arg in args.split() if arg.startswith("--"))
    assert reported.count("it is the default") == 4
    assert [each.flag for each in found.mapped_args] == ["num-layers", "hidden-size", "lr"]


def test_another_spelling_of_an_option_is_carried_over(tmp_path: Path) -> None:
    found = imported(tmp_path, TRAINING.format("pretrain_gpt.py", "--micro_batch_size 2 --rampup_batch_size 2 2 8"))
    assert found.job.batch.micro_batch_size == 2
    assert list(found.job.batch.rampup_batch_size or ()) == [2, 2, 8]
    assert "it is written --micro-batch-size" in " ".join(note.message for note in found.warnings)


def test_a_new_name_among_old_options_is_read_as_the_old_one(tmp_path: Path) -> None:
    found = imported(tmp_path, "megatron sft --load m --max_epochs 1 --save s --tuner_type lora --no_initialization\n")
    assert found.version == "3.12.6"
    assert found.job.lora.rank == 8  # what lora has without --lora_rank
    assert "in 3.12.6 it is train_type" in " ".join(note.message for note in found.warnings)


def test_comments_after_continued_lines_are_reported_in_one_line(tmp_path: Path) -> None:
    text = 'ARGS="--num-layers 4 \\ # of the decoder\n --lr 1 \\ # it falls"\ntorchrun pretrain_gpt.py $ARGS\n'
    (note,) = notes_of(tmp_path, text)
    assert "values belong to no argument" in note.message
    assert note.works == ("no blank and no comment after the backslash that continues a line",)


def test_a_blank_after_the_backslash_is_an_argument(tmp_path: Path) -> None:
    """bash passes it on, and argparse refuses it (Charles2530/MindSpeed-LLM, tests/poc)."""
    (note,) = notes_of(tmp_path, "torchrun pretrain_gpt.py --num-layers 4 \\ \n  --lr 1\n")
    assert note.message == "' ' belongs to no argument"
    assert note.works == ("no blank and no comment after the backslash that continues a line",)


def test_line_ends_of_windows_are_reported(tmp_path: Path) -> None:
    """bash starts the program with carriage returns (crackhopper/mindformers-on-modelart)."""
    script = tmp_path / "train.sh"
    script.write_bytes(TRAINING.format("pretrain_gpt.py", "--bf16").replace("\n", "\r\n").encode())
    (found,) = read_file(script, ImportOptions())
    assert found.job.precision.dtype == "bf16"
    (note,) = [each for each in found.warnings if "CRLF" in each.message]
    assert note.works == (f"sed -i 's/\\r$//' {script}",)


# name: (how the script starts, part of the note, what works)
ENCODINGS = {
    "a byte order mark": (b"\xef\xbb\xbf#!/bin/bash\n", "byte order mark", r"sed -i '1s/^\xef\xbb\xbf//' {}"),
    "comments in GBK": (
        "# 张量\nTP=2  # 并行\n".encode("gb18030"),
        "its comments are not UTF-8 text",
        "iconv -f GB18030 -t UTF-8 {} > {}",
    ),
}


@pytest.mark.parametrize("case", ENCODINGS)
def test_what_bash_reads_otherwise_is_reported(tmp_path: Path, case: str) -> None:
    start, message, works = ENCODINGS[case]
    script = tmp_path / "train.sh"
    script.write_bytes(start + TRAINING.format("pretrain_gpt.py", "--bf16").encode())
    (found,) = read_file(script, ImportOptions())
    assert found.job.precision.dtype == "bf16"
    (note,) = [each for each in found.warnings if message in each.message]
    assert note.works[0] == works.format(script, tmp_path / "utf8_train.sh")


def test_an_argument_that_is_not_set_has_one_note(tmp_path: Path) -> None:
    found = imported(tmp_path, TRAINING.format("pretrain_gpt.py", "--bf16 --seed $SEED"))
    (note,) = [each for each in found.warnings if "--seed" in each.message]
    assert note.works == ("--set SEED=VALUE",)


def test_patterns_of_extglob_are_read_in_commands_on_files_and_refused_by_name_elsewhere(tmp_path: Path) -> None:
    text = "shopt -s extglob\nfor f in a/!(b); do\n  {}done\n"
    (note,) = notes_of(tmp_path, text.format(TRAINING.format("pretrain_gpt.py", "--bf16")))
    assert note.message.startswith("a pattern of extglob, !(b), ")
    assert note.where.endswith(":2")
    found = imported(tmp_path, "shopt -s extglob\nrm -rf a/!(b)\n" + TRAINING.format("pretrain_gpt.py", "--bf16"))
    assert found.job.precision.dtype == "bf16"


def test_a_value_on_the_next_line_needs_a_backslash(tmp_path: Path) -> None:
    text = "megatron sft --model m \\\n  --dataset\n  'a.jsonl' \\\n  --save s\n"
    (note,) = notes_of(tmp_path, text)
    assert (note.where.rpartition(":")[2], note.message) == ("2", "--dataset needs a value")
    assert note.works == ("a backslash at the end of the line, before the line with the value",)


def test_a_training_that_is_started_again_for_ever_is_read_with_a_remark(tmp_path: Path) -> None:
    text = f"while true; do\n  {TRAINING.format('pretrain_gpt.py', '--bf16')}  sleep 60\ndone\n"
    found = imported(tmp_path, text)
    assert found.job.model.num_hidden_layers == 4
    assert ["x.sh:1" in note.where for note in found.warnings if "cannot be determined" in note.message] == [True]


SH = {
    "an array": "A=(--seed 1)",
    "[[": "if [[ -n $HOME ]]; then A=1; fi",
    "source": "source /etc/profile",
}


@pytest.mark.parametrize("case", SH)
def test_what_sh_does_not_have_is_reported(tmp_path: Path, case: str) -> None:
    body = f"{SH[case]}\n{TRAINING.format('pretrain_gpt.py', '')}"
    (note,) = [each for each in imported(tmp_path, f"#!/bin/sh\n{body}").warnings if "names sh" in each.message]
    assert note.message.startswith(f"{case} needs bash")
    assert note.where == f"{tmp_path}/x.sh:2"
    for other in ("#!/bin/bash\n", "#!/usr/bin/env bash\n", ""):
        assert not [each for each in imported(tmp_path, other + body).warnings if "names sh" in each.message]

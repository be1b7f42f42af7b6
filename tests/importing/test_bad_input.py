"""`launch import` of what cannot be read: a clear message with its line, exit code 1, a part of it only on request."""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.catalogue.catalogue import Catalogue
from launcher.cli import main
from launcher.cli.dispatch import dispatch
from launcher.importing.config import Configuration
from launcher.importing.invocation import Invocation
from launcher.importing.notes import ImportRefused
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions, read_command
from launcher.importing.read_file import read_file
from launcher.mapping.backend import backend_names, get_backend
from tests import sampling

RUN = "megatron sft --model m --dataset d"
# Each list holds the one before nine times.
BOMB = "".join(
    f"{own}: &{own} [{','.join([inner] * 9)}]\n"
    for inner, own in zip(["x", *(f"*{c}" for c in "abcdefg")], "abcdefgh", strict=True)
)


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A file that cannot be read, and the message to the user.

    Attributes:
        messages: texts that the message contains.
        partial: text of the output with --partial; empty: nothing can be read.
    """

    files: Mapping[str, str | bytes]
    messages: tuple[str, ...]
    partial: str = ""


def bad(text: str | bytes, *messages: str, name: str = "x.sh", partial: str = "", **others: str) -> Bad:
    files = {name: text, **{other.replace("_", "."): content for other, content in others.items()}}
    return Bad(files=files, messages=messages, partial=partial)


CASES = {
    "unclosed double quote": bad(f'export A=1\n\n{RUN} --system "never \\\n --lr 1\n', "x.sh:3", '"', "never closed"),
    "unclosed single quote": bad(f"A='abc\n{RUN}\n", "x.sh:1", "never closed"),
    "unclosed if": bad(f"A=1\nif [ -f x ]; then\n{RUN}\n", "x.sh:2", "never closed by fi"),
    "unclosed loop": bad(f"for i in 1 2; do\n{RUN} --lr $i\n", "x.sh:1"),
    "unclosed here-document": bad(f"cat <<EOF\nhello\n{RUN}\n", "x.sh:1", "never ends"),
    "not bash but zsh": bad("#!/bin/zsh\nfor f (a b) { megatron sft --model $f }\n", "x.sh:2", "not bash"),
    "character that would end the process": bad(f"A=1\necho {{1..\U0010ffff\n{RUN}\n", "x.sh:2", "above U+FFFF"),
    "loop over what only a run can tell": bad(
        f"for i in $(ls conf); do\n{RUN} --lr $i\ndone\n", "x.sh:1", "loop", "$(ls conf)", partial="backend.args.lr"
    ),
    "loop over the lines of a file": bad(
        f"A=1\nwhile read l; do\n{RUN} --lr $l\ndone < f\n", "x.sh:2", "loop", partial="backend.args.lr"
    ),
    "old name that could be short for several": bad(
        f"{RUN} --load x --mcore_model y\n", "keep one", "in 4.6.0 it is mcore_model", partial="data.paths"
    ),
    "loop without an end": bad(f"while true; do :; done\n{RUN}\n", "x.sh:1", "loop does not end"),
    "eval of a command's output": bad("C=$(cat cmd)\neval $C\n", "x.sh:2", "eval"),
    "eval beside a training": bad(
        f"{RUN} --lr 1e-5\nC=$(cat cmd)\neval $C\n", "x.sh:3", "--partial", partial="optimizer.lr"
    ),
    "function that calls itself": bad(f"f() {{ f; }}\nf\n{RUN}\n", "f calls itself"),
    "variables that double": bad("A=x\n" + "A=$A$A\n" * 60 + "megatron sft --model $A --dataset d\n", "MiB of text"),
    "nested beyond reason": bad(f"echo {'$(' * 3000}x{')' * 3000}\n{RUN}\n", "nested too deeply"),
    "unknown flag": bad(
        f"A=1\n{RUN} \\\n --tensor_model_paralel_size 2 --lr 1e-5\n",
        "x.sh:3",
        "is not an argument of Megatron-SWIFT",
        "works: --tensor_model_parallel_size",
        partial="optimizer.lr",
    ),
    "flag of another version": bad(
        f"{RUN} --num_train_epochs 2 --max_epochs 1 --train_type lora --tuner_type lora\n",
        "--max_epochs is not an argument",
        "it is an argument of Megatron-SWIFT 3.12.6",
        "it is num_train_epochs",
        "keep one",
        partial="schedule.epochs",
    ),
    "flag of another backend": bad(
        f"{RUN} --moe-tp-extend-ep\n", "it is an argument of MindSpeed-LLM", partial="data.paths"
    ),
    "wrong type": bad(
        f"{RUN} --lr 1e-5 \\\n --tensor_model_parallel_size two\n",
        "x.sh:2",
        "must be a whole number, got 'two'",
        partial="backend.args.tensor_model_parallel_size",
    ),
    "value missing": bad(f"{RUN} --lr 1e-5 --seed\n", "x.sh:1", "--seed needs a value", partial="optimizer.lr"),
    "not one of the choices": bad(
        f"{RUN} --recompute_granularity fulll\n", "must be one of", "did you mean full?", partial="data.paths"
    ),
    "typographic characters": bad(
        f"{RUN} --lr 1e‑5 —-seed 3 --model “m”\n", "x.sh:1", "must be a number", "‑ is no ASCII", partial="data.paths"
    ),
    "hundreds of unknown flags": bad(
        f"{RUN} {' '.join(f'--bogus{i} 1' for i in range(300))}\n", "--bogus0", "and 280 more", partial="data.paths"
    ),
    "ambiguous backend": bad("--lr 1e-4 --bf16 --train-iters 3\n", "equally well", "--backend mindspeed", name="x.txt"),
    "no command found": bad("echo hi\n", "starts a known training program", "works: megatron sft"),
    "another program of the project": bad("swift sft --model m\n", "x.sh:1", "swift sft", "not on Megatron"),
    "program for another kind of model": bad(
        "torchrun --nproc_per_node 8 pretrain_vlm.py --num-layers 4 --lr 1e-5\n",
        "x.sh:1",
        "pretrain_vlm.py",
        "another kind of model",
    ),
    "unknown sub-command": bad("megatron fly --model m\n", "starts a known training program"),
    "circular source": bad("source b.sh\n", "source each other", b_sh="source x.sh\n"),
    "circular base_config": bad(
        "base_config: y.yaml\ntrainer: {type: a}\n",
        "include each other",
        name="x.yaml",
        y_yaml="base_config: x.yaml\ntrainer: {type: a}\n",
    ),
    "base_config that is no configuration": bad(
        "base_config: y.sh\ntrainer: {type: a}\n", "y.sh", name="x.yaml", y_sh="echo secret\n"
    ),
    "base_config missing": bad("base_config: y.yaml\ntrainer: {type: a}\n", "y.yaml", name="x.yaml"),
    "configuration missing": bad("python run_mindformer.py --config y.yaml\n", "x.sh:1", "y.yaml does not exist"),
    "aliases that explode": bad(
        BOMB, "too many values in a YAML file, aliases written out", "the limit is", name="x.yaml"
    ),
    "alias of what holds it": bad("a: &a [*a]\nmodel: m\n", "aliases", name="x.yaml"),
    "YAML that would run code": bad(
        "model: m\na: !!python/object/apply:os.system ['touch x']\n", "x.yaml:2", "not YAML", name="x.yaml"
    ),
    "YAML with a tab": bad("model: m\n\tlr: 1\n", "x.yaml:2", name="x.yaml"),
    "YAML of two documents": bad("model: m\n---\nmodel: n\n", "x.yaml:2", "another document", name="x.yaml"),
    "YAML list": bad("- model: m\n", "mapping is expected", name="x.yaml"),
    "YAML nested beyond reason": bad(
        f"a: {'[' * 5000}{']' * 5000}\n", "levels of nesting; the limit is", name="x.yaml"
    ),
    "keys of nobody": bad(
        "tensor-model-parallel-size: 2\nfoo: 3\n", "keys match no backend", "--backend", name="x.yaml"
    ),
    "JSON with a trailing comma": bad('{"model": "m",\n "lr": 1,}\n', "x.json:2", "not JSON", name="x.json"),
    "JSON nested beyond reason": bad("[" * 100_000, "levels of nesting; the limit is", name="x.json"),
    "empty": bad("", "is empty"),
    "only a comment": bad("# nothing\n", "no command"),
    "50 MB": bad("# x\n" * 13_000_000, "has 50 MiB", "up to 2 MiB"),
    "binary": bad(bytes(range(256)), "not text but binary"),
    "UTF-16 without its mark": bad(f"{RUN}\n".encode("utf-16-le"), "not text"),
    "not UTF-8": bad(
        'megatron sft --model m \\\n --system "grüß"\n'.encode("latin-1"),
        *("x.sh:2", "not UTF-8", "iconv -f GB18030 -t UTF-8 x.sh > utf8_x.sh", "iconv -f ISO-8859-1"),
    ),
    "not UTF-8 after a # that is text": bad(f'{RUN} --system "a # ü"\n'.encode("latin-1"), "x.sh:1", "not UTF-8"),
    "a README": bad("Run `torchrun pretrain_gpt.py`:\n", "a text with commands in it", name="README.md"),
    "a Dockerfile": bad("FROM x\nCMD torchrun pretrain_gpt.py\n", "a Dockerfile", name="Dockerfile.gpu"),
    "a Python program": bad(
        'import os\nos.system("torchrun pretrain_gpt.py --lr 1")\n',
        *("x.py", "a Python program", "launch import --backend megatron_lm -- ARGUMENTS"),
        name="x.py",
    ),
    "a Python program without its suffix": bad('#!/usr/bin/env python3\n"""Train."""\n', "another language"),
    "PowerShell": bad(f"$A = 1\n{RUN} `\n --lr $A\n", "a PowerShell script; only bash", name="x.ps1"),
    "a batch file": bad(f"{RUN} ^\r\n --lr 1\r\n", "x.bat", "a batch file of Windows", name="x.bat"),
    "fish": bad(f"set LR 1e-4\n{RUN} --lr $LR\n", "a script of another shell", "-- ARGUMENTS", name="x.fish"),
    "csh": bad(f"#!/bin/csh -f\nset LR = 1e-4\n{RUN} --lr $LR\n", "a script of another language"),
    "a notebook": bad('{"cells": []}', "x.ipynb", "a notebook", name="x.ipynb"),
}


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        try:
            code = dispatch(["import", *args])
        except SystemExit as error:
            code = int(str(error.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("case", CASES)
def test_bad_input(run: Callable[..., tuple[int, str, str]], case: str) -> None:
    wanted = CASES[case]
    for name, content in wanted.files.items():
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    name = next(iter(wanted.files))
    code, out, err = run(name)
    assert (code, out) == (1, ""), err
    assert not [text for text in wanted.messages if text not in err], err
    assert len(err.splitlines()) <= 25
    assert max(map(len, err.splitlines())) < 1000
    code, out, err = run(name, "--partial")
    assert code == 1
    assert wanted.partial in out
    assert bool(out) == bool(wanted.partial), out
    assert run(name, "--json")[0] == 1


def test_folders_and_pipes(run: Callable[..., tuple[int, str, str]]) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    for name, messages in (("folder", "is a folder"), ("pipe", "not a file"), ("/dev/zero", "not a file")):
        code, _, err = run(name)
        assert code == 1
        assert messages in err
    assert "works" not in run("folder")[2]
    Path("folder/x.sh").write_text(RUN)
    assert "works: launch check 'folder/**/*.sh'" in run("folder")[2]
    assert dispatch(["check", "folder/**/*.sh"]) == 0


def test_nothing_is_executed(run: Callable[..., tuple[int, str, str]]) -> None:
    Path("x.sh").write_text(
        f"touch a\n$(touch b)\n`touch c`\n{RUN} --save $(touch d)\neval 'touch e'\nsource <(touch f)\n"
    )
    run("x.sh", "--partial")
    assert [path.name for path in Path().iterdir()] == ["x.sh"]


def test_the_input_is_never_overwritten(run: Callable[..., tuple[int, str, str]]) -> None:
    Path("x.sh").write_text(RUN + "\n")
    Path("link.sh").symlink_to("x.sh")
    for output in ("x.sh", "link.sh", "./x.sh"):
        code, _, err = run("x.sh", "-o", output)
        assert code == 2
        assert "would be overwritten" in err
    assert Path("x.sh").read_text() == RUN + "\n"


def test_a_file_that_is_not_there(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("absent.sh")
    assert (code, out) == (2, "")
    assert "there is no file absent.sh" in err


@pytest.mark.parametrize(
    ("output", "messages"), [("no/such/folder/x.yaml", "there is no folder no/such/folder"), (".", "is a folder")]
)
def test_output_that_cannot_be_written(run: Callable[..., tuple[int, str, str]], output: str, messages: str) -> None:
    Path("x.sh").write_text(RUN + "\n")
    code, _, err = run("x.sh", "-o", output)
    assert code == 2
    assert messages in err


def test_terminals_are_safe_from_control_characters(run: Callable[..., tuple[int, str, str]]) -> None:
    Path("x.sh").write_text("megatron sft --model 'm\x1b[31m' --dataset 'a\nb' --logging_step '\x1b]0;x\x07'\n")
    code, out, err = run("x.sh")
    assert code == 1
    assert "\x1b" not in out + err


OTHER_HOSTS = {
    "timeout": f"timeout 24h {RUN}",
    "docker": f"docker run --gpus all image {RUN}",
    "docker with a shell": f'docker run image bash -c "cd /x && {RUN}"',
    "ssh": f'ssh node1 "cd /x && {RUN}"',
    "kubectl": f"kubectl exec pod -- {RUN}",
    "nohup in the background": f"nohup {RUN} > log 2>&1 &",
    "an environment that is switched on first": f"conda activate x && source bin/activate 2>/dev/null && {RUN}",
    "ssh with an environment": f'for h in a b; do ssh $h "cd /x && source bin/activate && nohup {RUN} > log &" & done',
    "command": f"command {RUN}",
    "tmux": f'tmux send-keys -t x "{RUN}" C-m',
    "a script that it writes for sbatch": f"cat > j.sbatch <<EOF\n#!/bin/bash\nsrun {RUN}\nEOF\nsbatch -N 2 j.sbatch",
    "a pipe": f"{RUN} 2>&1 | tee log",
}


@pytest.mark.parametrize("case", OTHER_HOSTS)
def test_commands_around_a_training(run: Callable[..., tuple[int, str, str]], case: str) -> None:
    Path("x.sh").write_text(OTHER_HOSTS[case] + "\n")
    code, out, err = run("x.sh")
    assert code == 0, err
    assert "data.paths" in out


def test_variables_of_a_container_are_read(run: Callable[..., tuple[int, str, str]]) -> None:
    Path("x.sh").write_text(f'docker run -e A=1 --env=B=2 -v a=b:c image bash -c "cd /x && {RUN}"\n')
    code, out, _ = run("x.sh")
    assert code == 0
    assert "backend.env.A" in out
    assert "backend.env.B" in out
    assert "backend.env.a" not in out


@pytest.mark.parametrize("end", ["\\ ", "\\ # why", "# why \\"])
def test_a_line_that_does_not_continue_is_reported(run: Callable[..., tuple[int, str, str]], end: str) -> None:
    Path("x.sh").write_text(f"megatron sft --model m {end}\n  --dataset d\n")
    code, out, err = run("x.sh")
    assert code == 0
    assert "dataset" not in out
    assert "--dataset is in command position" in err
    assert "(x.sh:2)" in err


def test_secrets_are_not_shown_and_not_written(run: Callable[..., tuple[int, str, str]]) -> None:
    Path("x.sh").write_text(f"export WANDB_API_KEY=abcdef HF_TOKEN=$HF_TOKEN\n{RUN}\n")
    code, out, err = run("x.sh", "-o", "job.yaml")
    assert code == 0
    job = Path("job.yaml").read_text()
    assert "abcdef" not in out + err + job
    assert "WANDB_API_KEY: \\${WANDB_API_KEY}" in job
    assert "WANDB_API_KEY is a secret" in err
    assert "HF_TOKEN is a secret" not in err


def test_of_several_commands_the_first_is_taken_and_the_others_are_named(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    Path("x.sh").write_text("megatron pt --model m --dataset d\nmegatron sft --model m --dataset d\n")
    code, _, err = run("x.sh")
    assert code == 0
    assert "megatron sft is dropped  (x.sh:2)\n  works: --all-commands" in err


ARGS = ("two", "-1", "0", "1.5", "true", "", "[1,2]", '{"a":1}', "null", "x y", "1e9", "$X", "a=b", ",", "nan")
VALUES: tuple[object, ...] = (*ARGS, 1, 0, -1, 1.5, True, None, [1], {"a": 1}, [], {})


def wrong_words(catalogue: Catalogue, dice: random.Random) -> list[str]:
    args = []
    for argument in dice.sample(catalogue.arguments, 12):
        args += [f"--{argument.name}", *dice.choices(ARGS, k=dice.choice((0, 1, 1, 1, 2)))]
    return args


def wrong_tree(catalogue: Catalogue, dice: random.Random) -> dict[str, object]:
    tree: dict[str, object] = {}
    for argument in dice.sample(catalogue.arguments, 12):
        *sections, leaf = argument.name.split(".")
        node: object = tree
        for section in sections:
            node = node.setdefault(section, {}) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node[leaf] = dice.choice(VALUES)
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("name", backend_names())
def test_no_value_makes_it_crash(name: str) -> None:
    """Whatever an argument is given, the import says what is wrong, or keeps it."""
    dice = sampling.dice(name)
    backend = get_backend(name)
    for _ in range(sampling.trials(120)):
        version = dice.choice(backend.versions)
        catalogue = backend.catalogue(version)
        try:
            if catalogue.style == "yaml":
                settings = Configuration(tree=wrong_tree(catalogue, dice))
                wanted = ImportOptions(backend=name, version=version, partial=True)
                read_command(Invocation(program="x", backends=(name,)), wanted, settings)
            else:
                read_argv(wrong_words(catalogue, dice), backend=name, version=version, partial=True)
        except ImportRefused:
            pass


def test_columns_that_are_no_list_are_kept() -> None:
    loader = {"type": "HFDataLoader", "load_func": "load_dataset"}
    dataset = {"data_loader": loader, "input_columns": True}
    settings = Configuration(tree={"train_dataset": dataset, "parallel_config": {"data_parallel": 2}})
    wanted = ImportOptions(backend="mindformers", partial=True)
    imported = read_command(Invocation(program="x", backends=("mindformers",)), wanted, settings)
    assert imported.native.get("train_dataset.input_columns") is True


def test_a_character_that_cannot_be_seen_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("torchrun pretrain_gpt.py --micro-batch-size\u00a01 --lr 1e-4 --bf16\n")
    with pytest.raises(ImportRefused, match=r"a blank is no ASCII character \(U\+00A0, no-break space\)"):
        read_file(tmp_path / "x.sh", ImportOptions())


def test_characters_of_a_comment_are_not_reported_as_those_of_an_argument(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("A=1 #\u00a0 \u2013 none\ntorchrun pretrain_gpt.py --no-such 1 --lr 1e-4 --bf16\n")
    with pytest.raises(ImportRefused) as refused:
        read_file(tmp_path / "x.sh", ImportOptions())
    assert not [note for note in refused.value.notes if "ASCII" in note.message]


# Words in the place of a number that `str.isdigit` takes, and `int` does not.
NO_COUNTS = {"a superscript": "²", "more digits than Python reads": "9" * 5000}
WITH_A_NUMBER = {
    "exit": "[ -d nothere ] && exit {}",
    "shift": "shift {}",
    "return": "f() {{ return {}; }}; f",
    "break": "for i in 1; do break {}; done",
    "positional": "echo ${{{}}}",
    "Slurm": "#SBATCH --ntasks={0} --nodes={0}\nsrun --ntasks={0} true",
    "mpirun": "mpirun -np {0} true",
}


@pytest.mark.parametrize("number", NO_COUNTS.values(), ids=NO_COUNTS.keys())
@pytest.mark.parametrize("line", WITH_A_NUMBER.values(), ids=WITH_A_NUMBER.keys())
def test_a_number_that_is_none_is_no_internal_error(
    line: str, number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "x.sh"
    script.write_text(f"{line.format(number)}\n{RUN}\n", encoding="utf-8")
    assert main(["check", str(script)]) in (0, 1)
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "argument", ["--num-layer-list=²,2", "--noop-layers=²", "--noop-layers=" + "9" * 5000], ids=lambda each: each[:20]
)
def test_arguments_that_are_no_counts_are_no_fault_of_the_program(argument, launch):
    sizes = (
        "--num-layers",
        "4",
        "--hidden-size",
        "64",
        "--num-attention-heads",
        "4",
        "--pipeline-model-parallel-size",
        "2",
    )
    done = launch("import", "--backend", "mindspeed", "--", *sizes, argument)
    assert "internal error" not in done.err, done
    assert done.out or done.err

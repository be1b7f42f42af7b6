"""`launch diff` of files and jobs: what they mean, not how they are written."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.cli.dispatch import dispatch
from launcher.mapping.backend import get_backend

DATA = Path(__file__).parents[1] / "importing" / "data"
OLD = (
    "megatron sft --model Qwen/Qwen3-8B --dataset a.jsonl --tensor_model_parallel_size 2 --lr 1e-5 "
    "--global_batch_size 16 --train_iters 100 --recompute_granularity full --recompute_method uniform "
    "--recompute_num_layers 1"
)


class Folder:
    """A folder of small files, and `launch diff` in it."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self.capsys = path, capsys

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.path / name.replace("_", ".")).write_text(text + "\n")

    def diff(self, *args: str) -> tuple[int, str]:
        try:
            code = dispatch(["diff", *args])
        except SystemExit as error:
            code = int(str(error.code))
        captured = self.capsys.readouterr()
        return code, captured.out + captured.err

    def differing(self, *args: str) -> dict[str, dict[str, object]]:
        code, out = self.diff(*args, "--json")
        tree = json.loads(out)
        assert code == (0 if tree["same"] else 1), out
        return {row["field"]: row for row in tree["differences"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, capsys)


def test_two_scripts_differ_in_canonical_names_what_trains_first(folder: Folder) -> None:
    new = OLD.replace("--lr 1e-5", "--lr 2e-5").replace("_size 2", "_size 4").partition(" --recompute")[0]
    folder.write(old_sh=OLD, new_sh=f"{new} --cached_dataset x")
    found = folder.differing("old.sh", "new.sh")
    assert list(found)[:2] == ["optimizer.lr", "backend.args.cached_dataset"]
    assert found["optimizer.lr"]["values"] == {
        "old.sh": {"value": 1e-05, "how": "written"},
        "new.sh": {"value": 2e-05, "how": "written"},
    }
    assert found["optimizer.lr"]["changes_training"] is True
    assert found["backend.args.cached_dataset"]["changes_training"] is True
    assert found["backend.args.cached_dataset"]["does"] == "trains on data that ms-swift has tokenized before"
    assert {"parallel.tp", "recompute.granularity", "recompute.method", "recompute.num_layers"} < set(found)
    # What the script without the flag does is the default of its own backend.
    assert found["recompute.granularity"]["values"]["new.sh"] == {  # type: ignore[index]
        "value": "selective",
        "how": "the backend's default",
    }


SAME: dict[str, Callable[[list[str]], list[str]]] = {
    "another order": lambda args: args[:2] + shuffled(args[2:]),
    "defaults written out": lambda args: [*args, "--seed", "42", "--sequence_parallel", "false"],
    "another spelling of the same number": lambda args: ["0.00001" if arg == "1e-5" else arg for arg in args],
    "the other spelling of names": lambda args: [re.sub("(?<=[a-z])_(?=[a-z])", "-", arg) for arg in args],
    "a variable": lambda args: ["L=1e-5\n", *("$L" if arg == "1e-5" else arg for arg in args)],
    "= instead of a blank": lambda args: " ".join(args).replace("--lr 1e-5", "--lr=1e-5").split(" "),
    "given twice, the last one counts": lambda args: [*args[:2], "--lr", "1", *args[2:]],
}  # fmt: skip


def shuffled(args: list[str]) -> list[str]:
    """Return options with their values in another order."""
    pairs = [args[at : at + 2] for at in range(0, len(args), 2)]
    random.Random(3).shuffle(pairs)
    return [arg for pair in pairs for arg in pair]


@pytest.mark.parametrize("case", SAME)
def test_equivalent_spellings_are_equal(folder: Folder, case: str) -> None:
    folder.write(old_sh=OLD, new_sh=" ".join(SAME[case](OLD.split(" "))))
    code, out = folder.diff("old.sh", "new.sh")
    assert (code, out.splitlines()[0]) == (0, "the same: old.sh and new.sh"), out


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["swift_sft.sh", "mindspeed_qwen3.sh", "megatron_model_config.yaml", "mindformers_qwen3.yaml"]
)
def test_a_file_and_the_job_made_of_it_are_the_same(folder: Folder, name: str) -> None:
    assert dispatch(["import", str(DATA / name), "-o", "job.yaml"]) == 0
    folder.capsys.readouterr()
    code, out = folder.diff("job.yaml", str(DATA / name))
    assert code == 0, out
    code, _ = folder.diff("+job=job.yaml", str(DATA / name))
    assert code == 0


def test_files_of_two_backends_each_on_its_own(folder: Folder) -> None:
    found = folder.differing(str(DATA / "mindspeed_qwen3.sh"), str(DATA / "qwen3_32b.sh"))
    assert found["fault_tolerance.timeout_minutes"]["values"] == {
        "mindspeed_qwen3.sh": {"value": 30, "how": "the backend's default"},
        "qwen3_32b.sh": {"value": 300000, "how": "the backend's default"},
    }
    assert "kernels.bias_dropout_fusion" not in found  # both fuse, one by the absence of --no-bias-dropout-fusion
    assert found["task.type"]["values"]["qwen3_32b.sh"]["value"] == "sft"  # type: ignore[index]


def test_overrides_apply_to_all(folder: Folder) -> None:
    folder.write(old_sh=OLD, new_sh=OLD.replace("--lr 1e-5", "--lr 2e-5"))
    assert folder.diff("old.sh", "new.sh", "optimizer.lr=3e-5")[0] == 0
    assert folder.diff("old.sh", "optimizer.lr=3e-5", "parallel.tp=1", "new.sh")[0] == 0


def test_one_file_on_several_versions(folder: Folder) -> None:
    folder.write(old_sh=OLD)
    found = folder.differing("old.sh", "--backends", "megatron@3.5,megatron")
    assert found["batch.padding_free"]["values"] == {
        "megatron 3.5.3": {"value": False, "how": "the backend's default"},
        "megatron 4.6.0": {"value": True, "how": "the backend's default"},
    }


def test_old_names_mean_the_same_as_new_ones(folder: Folder) -> None:
    """ms-swift 4 renamed max_epochs, log_interval and save_interval."""
    old = "megatron sft --model m --dataset a.jsonl --max_epochs 2 --log_interval 3 --save output --save_interval 7"
    new = "megatron sft --model m --dataset a.jsonl --num_train_epochs 2 --logging_steps 3"
    new += " --output_dir output --save_steps 7"
    folder.write(old_sh=old, new_sh=new)
    found = folder.differing("old.sh", "new.sh")
    assert not {"schedule.epochs", "logging.interval", "checkpoint.save_interval", "checkpoint.save"} & set(found)


FILLED_IN = {
    "swift's rate of adapters": (
        "NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen3-8B --dataset a.jsonl --tuner_type lora",
        "--lr 1e-4 --global_batch_size 16",
        "--lr 1e-5",
    ),
    "Megatron's batch of one round": (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
        "--seq-length 64 --max-position-embeddings 64 --tensor-model-parallel-size 2 --micro-batch-size 4 --lr 1e-4 "
        "--train-iters 10",
        "--global-batch-size 16",
        "--global-batch-size 32",
    ),
}


@pytest.mark.parametrize("case", FILLED_IN)
def test_what_a_backend_fills_in_is_no_difference(folder: Folder, case: str) -> None:
    script, same, other = FILLED_IN[case]
    folder.write(left_sh=script, same_sh=f"{script} {same}", other_sh=f"{script} {other}")
    left, *right = (f"{folder.path}/{name}.sh" for name in ("left", "same", "other"))
    assert folder.diff(left, right[0])[0] == 0
    assert folder.diff(left, right[1])[0] == 1


def test_two_recipes(folder: Folder) -> None:
    found = folder.differing("+recipe=tiny_qwen3", "+recipe=tiny_qwen3_moe", "backend=megatron_lm")
    assert found["model.num_experts"]["values"] == {
        "tiny_qwen3": {"value": None, "how": "the backend's default"},
        "tiny_qwen3_moe": {"value": 8, "how": "written"},
    }


def test_variables_of_the_environment(folder: Folder) -> None:
    folder.write(old_sh=f"export NCCL_DEBUG=INFO\n{OLD}", new_sh=OLD)
    assert list(folder.differing("old.sh", "new.sh")) == ["backend.env.NCCL_DEBUG"]


WRONG = {
    "nothing": ([], "two files or jobs, or two backends, are needed"),
    "one file": (["old.sh"], "two files or jobs, or two backends, are needed"),
    "no such file": (["old.sh", "new.sh"], "new.sh does not exist"),
    "no such backend": (["old.sh", "--backends", "megatron,nemo"], "no backend 'nemo'"),
    "no such version": (["old.sh", "--backends", "megatron,megatron@1"], "versions: 4.6.0"),
    "too few backends": (["old.sh", "old.sh", "old.sh", "--backends", "megatron,mindspeed"], "3 jobs need one backend"),
    "unreadable": (["old.sh", "bad.sh"], "bad.sh:1"),
    "no such field": (["old.sh", "old.sh", "parallel.tensor=2"], "parallel.tensor is not a field"),
    "bad --set": (["old.sh", "old.sh", "--set", "A"], "--set takes VARIABLE=VALUE"),
    "refused value": (["old.sh", "old.sh", "parallel.tp=two"], "parallel.tp"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes(folder: Folder, case: str) -> None:
    folder.write(old_sh=OLD, bad_sh="megatron sft --model m --learning_rat 1")
    args, reported = WRONG[case]
    code, out = folder.diff(*args)
    assert code == 2, out
    assert reported in out
    assert len(out.splitlines()) < 20


def test_every_default_of_a_parser_written_out_is_the_same(folder: Folder) -> None:
    """All arguments at once that a plain command may give their own default."""
    args = [
        arg
        for argument in get_backend("megatron").catalogue("4.6.0").arguments
        if isinstance(argument.default, (int, float, str))
        and argument.default != ""
        and f"--{argument.name}" not in OLD.split()
        and "sft" in (argument.commands or ("sft",))
        and not argument.is_flag
        for arg in (f"--{argument.name}", f"'{_typed(argument.default)}'")
    ]
    assert len(args) > 300
    folder.write(old_sh=OLD, new_sh=f"{OLD} {' '.join(args)}")
    code, out = folder.diff("old.sh", "new.sh")
    assert code == 0, out


def _typed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

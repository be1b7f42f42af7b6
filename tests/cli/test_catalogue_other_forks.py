"""Forks of ms-swift, whose commands have dataclasses, and of MindSpeed-LLM, whose features add arguments."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.catalogue.user import VARIABLE
from launcher.cli.dispatch import dispatch
from launcher.mapping.backend import forget_forks
from tests.catalogue import fork_checkouts

EXECUTED = 'raise SystemExit("the source was executed")\n'
SWIFT = f"""
from dataclasses import dataclass, field
from typing import List, Literal, Optional
from transformers import nothing
{EXECUTED}

@dataclass
class RLHFMixin:
    rlhf_type: Optional[str] = None

@dataclass
class MegatronArguments(RLHFMixin):
    tensor_model_parallel_size: int = 1
    micro_batch_size: int = 1
    global_batch_size: int = 2 ** 4
    max_length: Optional[int] = None
    train_iters: Optional[int] = None
    lr: Optional[float] = None
    output_dir: Optional[str] = None
    model: Optional[str] = None
    dataset: List[str] = field(default_factory=list)
    z_loss: float = 1e-4
    our_schedule: Literal['one', 'two'] = 'one'
    _state: int = 0

@dataclass
class MegatronSftArguments(MegatronArguments):
    packing: bool = False
"""
SWIFT_SCRIPT = """NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen3-8B --dataset x.jsonl --max_length 512 \\
    --train_iters 10 --tensor_model_parallel_size 2 --lr 1e-5 --packing true --z_loss 0.001 --our_schedule two
"""
LIKE = ("--like", "megatron@4.6.0")
MANAGER = """
from mindspeed.features_manager.feature import MindSpeedFeature
from mindspeed_llm.features_manager.ours import OurFeature, UnusedFeature

FEATURES_LIST = [UnusedFeature()]

def add_ours(features_list):
    features_list.extend([OurFeature()])

def create_features_list():
    features_list = []
    add_ours(features_list)
    return features_list
"""
FEATURES = f"""
from mindspeed.features_manager.feature import MindSpeedFeature
import torch_npu
{EXECUTED}

class Base(MindSpeedFeature):
    def register_args(self, parser):
        group = parser.add_argument_group(title=self.feature_name)
        group.add_argument('--our-base', type=int, default=1)

class OurFeature(Base):
    def register_args(self, parser):
        super().register_args(parser)
        self.add_parser_argument_choices_value(parser, '--position-embedding-type', 'ours')
        group = parser.add_argument_group(title=self.feature_name)
        group.add_argument('--z-loss-weight', type=float, default=1e-4)

class UnusedFeature(MindSpeedFeature):
    def register_args(self, parser):
        parser.add_argument('--unused', type=int)
"""
MINDSPEED_MORE = (
    "--z-loss-weight 0.001 --our-base 2 --tensor-model-parallel-size 2 --position-embedding-type ours --use-flash-attn"
)


@pytest.fixture(autouse=True)
def own_catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keep forks in a folder of the test, and forget them after it."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "catalogues"))
    monkeypatch.chdir(tmp_path)
    forget_forks()
    yield
    forget_forks()


def swift_fork(folder: Path, classes: str = SWIFT) -> str:
    files = {"swift__cli___megatron__sft": "", "swift__megatron__arguments__sft_args": classes}
    return str(fork_checkouts.write(folder, **files))


def mindspeed_fork(folder: Path) -> str:
    for path, text in (("__init__", MANAGER), ("ours", FEATURES)):
        file = folder / "mindspeed_llm" / "features_manager" / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(folder)


def tree(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = dispatch([*words, "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, ""), err or out
    return json.loads(out)


def test_a_fork_of_ms_swift_is_a_version_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("train.sh").write_text(SWIFT_SCRIPT)
    found = tree(capsys, "import", "train.sh", "--source", swift_fork(tmp_path / "ours"), *LIKE, "-o", "job.yaml")
    assert (found["backend"], found["version"].partition("+")[2]) == ("megatron", "ours")
    assert found["job"]["parallel"]["tp"] == 2
    assert found["job"]["backend"]["args"] == {"z_loss": 0.001, "our_schedule": "two"}
    assert "version: 4.6.0+ours" in Path("job.yaml").read_text()


def test_what_a_fork_of_ms_swift_accepts_is_what_its_classes_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    added = tree(capsys, "catalogue", "add", swift_fork(tmp_path / "ours"), "--name", "ours", *LIKE)
    assert added["new"] == ["our_schedule", "z_loss"]
    (argument,) = tree(capsys, "args", "megatron", "--backend-version", "ours", "global_batch_size")["arguments"]
    assert (argument["type"], argument["default"]) == ("int", 16)
    Path("train.sh").write_text(SWIFT_SCRIPT.replace("our_schedule two", "our_schedule three"))
    assert dispatch(["import", "train.sh", "--backend", "megatron", "--backend-version", "ours"]) == 1
    assert "--our_schedule must be one of one, two" in capsys.readouterr().err


def test_a_fork_of_mindspeed_llm_is_a_version_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fork = mindspeed_fork(tmp_path / "ours")
    text = fork_checkouts.SCRIPT.format(program="pretrain_gpt.py", more=MINDSPEED_MORE)
    Path("train.sh").write_text(text.replace("NullTokenizer", "PretrainedFromHF"))
    found = tree(capsys, "import", "train.sh", "--source", fork, "--like", "mindspeed@26.1.0", "-o", "job.yaml")
    assert (found["backend"], found["version"]) == ("mindspeed", "26.1.0+ours")
    assert found["job"]["parallel"]["tp"] == 2
    args = found["job"]["backend"]["args"]
    assert (args["z-loss-weight"], args["our-base"]) == (0.001, 2)
    dispatch(["dry-run", "+job=job.yaml", "--format", "argv"])
    written = capsys.readouterr().out
    assert all(part in written for part in ("--z-loss-weight 0.001", "--our-base 2", "--position-embedding-type ours"))


def test_only_features_that_are_listed_add_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    fork = mindspeed_fork(tmp_path / "ours")
    added = tree(capsys, "catalogue", "add", fork, "--name", "ours", "--like", "mindspeed@26.1.0")
    assert added["new"] == ["our-base", "z-loss-weight"]
    assert "add-eos-token" in added["missing"]  # MindSpeed-LLM declares it, and this checkout does not
    names = {each["name"] for each in tree(capsys, "args", "mindspeed", "--backend-version", "ours")["arguments"]}
    assert {"num-layers", "z-loss-weight"} <= names  # Megatron-LM's parser is not in the checkout


# name: the checkout's classes, what is said.
BROKEN = {
    "no class": ("x = 1\n", "no arguments class of sft"),
    "no Python": ("class MegatronSftArguments(:\n", "line 1"),
    "bases without an order": (
        "class A: pass\nclass B(A): pass\nclass MegatronSftArguments(A, B): pass\n",
        "no consistent method resolution order",
    ),
    "a class of itself": ("class MegatronSftArguments(MegatronSftArguments): pass\n", "nested too deeply"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_checkout_that_cannot_be_read_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: str
) -> None:
    classes, text = BROKEN[case]
    fork = swift_fork(tmp_path / "ours", classes)
    assert dispatch(["catalogue", "add", fork, "--name", "ours"]) == 1
    assert text in capsys.readouterr().err
    assert not Path("catalogues").exists()


def test_a_default_that_is_too_large_to_compute_is_not_computed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fork = swift_fork(tmp_path / "ours", SWIFT.replace("2 ** 4", "9 ** 9 ** 9 ** 9"))
    tree(capsys, "catalogue", "add", fork, "--name", "ours")
    (argument,) = tree(capsys, "args", "megatron", "--backend-version", "ours", "global_batch_size")["arguments"]
    assert argument["type"] == "int"
